"""Whether ZooKeeper is reached, lets this identity read what leadership is told by, and knows the broker."""

import json
from collections.abc import Set
from itertools import islice

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, hint, ok, unanswered, warning
from ts_uploader.leadership.migration import MIGRATION

_CONNECT_SECONDS = 10.0
_MOST_TOPICS = 200  # one is like the other, but for those with rights of their own


def zookeeper_findings(client: KazooClient, environment: Environment, topics: Set[str]) -> list[Finding]:
    """What there is to say; the client is started and closed here.

    Args:
        client: not started yet.
        environment: whose broker.
        topics: that are shipped.
    """
    about = f"zookeeper {environment.zookeeper_connect}"
    try:
        client.start(timeout=_CONNECT_SECONDS)
    except (KazooTimeoutError, KazooException) as failed:
        client.close()
        return [unanswered(about, f"no session within {_CONNECT_SECONDS:.0f} s: {failed}")]
    try:
        return _findings(client, environment, topics, about)
    except (NoAuthError, AuthFailedError) as refused:
        return [error(about, f"refuses this identity: {refused!r}", "let it read /brokers (Kafka leaves that to all)")]
    except (KazooTimeoutError, KazooException) as failed:
        return [unanswered(about, f"does not answer: {failed!r}")]
    finally:
        client.stop()
        client.close()


def _findings(client: KazooClient, environment: Environment, topics: Set[str], about: str) -> list[Finding]:
    found = [*_cluster(client, environment, about), *_broker(client, environment, about)]
    absent = []
    for topic in islice(sorted(topics), _MOST_TOPICS):
        try:
            client.get(f"/brokers/topics/{topic}")
        except NoNodeError:
            absent.append(topic)
    if absent:
        names = ", ".join(absent[:3])
        what = f"{len(absent)} of the topics in the log dirs are not there ({names})"
        found.append(
            warning(about, what, "deleted topics go from the disk soon; many mean another cluster's ZooKeeper")
        )
    return found


def _broker(client: KazooClient, environment: Environment, about: str) -> list[Finding]:
    broker = environment.broker_id
    if client.exists(f"/brokers/ids/{broker}") is not None:
        return [ok(about, f"reached, and broker {broker} is registered")]
    if client.exists(MIGRATION) is not None:
        what = f"broker {broker} is not registered, and {MIGRATION} stands: the cluster has gone over to KRaft"
        return [error(about, what, "give the file that the broker is started with, where process.roles stands")]
    others = ", ".join(sorted(client.get_children("/brokers/ids"))[:10]) or "none"
    what = f"broker {broker} is not registered there; registered are {others}"
    return [error(about, what, "start the broker, or look whether zookeeper.connect and broker.id are its own")]


def _cluster(client: KazooClient, environment: Environment, about: str) -> list[Finding]:
    """The id that the cluster gave itself; another in the keys is the operator's choice (`--cluster-id`)."""
    try:
        data, _ = client.get("/cluster/id")
        named = str(json.loads(data)["id"])
    except (NoNodeError, ValueError, KeyError, TypeError):
        return [hint(about, "the cluster's own id cannot be read there")]
    if named != environment.cluster_id:
        return [hint(about, f"the cluster calls itself {named}; keys and files here say {environment.cluster_id}")]
    return []
