"""Leadership from a real ZooKeeper over TLS: stores of each type, rejections, and renewed certificates."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.kafka.zookeeper_security import PASSWORD, TYPES, KeyStores, ZooKeeperSecurity, broker_properties
from dev.local.waiting import wait_for
from tests.matrix import cases
from tests.uploader.leadership.zookeeper.listening_zookeeper import (
    NEVER,
    TP,
    Listen,
    Quick,
    create_topic,
    errors_of,
    listen,
    opened,
    wait_trouble,
)
from ts_common.errors import ConfigurationError
from ts_uploader.findings import Severity

__all__ = ["listen"]  # a fixture


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> KeyStores:
    return KeyStores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, stores: KeyStores) -> Iterator[ZooKeeper]:
    """A ZooKeeper that requires a client certificate."""
    directory = tmp_path_factory.mktemp("zookeeper")
    security = ZooKeeperSecurity(stores.server, stores.trust["PKCS12"], client_auth="need")
    with ZooKeeper(directory / "data", directory, security) as server:
        create_topic(server)
        yield server


@pytest.mark.parametrize("kind", cases(TYPES, quick=["PKCS12"]))
def test_stores_of_each_type(zookeeper: ZooKeeper, stores: KeyStores, listen: Listen, kind: str) -> None:
    """A broker's own file is enough: leadership is reported, and `check` finds nothing to do."""
    connect = zookeeper.secure_connect
    properties = broker_properties(connect, stores.trust[kind], stores.client[kind], kind)
    listener = listen(connect, properties)
    listener.wait_leadership(TP, 7, "id")
    assert listener.source.connected
    assert listener.source.trouble is None
    said = [each for each in opened(connect, properties).examine(frozenset({"t"})) if "key store" not in each.about]
    assert {finding.severity for finding in said} == {Severity.OK, Severity.HINT}


def test_the_clusters_keys_replace_a_jvms_flags(zookeeper: ZooKeeper, stores: KeyStores, listen: Listen) -> None:
    """A broker whose file has no TLS settings: all of them are given by keys, with passwords in a file."""
    secret = stores.server.with_name("secret")
    secret.write_text(PASSWORD + "\n")
    overrides = {
        "ssl.client.enable": "true",
        "ssl.truststore.location": str(stores.trust["JKS"]),
        "ssl.truststore.password.file": str(secret),
        "ssl.keystore.location": str(stores.client["PKCS12"]),
        "ssl.keystore.password.file": str(secret),
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    }
    listen(zookeeper.secure_connect, {}, overrides).wait_leadership(TP, 7, "id")


def test_no_first_warning_where_zookeeper_answers(zookeeper: ZooKeeper, listen: Listen) -> None:
    """In its first milliseconds a client has no session, and that is no failure."""
    with capture_logs() as logs:
        listen(zookeeper.connect, {}).wait_leadership(TP, 7, "id")
    assert [entry["event"] for entry in logs] == ["zookeeper_connected"]


