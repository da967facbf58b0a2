"""The raw connection to a broker: with each security protocol of a real one, and with answers that no broker sends."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.fuzz.answers.broker import FakeBroker
from tests.uploader.leadership.kraft.secured_brokers import LISTENERS, PASSWORD, STORE_PASSWORD
from ts_common.broker_connection.connection import (
    Api,
    BrokerConnection,
    LoginRejected,
    NoAnswer,
    UnsupportedRequest,
)
from ts_common.broker_connection.encoding import compact_string
from ts_common.broker_connection.security import security_of
from ts_common.errors import ConfigurationError, CorruptData, TieredStorageError
from ts_uploader.leadership.broker_settings import read_key_store
from ts_uploader.leadership.kraft.listener import client_settings
from ts_uploader.snapshots.access_requests import describe_client_quotas

SECONDS = 20.0
QUOTAS = b"\0\0\0\0\0"
VERSIONS, QUOTAS_API = 18, 48
AGENT = {"sasl__username": "agent", "sasl__password": PASSWORD}
# ApiVersions 3: error 0, two kinds of requests (quotas in versions 0 to 1), throttle time, `metadata.version` 27.
FEATURES = b"\x02" + compact_string("metadata.version") + struct.pack(">hh", 27, 1) + b"\0"
SERVED = bytes.fromhex("0000" + "03" + "00120000000400" + "00300000000100" + "00000000" + "0102")
SERVED += bytes([len(FEATURES)]) + FEATURES


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A server that sends what a test sets."""
    broker = FakeBroker()
    broker.follow({VERSIONS: (None, None, SERVED)})
    yield broker
    broker.follow({})


def plain(port: int, seconds: float = SECONDS) -> BrokerConnection:
    return BrokerConnection(security_of({"bootstrap.servers": f"127.0.0.1:{port}"}), seconds)


def settings(cluster: LocalCluster, listener: str, **overrides: str) -> dict[str, str]:
    properties = {
        **cluster.brokers[1].properties,
        "inter.broker.listener.name": listener,
        **LISTENERS.get(listener, {}),
    }
    return client_settings(properties, {key.replace("__", "."): value for key, value in overrides.items()}, "127.0.0.1")


@pytest.mark.parametrize(
    ("listener", "overrides"),
    [
        ("PLAINTEXT", {}),
        ("MUTUAL", {}),
        ("SECRET", {}),
        ("SCRAM", {}),
        ("SCRAM", {"sasl__mechanism": "SCRAM-SHA-256", **AGENT}),
    ],
    ids=["plain", "mutual TLS", "PLAIN over TLS", "SCRAM-SHA-512", "SCRAM-SHA-256"],
)
def test_a_request_is_answered_through_each_security_protocol(
    secured_kraft: LocalCluster, listener: str, overrides: Mapping[str, str]
) -> None:
    """The broker's own file is enough; several requests pass one connection."""
    with BrokerConnection(
        security_of(settings(secured_kraft, listener, **overrides), read_key_store=read_key_store), SECONDS
    ) as connection:
        assert connection.features["metadata.version"] > 20
        for _ in range(2):
            assert describe_client_quotas(connection) is not None


