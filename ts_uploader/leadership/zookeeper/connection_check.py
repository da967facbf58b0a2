"""Check that ZooKeeper is reached, lets this identity read leadership, and has the broker registered."""

import datetime
import socket
import ssl
import time
from collections.abc import Set
from itertools import islice
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ts_common.config.zookeeper_options import PREFIX
from ts_common.errors import CorruptData
from ts_common.json_objects import decoding, parse_json, text
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, hint, ok, unanswered, warning
from ts_uploader.leadership.zookeeper.connection import Connection
from ts_uploader.leadership.zookeeper.migration import MIGRATION
from ts_uploader.leadership.zookeeper.security import Security, Store

_CONNECT_SECONDS = 10.0
_SLICE_SECONDS = 0.05  # between two polls
_PROBE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_SOON = datetime.timedelta(days=14)
_ID_BYTES = 1 << 20
_MOST_TOPICS = 200  # topics rarely have ACLs of their own, so a sample is enough


def zookeeper_findings(
    connection: Connection, security: Security, environment: Environment, topics: Set[str]
) -> list[Finding]:
    """Start the client, return the findings, and close it.

    Args:
        connection: not started yet.
        security: TLS and SASL.
    """
    about = f"zookeeper {environment.zookeeper_connect}"
    client = connection.client
    found = _security_findings(security, environment, about)
    try:
        client.start_async()
        if not _wait(connection):
            return [*found, *_why_no_session(connection, security, about)]
        return found + _findings(client, environment, topics, about)
    except AuthFailedError:
        if connection.trouble is None:
            connection.refused()
        return [*found, *_why_no_session(connection, security, about)]
    except NoAuthError as denied:
        way = "let it read /brokers (Kafka allows that to all)"
        return [*found, error(about, f"denies this identity: {denied!r}", way)]
    except (KazooTimeoutError, KazooException) as failed:
        if _wait_for_trouble(connection):
            return [*found, *_why_no_session(connection, security, about)]
        return [*found, unanswered(about, f"does not answer: {failed!r}")]
    finally:
        connection.close(_CLOSE_SECONDS)


def _wait(connection: Connection) -> bool:
    """Wait for a session, but not if the operator must act on the failure of every server."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while not connection.in_session:
        servers = {f"{host}:{port}" for host, port in connection.client.hosts}
        troubles = dict(connection.troubles)
        hopeless = all(trouble.lasting for trouble in troubles.values()) and servers <= troubles.keys()
        if hopeless or "" in troubles or connection.ended or time.monotonic() >= deadline:
            return False
        time.sleep(_SLICE_SECONDS)
    return True


def _wait_for_trouble(connection: Connection) -> bool:
    """Whether kazoo's thread notes why it lost the session; a request can fail a moment before."""
    deadline = time.monotonic() + 1.0
    while connection.trouble is None and time.monotonic() < deadline:
        time.sleep(_SLICE_SECONDS)
    return connection.trouble is not None


def _why_no_session(connection: Connection, security: Security, about: str) -> list[Finding]:
    """Return one finding for each server; the agent needs only one server."""
    troubles = dict(connection.troubles)
    found = []
    for server, trouble in sorted(troubles.items()):
        if trouble.lasting:
            found.append(error(about, str(trouble)))
        elif security.tls is None and _speaks_tls(server):
            way = (
                "copy the broker's zookeeper.ssl.* settings: into its file, or, if they are flags of its JVM, set "
                "ts.segment.uploader.zookeeper.ssl.client.enable=true and ...ssl.truststore.location"
            )
            found.append(error(about, f"{server} requires TLS, and zookeeper.ssl.client.enable is not true", way))
        else:
            found.append(unanswered(about, f"no session within {_CONNECT_SECONDS:.0f} s: {trouble}"))
    return found or [unanswered(about, f"no session within {_CONNECT_SECONDS:.0f} s")]


def _speaks_tls(server: str) -> bool:
    """Whether the server begins a TLS handshake; no data is sent, so its certificate is not verified."""
    host, _, port = server.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, int(port)), _PROBE_SECONDS) as connection:
            context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLError as failed:
        return "ALERT" in str(failed)  # it speaks TLS, and requires a certificate
    except (OSError, ValueError):
        return False
    return True


def _security_findings(security: Security, environment: Environment, about: str) -> list[Finding]:
    """Return the findings about the security settings; invalid settings have ended the start already."""
    properties, found = environment.broker_properties, []
    if security.tls is not None and not security.tls.names_hosts:
        what = "zookeeper.ssl.endpoint.identification.algorithm is not https: a certificate of any host is accepted"
        found.append(warning(about, what, "set it to https, where certificates name their hosts"))
    authenticated = security.sasl is not None or (security.tls is not None and security.tls.keystore is not None)
    if properties.get("zookeeper.set.acl", "").strip().lower() == "true" and not authenticated:
        what = "zookeeper.set.acl=true: brokers log in to ZooKeeper, and the agent does not"
        way = f"if ZooKeeper denies it a node, name the broker's JAAS file by {PREFIX}jaas.file"
        found.append(hint(about, what, way))
    if security.tls is not None and security.tls.keystore is not None:
        found += _certificate_findings(security.tls.keystore)
    return found


def _certificate_findings(store: Store) -> list[Finding]:
    """Return whether the agent's own certificate is valid, and for how long."""
    from ts_uploader.leadership.zookeeper.key_stores import own_certificate  # noqa: PLC0415  (see `zookeeper_tls`)

    about = f"key store {store.path}"
    _, chain = own_certificate(store.path, store.kind, store.password.read())
    left = chain[0].not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    day = f"{chain[0].not_valid_after_utc:%Y-%m-%d}"
    if left < datetime.timedelta():
        return [error(about, f"its certificate expired on {day}", "renew it; the agent reads it with each connection")]
    if left < _SOON:
        return [warning(about, f"its certificate expires on {day}", "renew it; a restart is not needed")]
    return [ok(about, f"its certificate is valid until {day}")]


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
        what = f"{len(absent)} of the topics in the log dirs are missing ({names})"
        found.append(warning(about, what, "deleted topics soon leave the disk; many mean another cluster's ZooKeeper"))
    return found


def _broker(client: KazooClient, environment: Environment, about: str) -> list[Finding]:
    broker = environment.broker_id
    if client.exists(f"/brokers/ids/{broker}") is not None:
        return [ok(about, f"reached, and broker {broker} is registered")]
    if client.exists(MIGRATION) is not None:
        what = f"broker {broker} is not registered, and {MIGRATION} exists: the cluster has migrated to KRaft"
        return [error(about, what, "give the properties file of the broker in KRaft mode, which sets process.roles")]
    others = ", ".join(sorted(client.get_children("/brokers/ids"))[:10]) or "none"
    what = f"broker {broker} is not registered there; registered are {others}"
    return [error(about, what, "start the broker, or check that zookeeper.connect and broker.id are its own")]


def _cluster(client: KazooClient, environment: Environment, about: str) -> list[Finding]:
    """Compare the cluster's own id with the one in object keys, which the operator may choose (`--cluster-id`)."""
    try:
        data, _ = client.get("/cluster/id")
        with decoding("/cluster/id", "a cluster's id"):
            node: Any = parse_json(data, "/cluster/id", _ID_BYTES)
            named = text(node["id"])
    except (NoNodeError, CorruptData):
        return [hint(about, "the cluster's own id cannot be read there")]
    if named != environment.cluster_id:
        return [hint(about, f"the cluster's own id is {named}; object keys and files have {environment.cluster_id}")]
    return []