def test_a_session_that_is_lost_is_warned_of_at_once(
    zookeeper: ZooKeeper, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZooKeeper that has answered before has no grace period, however soon it answers again."""
    monkeypatch.setattr(Quick, "grace_seconds", NEVER)
    listener = listen(zookeeper.connect, {})
    listener.wait_leadership(TP, 7, "id")
    with capture_logs() as logs:
        zookeeper.pause()
        try:  # on a slow machine the agent restarts the client first, and logs that too
            wait_for(lambda: [entry for entry in logs if "reason" in entry], "the warning")
        finally:
            zookeeper.resume()
        wait_for(lambda: listener.source.connected, "the session")
    first = next(entry for entry in logs if "reason" in entry)
    assert (first["log_level"], first["reason"]) == ("warning", "the session was lost")


def test_an_unreachable_zookeeper_causes_a_warning_with_its_reason(listen: Listen) -> None:
    """One warning for each reason, however many attempts fail, and without waiting for the grace period."""
    with capture_logs() as logs:
        listener = listen("127.0.0.1:9,localhost:9", {})
        wait_trouble(listener, "Connection refused")
        wait_for(lambda: len(logs) == 2, "both reasons", state=lambda: logs)
        listener.close()
    assert {entry["reason"] for entry in logs} == {
        "127.0.0.1:9: Connection refused",
        "localhost:9: Connection refused",
    }


def test_the_hosts_authorities_count_only_without_a_trust_store(
    zookeeper: ZooKeeper, stores: KeyStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a trust store is named that lacks it, a certificate that the host trusts is not enough."""
    monkeypatch.setenv("SSL_CERT_FILE", str(stores.certificates.authority))
    connect, own = zookeeper.secure_connect, stores.client["PKCS12"]
    properties = broker_properties(connect, KeyStores(tmp_path).trust["PEM"], own)
    (error,) = errors_of(connect, properties)
    assert "its certificate is not trusted" in error
    del properties["zookeeper.ssl.truststore.location"]
    assert errors_of(connect, properties) == []


def test_another_authority_is_not_trusted(zookeeper: ZooKeeper, listen: Listen, tmp_path: Path) -> None:
    """Neither one of another store nor the host's is accepted; the agent has the reason, and `check` the way out."""
    others = KeyStores(tmp_path)
    connect = zookeeper.secure_connect
    for properties in (
        broker_properties(connect, others.trust["PEM"], others.client["PEM"], "PEM"),
        {"zookeeper.ssl.client.enable": "true"},
    ):
        (error,) = errors_of(connect, properties)
        assert error.startswith(f"{connect}: its certificate is not trusted")
        assert "the trust store has to hold the authority" in error
    listener = listen(connect, broker_properties(connect, others.trust["PEM"], others.client["PEM"], "PEM"))
    wait_trouble(listener, "its certificate is not trusted")


@pytest.mark.parametrize("version", cases(["TLSv1.2", "TLSv1.3"], quick=["TLSv1.3"]))
def test_a_client_without_a_trusted_certificate_is_refused(
    zookeeper: ZooKeeper, stores: KeyStores, tmp_path: Path, version: str
) -> None:
    """No certificate, or one of another authority: the alert is reported, which TLS 1.3 sends after the handshake."""
    others = KeyStores(tmp_path)
    for own in (None, others.client["PKCS12"]):
        properties = broker_properties(zookeeper.secure_connect, stores.trust["JKS"], own)
        (error, *_) = errors_of(zookeeper.secure_connect, properties, {"ssl.protocol": version})
        assert "it rejects the TLS connection (" in error
        assert "ssl.keystore.*" in error


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param(
            {"server_expired": True},
            "its certificate is not valid now (certificate has expired)",
            marks=pytest.mark.full,
        ),
        ({"server_hosts": ("elsewhere.example",)}, "its certificate names neither this host nor its address"),
    ],
)
def test_a_certificate_that_does_not_fit_its_server(made: Mapping[str, object], said: str, tmp_path: Path) -> None:
    """Expired, or of another host: an error with the way out; only a name may be ignored, by a setting."""
    (tmp_path / "stores").mkdir()
    stores = KeyStores(tmp_path / "stores", **made)  # type: ignore[arg-type]
    with ZooKeeper(tmp_path / "data", tmp_path, ZooKeeperSecurity(stores.server)) as server:
        create_topic(server)
        properties = broker_properties(server.secure_connect, stores.trust["PEM"])
        (error,) = errors_of(server.secure_connect, properties)
        assert said in error
        left = {"ssl.endpoint.identification.algorithm": ""}
        assert (errors_of(server.secure_connect, properties, left) == []) == ("server_hosts" in made)


def test_check_reports_settings_that_are_less_secure_than_possible(zookeeper: ZooKeeper, stores: KeyStores) -> None:
    """If brokers have a login and the agent none, that is a hint, as it may suffice; uncompared names are a warning."""
    said = opened(zookeeper.connect, {"zookeeper.set.acl": "true"}).examine(frozenset())
    assert [each.found for each in said if "log in" in each.found] == [
        "zookeeper.set.acl=true: brokers log in to ZooKeeper, and the agent does not"
    ]
    properties = broker_properties(zookeeper.secure_connect, stores.trust["PEM"], stores.client["PKCS12"])
    unnamed = {**properties, "zookeeper.ssl.endpoint.identification.algorithm": ""}
    said = opened(zookeeper.secure_connect, unnamed).examine(frozenset())
    assert any("a certificate of any host is accepted" in each.found for each in said)