@pytest.mark.parametrize(
    ("listener", "overrides", "text"),
    [
        ("SECRET", {"sasl__password": "guessed"}, "rejects the login: Authentication failed"),
        ("SCRAM", {"sasl__password": "guessed"}, "rejects the login: Authentication failed"),
        (
            "SECRET",
            {"sasl__mechanism": "SCRAM-SHA-512", **AGENT},
            "does not serve SASL SCRAM-SHA-512 here; it serves PLAIN",
        ),
        ("MUTUAL", {"ssl__ca__location": "/etc/ssl/certs/ca-certificates.crt"}, "its certificate is rejected"),
    ],
    ids=["password", "SCRAM password", "mechanism", "authority"],
)
def test_a_login_that_a_side_rejects_is_named_without_its_password(
    secured_kraft: LocalCluster, listener: str, overrides: Mapping[str, str], text: str
) -> None:
    """The message has the broker's reason."""
    given = settings(secured_kraft, listener, **overrides)
    with pytest.raises(LoginRejected, match=text) as refused:
        BrokerConnection(security_of(given, read_key_store=read_key_store), SECONDS)
    assert "guessed" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_denied_request_is_not_an_empty_answer(secured_kraft: LocalCluster) -> None:
    """A guest may not describe quotas: None, and not an empty tuple."""
    given = settings(secured_kraft, "SECRET", sasl__username="guest2", sasl__password=PASSWORD)
    with BrokerConnection(security_of(given, read_key_store=read_key_store), SECONDS) as connection:
        assert describe_client_quotas(connection) is None


def test_an_older_broker_has_no_quotas(fake: FakeBroker) -> None:
    """A broker that has only earlier versions of ApiVersions answers in the form of version 0."""
    fake.follow({VERSIONS: (None, None, bytes.fromhex("0023" + "00000001" + "001200000002"))})
    with plain(fake.port) as connection:
        assert (connection.versions, connection.features) == ({VERSIONS: (0, 2)}, {})
        with pytest.raises(UnsupportedRequest, match="DESCRIBE_CLIENT_QUOTAS version 0 is needed, and it serves none"):
            describe_client_quotas(connection)


@pytest.mark.parametrize(
    ("length", "cut", "body", "kind", "text"),
    [
        ((1 << 31) - 1, None, b"", CorruptData, "a response of 2147483647 bytes"),
        (-1, None, b"", CorruptData, "a response of -1 bytes"),
        (3, None, b"", CorruptData, "a response of 3 bytes"),
        (100, None, b"", NoAnswer, "no whole answer to DESCRIBE_CLIENT_QUOTAS within 0.5 s"),
        (None, 6, b"", NoAnswer, "no whole answer to DESCRIBE_CLIENT_QUOTAS within 0.5 s"),
        (None, None, b"", CorruptData, "malformed at byte 0: 4 bytes are announced and 0 remain"),
        (None, None, struct.pack(">ihhi", 0, 0, -1, (1 << 31) - 1), CorruptData, "a list of 2147483647 in 12 bytes"),
        (None, None, struct.pack(">ihh", 0, 0, 30_000), CorruptData, "30000 bytes are announced and 0 remain"),
        (None, None, struct.pack(">ihh", 0, 0, -2), CorruptData, "-2 bytes are announced"),
        (None, None, struct.pack(">ihh", 0, 0, 1) + b"\xff", CorruptData, "a text that is not UTF-8"),
        (None, None, struct.pack(">ihhi", 0, 42, -1, 0), CorruptData, "failed with error code 42"),
    ],
)
def test_a_hostile_answer_is_an_error_of_the_project(
    fake: FakeBroker, length: int | None, cut: int | None, body: bytes, kind: type[TieredStorageError], text: str
) -> None:
    """Memory does not grow with what is announced, and no answer makes the agent wait beyond its time."""
    fake.follow({VERSIONS: (None, None, SERVED), QUOTAS_API: (length, cut, body)})
    with plain(fake.port, 0.5) as connection, pytest.raises(kind, match=text):
        describe_client_quotas(connection)


@pytest.mark.parametrize("size", range(len(SERVED)))
def test_a_truncated_first_answer_is_an_error_of_the_project(fake: FakeBroker, size: int) -> None:
    """Each beginning of a healthy answer is malformed at its end."""
    fake.follow({VERSIONS: (None, None, SERVED[:size])})
    with pytest.raises(CorruptData, match=r"the response to API_VERSIONS.* is malformed"):
        plain(fake.port)


