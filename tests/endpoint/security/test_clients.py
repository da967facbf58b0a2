"""Unchanged clients connect by TLS, mutual TLS, SCRAM and PLAIN, and are refused with wrong credentials."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from dev.local.certificates import Certificates
from tests.endpoint.network.small_cluster import TOPIC, SmallCluster, serve
from tests.endpoint.security.kafka_clients import Access, Client, aiokafka, confluent, java, kafka_python, kcat
from ts_endpoint.security.login import MECHANISMS, Sasl
from ts_endpoint.security.tls import Tls, TlsFiles
from ts_endpoint.security.users import Users

WAYS = [
    ("TLS", {"tls": "tls"}, None),
    ("mutual TLS", {"tls": "mutual"}, "CN=client"),
    ("SCRAM-SHA-256", {"mechanism": "SCRAM-SHA-256"}, "alice"),
    ("SCRAM-SHA-512, TLS", {"mechanism": "SCRAM-SHA-512", "tls": "tls"}, "alice"),
    ("PLAIN, TLS", {"mechanism": "PLAIN", "tls": "tls"}, "alice"),
    ("PLAIN, mutual TLS", {"mechanism": "PLAIN", "tls": "mutual"}, "alice"),
]
SLOW = {
    kafka_python: ("TLS", "SCRAM-SHA-256", "PLAIN, TLS"),
    java: ("TLS", "mutual TLS", "SCRAM-SHA-256", "PLAIN, TLS"),  # a JVM each
}
CASES = [
    pytest.param(
        *(client, *way),
        id=f"{client.__name__}, {way[0]}",
        marks=[pytest.mark.full] if way[0] in SLOW.get(client, ()) else [],
    )
    for client in (confluent, kcat, aiokafka, kafka_python, java)
    for way in (WAYS if client is not java else WAYS[:5])
]


def listed(client: Client, access: Access, options: dict[str, Any], directory: Path) -> tuple[list[str], SmallCluster]:
    cluster = SmallCluster()

    async def run() -> list[str]:
        return await client(cluster.bootstrap, access, directory)

    return serve(cluster, run, **options), cluster


def listener(way: dict[str, str], certificates: Certificates, users_file: Path) -> tuple[Access, dict[str, Any]]:
    options: dict[str, Any] = {}
    mutual = way.get("tls") == "mutual"
    if "tls" in way:
        authorities = certificates.authority if mutual else None
        options["tls"] = Tls(TlsFiles(certificates.server, certificates.server_key, authorities))
    mechanism = way.get("mechanism")
    if mechanism is not None:
        users = Users(users_file)
        options["sasl"] = Sasl(MECHANISMS, users.keys, users.usual)
    return Access(certificates if "tls" in way else None, mutual, mechanism), options


@pytest.mark.parametrize(("client", "way", "options", "user"), CASES)
def test_a_client_lists_topics_as_its_user(
    client: Client,
    way: str,
    options: dict[str, str],
    user: str | None,
    certificates: Certificates,
    users_file: Path,
    tmp_path: Path,
) -> None:
    """The handler receives the user who authenticated."""
    access, server_options = listener(options, certificates, users_file)

    topics, cluster = listed(client, access, server_options, tmp_path)

    assert TOPIC in topics
    assert {*cluster.users} == {user}


@pytest.mark.parametrize("mechanism", [str(each) for each in MECHANISMS])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_librdkafka_shows_kafkas_text_for_wrong_credentials(mechanism: str, user: str, users_file: Path) -> None:
    """An unknown user and a wrong password have the same text."""
    users = Users(users_file)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": "wrong horse",
    }

    error, cluster = first_error(settings, {"sasl": Sasl(MECHANISMS, users.keys, users.usual)})

    texts = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM-SHA-256": "due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        "SCRAM-SHA-512": "due to invalid credentials with SASL mechanism SCRAM-SHA-512",
    }
    assert texts[mechanism] in error
    assert cluster.users == []
    assert cluster.server is not None
    assert cluster.server.counters.failed_logins[mechanism] >= 1


@pytest.mark.full
def test_java_ends_with_kafkas_text_for_wrong_credentials(users_file: Path, tmp_path: Path) -> None:
    """The tool does not retry: the error is an authentication's, not a network's."""
    users = Users(users_file)
    options = {"sasl": Sasl(MECHANISMS, users.keys, users.usual)}

    with pytest.raises(RuntimeError, match="due to invalid credentials with SASL mechanism SCRAM-SHA-256"):
        listed(java, Access(None, False, "SCRAM-SHA-256", password="wrong horse"), options, tmp_path)


def test_a_client_without_a_certificate_is_refused_by_mutual_tls(certificates: Certificates) -> None:
    """Mutual TLS needs a certificate of its authority."""
    tls = Tls(TlsFiles(certificates.server, certificates.server_key, certificates.authority))
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.authority)}

    error, cluster = first_error(settings, {"tls": tls})

    assert "certificate" in error
    assert cluster.server is not None
    assert cluster.server.counters.ended["tls"] >= 1
    assert cluster.users == []


def first_error(settings: dict[str, str], options: dict[str, Any]) -> tuple[str, SmallCluster]:
    """Return the text of the first error that librdkafka reports."""
    cluster = SmallCluster()
    errors: list[str] = []

    async def run() -> None:
        reported: dict[str, Any] = {"error_cb": lambda error: errors.append(error.str())}
        admin = AdminClient({**settings, **reported, "bootstrap.servers": cluster.bootstrap})

        def poll() -> None:
            while not errors:
                admin.poll(0.05)

        await asyncio.to_thread(poll)

    serve(cluster, run, **options)
    return errors[0], cluster
