"""Whether the broker beside us answers, is the one of its file, and tells this identity what leadership is told by."""

import time
from collections.abc import Set
from itertools import islice

from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, ok, unanswered, warning
from ts_uploader.leadership.kraft.broker_client import AnsweredByAnother, BrokerAway, BrokerClient, NotKnown, Refused

_MOST_TOPICS = 200  # a question for each
_ATTEMPTS = 3
_AGAIN_SECONDS = 1.0  # see `broker_client`: to the second, the broker that was asked last is asked again
_CLOSE_SECONDS = 2.0


def kraft_findings(client: BrokerClient, environment: Environment, topics: Set[str]) -> list[Finding]:
    """What there is to say; the client is closed here.

    Args:
        client: of the broker.
        environment: whose broker.
        topics: that are shipped.
    """
    about = f"broker {environment.broker_id} at {client.bootstrap}"
    try:
        findings = _settings(client, about)
        return findings + _topics(client, topics, about)
    except BrokerAway as away:
        what = f"gives no answer as broker {environment.broker_id}: {away}"
        return [unanswered(about, f"{what}; the address and the id are those of its file")]
    finally:
        client.close(_CLOSE_SECONDS)


def _settings(client: BrokerClient, about: str) -> list[Finding]:
    if client.broker_settings() is None:
        what = "does not tell this identity the broker's dynamic settings; those of its file count"
        return [warning(about, what, "allow it DESCRIBE_CONFIGS on the cluster")]
    return [ok(about, "reached, and tells its settings")]


def _topics(client: BrokerClient, topics: Set[str], about: str) -> list[Finding]:
    refused, absent, unknown = [], [], []
    for topic in islice(sorted(topics), _MOST_TOPICS):
        try:
            if _leaders(client, topic) is None:
                absent.append(topic)
        except Refused:
            refused.append(topic)
        except (NotKnown, AnsweredByAnother):
            unknown.append(topic)
    findings = []
    if refused:
        what = f"does not tell this identity who leads {_some(refused)}: these would not be shipped"
        findings.append(
            error(about, what, "allow it DESCRIBE on the topics (and DESCRIBE_CONFIGS, for their retention)")
        )
    if absent:
        what = f"does not know {_some(absent)}, which stand in its log dirs"
        way = "deleted topics go from the disk soon; many mean another cluster's broker, or no right to DESCRIBE"
        findings.append(warning(about, what, way))
    if unknown:
        findings.append(unanswered(about, f"cannot tell now who leads {_some(unknown)}"))
    if topics and not findings:
        findings.append(ok(about, "tells who leads what is in its log dirs"))
    return findings


def _leaders(client: BrokerClient, topic: str) -> dict[int, int] | None:
    for attempt in range(_ATTEMPTS):
        try:
            return client.leaders(topic)
        except AnsweredByAnother:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_AGAIN_SECONDS)
            client.broker_settings()
    raise AnsweredByAnother(topic)  # not reached: the last attempt answers or raises


def _some(topics: list[str]) -> str:
    return ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