def test_a_port_with_tls_is_distinguished_from_one_without(
    zookeeper: ZooKeeper, stores: KeyStores, listen: Listen
) -> None:
    """Each is addressed as the other kind: `check` finds which it is, and the agent's reason names the setting."""
    properties = broker_properties(zookeeper.connect, stores.trust["PKCS12"], stores.client["PKCS12"])
    (error,) = errors_of(zookeeper.connect, properties)
    assert "does this port speak TLS (secureClientPort)?" in error
    (error,) = errors_of(zookeeper.secure_connect, {})
    assert error == f"{zookeeper.secure_connect} requires TLS, and zookeeper.ssl.client.enable is not true"
    wait_trouble(listen(zookeeper.secure_connect, {}), "it accepted the connection and gave no session")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"truststore.location": "/nowhere/trust.p12"}, "/nowhere/trust.p12 (PKCS12): it cannot be read: No such file"),
        ({"truststore.password": "hush"}, "the password is wrong, or the file is damaged; its password is from"),
        ({"keystore.password": "hush"}, "zookeeper.ssl.keystore.password"),
        ({"truststore.type": "KEYCHAIN"}, "zookeeper.ssl.truststore.type=KEYCHAIN: the agent reads PEM, JKS, PKCS12"),
        ({"cipher.suites": "TLS_RSA_WITH_NULL_SHA"}, "OpenSSL has none of these"),
    ],
)
def test_an_error_that_no_retry_fixes_ends_the_start(stores: KeyStores, change: Mapping[str, str], said: str) -> None:
    """A store that is missing or cannot be opened: a ConfigurationError, exit code 2, for both `run` and `check`."""
    properties = broker_properties("127.0.0.1:9", stores.trust["PKCS12"], stores.client["PKCS12"])
    changed = {f"zookeeper.ssl.{name}": value for name, value in change.items()}
    with pytest.raises(ConfigurationError) as refused:
        opened("127.0.0.1:9", {**properties, **changed})
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.full
def test_renewed_certificates_are_read_with_the_next_connection(listen: Listen, tmp_path: Path) -> None:
    """Another authority for both sides, without a restart of the agent; in between the reason is reported."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    before, after = KeyStores(old), KeyStores(new)
    trust = Path(shutil.copy(before.trust["PKCS12"], tmp_path / "trust.p12"))
    own = Path(shutil.copy(before.client["JKS"], tmp_path / "own.jks"))
    security = ZooKeeperSecurity(before.server, before.trust["PKCS12"], client_auth="need")
    with ZooKeeper(tmp_path / "data", tmp_path, security) as server:
        create_topic(server)
        listener = listen(server.secure_connect, broker_properties(server.secure_connect, trust, own, "JKS"))
        listener.wait_leadership(TP, 7, "id")
        said = len(listener.said)
        server.security = ZooKeeperSecurity(after.server, after.trust["PKCS12"], client_auth="need")
        server.restart()
        wait_trouble(listener, "its certificate is not trusted")
        trust.unlink()  # as a careless renewal does
        wait_trouble(listener, f"{trust} (PKCS12): it cannot be read")
        assert len(listener.said) == said
        shutil.copy(after.trust["PKCS12"], trust)
        shutil.copy(after.client["JKS"], own)
        wait_for(
            lambda: len(listener.said) > said, "the leader to be said again", state=lambda: listener.source.trouble
        )
        wait_for(lambda: listener.source.connected, "the session")
        assert listener.source.trouble is None


def test_an_own_certificate_that_expires_soon_is_reported_in_advance(
    zookeeper: ZooKeeper, stores: KeyStores, tmp_path: Path
) -> None:
    """`check` warns two weeks ahead (these certificates are valid for two days); an expired one is an error."""
    connect, trust = zookeeper.secure_connect, stores.trust["PEM"]
    said = opened(connect, broker_properties(connect, trust, stores.client["PEM"], "PEM")).examine(frozenset())
    (warned,) = [finding for finding in said if finding.severity is Severity.WARNING]
    assert warned.about == f"key store {stores.client['PEM']}"
    assert warned.found.startswith("its certificate expires on ")
    (tmp_path / "expired").mkdir()
    expired = KeyStores(tmp_path / "expired", server_expired=True)
    errors = errors_of(connect, broker_properties(connect, trust, expired.server))
    assert any(error.startswith("its certificate expired on ") for error in errors)