def served_once(answer: Callable[[bytes], bytes]) -> int:
    """Serve one connection: answer each frame until an answer is empty; return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, connection.makefile("rb") as stream:
            while (head := stream.read(4)) and (sent := answer(stream.read(struct.unpack(">i", head)[0]))):
                connection.sendall(sent)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def test_an_answer_to_another_request_is_rejected_and_ends_the_connection() -> None:
    """A late answer must not pass for that of the next request."""

    def answer(request: bytes) -> bytes:
        api, _, number = struct.unpack_from(">hhi", request)
        body = SERVED if api == VERSIONS else b""
        return struct.pack(">ii", 4 + len(body), number if api == VERSIONS else number - 1) + body

    with plain(served_once(answer)) as connection:
        with pytest.raises(CorruptData, match="it answers request 1; request 2 was sent"):
            connection.request(Api.DESCRIBE_CLIENT_QUOTAS, 0, QUOTAS)
        with pytest.raises(NoAnswer):
            connection.request(Api.DESCRIBE_CLIENT_QUOTAS, 0, QUOTAS)


def test_a_broker_that_does_not_listen_or_that_ends_the_connection_gave_no_answer() -> None:
    """Both are errors that can end by themselves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswer, match=f"broker at 127.0.0.1:{port}: no connection"):
        plain(port)
    with pytest.raises(NoAnswer, match="it ended the connection"):
        plain(served_once(lambda _: b""))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: GSSAPI; supported are PLAIN"),
        ({"security.protocol": "kerberos"}, "security.protocol: 'kerberos'; expected one of plaintext"),
        ({"bootstrap.servers": "broker"}, "bootstrap.servers: 'broker' is not host:port"),
        ({"security.protocol": "ssl", "ssl.crl.location": "x"}, "ssl.crl.location: not supported"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/none"}, "TLS: a file or text .* is not usable"),
        (
            {"security.protocol": "ssl", "ssl.keystore.location": "/none", "ssl.keystore.password": STORE_PASSWORD},
            "it cannot be read",
        ),
    ],
)
def test_a_setting_that_this_connection_lacks_is_named(given: Mapping[str, str], text: str) -> None:
    """What librdkafka supports and this connection does not is an error, and never ignored."""
    with pytest.raises(ConfigurationError, match=text) as refused:
        security_of({"bootstrap.servers": "localhost:9092", **given}, read_key_store=read_key_store)
    assert STORE_PASSWORD not in str(refused.value)


def test_a_key_store_that_no_caller_can_read_is_named() -> None:
    """`tsctl` reads no PKCS#12: a connection without its certificate would be another identity."""
    given = {"bootstrap.servers": "localhost:9092", "security.protocol": "ssl", "ssl.keystore.location": "/own.p12"}
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore\.location: not supported"):
        security_of(given)


def test_certificates_and_keys_may_be_texts(secured_kraft: LocalCluster, tmp_path: Path) -> None:
    """The settings `*.pem`, as a broker's file can have them, and files in PEM."""
    broker = secured_kraft.brokers[1].properties
    own = Path(broker["listener.name.secret.ssl.keystore.location"]).read_text()
    key, _, certificate = own.partition("-----BEGIN CERTIFICATE")
    address = {**settings(secured_kraft, "MUTUAL")}
    address = {name: value for name, value in address.items() if not name.startswith("ssl.")}
    texts = {
        "ssl.ca.pem": Path(broker["ssl.truststore.location"]).read_text(),
        "ssl.key.pem": key,
        "ssl.certificate.pem": f"-----BEGIN CERTIFICATE{certificate}",
    }
    (tmp_path / "own.pem").write_text(own)
    files = {
        "ssl.ca.location": broker["ssl.truststore.location"],
        "ssl.key.location": str(tmp_path / "own.pem"),
        "ssl.certificate.location": str(tmp_path / "own.pem"),
    }
    for given in (texts, files):
        BrokerConnection(security_of({**address, **given}, read_key_store=read_key_store), SECONDS).close()
