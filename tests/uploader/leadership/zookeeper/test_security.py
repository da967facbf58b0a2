"""The broker's `zookeeper.*` settings together with the cluster's keys, and the settings that are rejected."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.uploader.leadership.zookeeper.jaas_files import JAAS
from ts_common.config.cluster_config import parse_config
from ts_common.config.zookeeper_options import PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.zookeeper.security import Login, Security, StoreType, security_of

TLS = {
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.ssl.truststore.location": "/etc/kafka/trust.p12",
    "zookeeper.ssl.truststore.password": "hush",
}
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def problems(properties: Mapping[str, str], overrides: Mapping[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        security_of(properties, overrides)
    assert "hush" not in str(refused.value)
    return " | ".join(refused.value.problems)


def test_the_agent_connects_without_tls_if_the_broker_does() -> None:
    """Stores alone enable nothing, as on the broker itself."""
    assert security_of({}, {}) == Security()
    assert security_of({**TLS, "zookeeper.ssl.client.enable": "false"}, {}) == Security()


def test_a_brokers_settings_have_kafkas_defaults() -> None:
    """TLS 1.2 only, host names compared, no certificate of its own, and the type by the file's ending."""
    tls = security_of(TLS, {}).tls
    assert tls is not None
    assert (tls.versions, tls.names_hosts, tls.keystore, tls.ciphers) == ((V12,), True, None, ())
    assert tls.truststore is not None
    assert (tls.truststore.kind, tls.truststore.password.read()) == (StoreType.PKCS12, "hush")
    assert "hush" not in repr(tls)


def test_a_clusters_keys_replace_a_brokers_settings(tmp_path: Path) -> None:
    """Each key has precedence by itself; a password file is read again each time, without its line end."""
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    overrides = {
        "ssl.truststore.location": "/mine.store",
        "ssl.truststore.type": "jks",
        "ssl.truststore.password.file": str(secret),
        "ssl.endpoint.identification.algorithm": "",
        "ssl.enabled.protocols": "TLSv1.3, TLSv1.2,TLSv1",
    }
    tls = security_of(TLS, overrides).tls
    assert tls is not None
    assert tls.truststore is not None
    assert (tls.truststore.path, tls.truststore.kind) == (Path("/mine.store"), StoreType.JKS)
    assert (tls.versions, tls.names_hosts) == ((V12, V13), False)
    assert tls.truststore.password.read() == "first"
    secret.write_text("second")
    assert tls.truststore.password.read() == "second"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable=true: the agent cannot check"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, f"give {PREFIX}ssl.ocsp.enable=false"),
        ({"zookeeper.ssl.truststore.type": "BCFKS"}, "zookeeper.ssl.truststore.type=BCFKS: the agent reads PEM"),
        ({"zookeeper.ssl.truststore.location": "/etc/trust.store"}, f"give {PREFIX}ssl.truststore.type"),
        ({"zookeeper.ssl.protocol": "TLSv1.1"}, "zookeeper.ssl.protocol=TLSv1.1: the agent speaks TLSv1.2 and TLSv1.3"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv9"}, "zookeeper.ssl.enabled.protocols=TLSv9"),
        ({"zookeeper.ssl.client.enable": "yes"}, "zookeeper.ssl.client.enable=yes: expected true or false"),
        ({"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, "this class has no TLS"),
        ({"zookeeper.ssl.truststore.password": "${file:/hush:key}"}, f"give {PREFIX}ssl.truststore.password.file"),
    ],
)
def test_what_cannot_be_honoured_is_refused(more: Mapping[str, str], said: str) -> None:
    """The problem names the setting and the key that the operator can give instead, and no password."""
    assert said in problems({**TLS, **more}, {})


def test_a_refusal_of_the_broker_can_be_overridden() -> None:
    """An operator can disable a setting that the agent does not support, by a key."""
    assert security_of({**TLS, "zookeeper.ssl.crl.enable": "true"}, {"ssl.crl.enable": "false"}).tls is not None


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, Login("DIGEST-MD5", "kafka", "hush")),
        ({"sasl.username": "agent"}, Login("DIGEST-MD5", "agent", "hush")),
        ({"jaas.section": "Kerberos"}, Login("GSSAPI", principal="kafka/b1@R", keytab="/etc/kafka.keytab")),
        (
            {"jaas.section": "Kerberos", "sasl.principal": "me"},
            Login("GSSAPI", principal="me", keytab="/etc/kafka.keytab"),
        ),
    ],
)
def test_a_brokers_jaas_file_determines_the_login(
    tmp_path: Path, overrides: Mapping[str, str], expected: Login
) -> None:
    """Its section Client, or another; keys of the cluster's file have precedence, and the module sets the mechanism."""
    (tmp_path / "jaas.conf").write_text(JAAS)
    sasl = security_of({}, {"jaas.file": str(tmp_path / "jaas.conf"), **overrides}).sasl
    assert sasl is not None
    assert sasl.read() == expected
    assert "hush" not in repr((sasl, sasl.read()))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"jaas.section": "Nobody"}, "no section Nobody; found Client, Kerberos, Odd"),
        ({"jaas.section": "Odd"}, "section Odd has com.example.Module"),
        ({"jaas.file": "/nowhere/jaas.conf"}, "/nowhere/jaas.conf: it cannot be read: No such file"),
        ({"sasl.password.file": "/nowhere/secret"}, "sasl.password.file=/nowhere/secret: it cannot be read"),
    ],
)
def test_a_login_that_cannot_be_read_names_its_file(tmp_path: Path, overrides: Mapping[str, str], said: str) -> None:
    """The error also names its key."""
    (tmp_path / "jaas.conf").write_text(JAAS)
    sasl = security_of({}, {"jaas.file": str(tmp_path / "jaas.conf"), **overrides}).sasl
    assert sasl is not None
    with pytest.raises(ConfigurationError) as refused:
        sasl.read()
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)


def test_digest_needs_a_user_and_a_password() -> None:
    """A login that lacks one names its key, at the start and not at the first connection."""
    sasl = security_of({}, {"sasl.username": "agent"}).sasl
    assert sasl is not None
    with pytest.raises(ConfigurationError, match=r"sasl\.password: absent or empty"):
        sasl.read()


def test_unknown_keys_of_the_clusters_file_are_refused() -> None:
    """The error has the most similar valid key, and no value."""
    with pytest.raises(ConfigurationError) as refused:
        parse_config({PREFIX + "sasl.pasword": "hush", PREFIX + "ssl.protocol": "TLSv1.3"}, "c.properties")
    assert f"did you mean {PREFIX}sasl.password?" in str(refused.value)
    assert "hush" not in str(refused.value)
    assert len(refused.value.problems) == 1
