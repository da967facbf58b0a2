"""A broker's file as settings of a client."""

from collections.abc import Mapping

import pytest

from ts_common.config.cluster_config import KAFKA_CLIENT as PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.kraft.listener import client_settings

HOST = "host.example"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TLS = {"listeners": "SSL://b:9093", "security.inter.broker.protocol": "SSL"}
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
SASL = {
    "listeners": "IN://b:9094",
    "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}
KEY = "listener.name.in.scram-sha-512.sasl.jaas.config"


def settings(properties: Mapping[str, str], **overrides: str) -> dict[str, str]:
    return client_settings(properties, {key.replace("_", "."): value for key, value in overrides.items()}, HOST)


@pytest.mark.parametrize(
    ("properties", "address"),
    [
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, "10.0.0.1:9092"),
        ({"listeners": "PLAINTEXT://:9092"}, f"{HOST}:9092"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, f"{HOST}:9092"),
        ({"listeners": "PLAINTEXT://[::1]:9092, CONTROLLER://:9093"}, "[::1]:9092"),
        ({"listeners": "PLAINTEXT://:1", "advertised.listeners": "PLAINTEXT://b.example:2"}, "b.example:2"),
        ({"listeners": "OUT://:1,IN://:2", "inter.broker.listener.name": "in"}, f"{HOST}:2"),
    ],
)
def test_the_address_is_that_of_the_listener_for_brokers(properties: Mapping[str, str], address: str) -> None:
    """As advertised, by name or by the inter-broker protocol; Kafka's default is PLAINTEXT."""
    properties = {"listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL,PLAINTEXT:PLAINTEXT", **properties}
    assert settings(properties) == {"bootstrap.servers": address, "security.protocol": "plaintext"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),  # Java's trust store, or the system's
        (TRUST, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----A"}, {"ssl.ca.pem": "-----A"}),
        ({"ssl.keystore.location": "/own.jks"}, {}),  # clients need no certificate
        (
            {"ssl.client.auth": "required", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/own.pem"},
            {"ssl.certificate.location": "/own.pem", "ssl.key.location": "/own.pem"},
        ),
        (
            {
                "listener.name.ssl.ssl.client.auth": "requested",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/all.p12",
                "listener.name.ssl.ssl.keystore.location": "/own.p12",
                "ssl.keystore.password": "hush",
            },
            {"ssl.keystore.location": "/own.p12", "ssl.keystore.password": "hush"},
        ),
        (
            {
                "ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": "-----K",
                "ssl.keystore.certificate.chain": "-----C",
                "ssl.key.password": "hush",
            },
            {"ssl.key.pem": "-----K", "ssl.certificate.pem": "-----C", "ssl.key.password": "hush"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_stores_that_librdkafka_reads_are_taken_over(
    properties: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """PEM in files and inline, and PKCS12 for the client's own key; a listener's own setting has precedence."""
    common = {
        "bootstrap.servers": "b:9093",
        "security.protocol": "ssl",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert settings({**TLS, **properties}) == {**common, **expected}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="agent" password="hush";', ("agent", "hush")),
        (r'username=agent password="a \"b\" c\\d; e" user_x="no";', ("agent", r'a "b" c\d; e')),
        ("\n  password='it is'\n  username=agent ;", ("agent", "it is")),
    ],
)
def test_credentials_are_those_of_the_listeners_jaas_entry(options: str, expected: tuple[str, str]) -> None:
    """Quoted or not, in any order, with Java's escapes."""
    found = settings({**SASL, KEY: f"{JAAS} {options}"})
    assert found["security.protocol"] == "sasl_plaintext"
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == ("SCRAM-SHA-512", *expected)


TLS_CLIENT = {**TLS, **TRUST, "ssl.client.auth": "required"}
PROBLEMS = [
    ({}, ["listeners has no inter-broker listener"], {"bootstrap.servers": "b:1"}),
    ({"listeners": "PLAINTEXT:9092"}, ["'PLAINTEXT:9092' is not", "has no"], {"bootstrap.servers": "b:1"}),
    (
        {"listeners": "IN://b:1", "inter.broker.listener.name": "IN"},
        ["'IN' for the listener IN; expected one of"],
        {"security.protocol": "plaintext"},
    ),
    ({**TLS, "ssl.truststore.location": "/t.jks"}, ["/t.jks: unsupported type JKS"], {"ssl.ca.location": "/c"}),
    (
        {**TLS, "ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"},
        ["unsupported type PKCS12"],
        {"ssl.ca.location": "/c"},
    ),
    (
        {**TLS_CLIENT, "ssl.keystore.location": "/k.jks"},
        ["/k.jks: unsupported type JKS"],
        {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
    ),
    (
        {
            **TLS_CLIENT,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": "/k",
            "ssl.keystore.password": "${file:/f:p}",
        },
        ["ssl.keystore.password: it is given by a config provider"],
        {"ssl.keystore.password": "x"},
    ),
    (SASL, [f"{KEY}: its username is missing", "its password"], {"sasl.username": "u", "sasl.password": "p"}),
    (
        {**SASL, KEY: f'{JAAS} username="u" password="${{file:/f:p}}";'},
        [f"{KEY}: its password is given by a config provider"],
        {"sasl.password": "p"},
    ),
    (
        {**SASL, "sasl.mechanism.inter.broker.protocol": "GSSAPI"},
        ["sasl.mechanism.inter.broker.protocol=GSSAPI"],
        {"sasl.mechanism": "OAUTHBEARER"},
    ),
]


@pytest.mark.parametrize(("properties", "texts", "way_out"), PROBLEMS)
def test_a_setting_that_cannot_be_taken_over_is_reported_with_its_solution(
    properties: Mapping[str, str], texts: list[str], way_out: Mapping[str, str]
) -> None:
    """Each problem names its key, and the settings that it names solve it."""
    with pytest.raises(ConfigurationError) as refused:
        client_settings(properties, {}, HOST)
    assert len(refused.value.problems) == len(texts)
    for text in texts:
        assert text in str(refused.value)
    for key in way_out:
        assert PREFIX + key in str(refused.value)
    assert client_settings(properties, way_out, HOST).items() >= way_out.items()


def test_no_problem_contains_a_password() -> None:
    """No problem contains a password, neither the file's nor the operator's."""
    properties = {
        **TLS_CLIENT,
        "ssl.keystore.location": "/k.jks",
        "ssl.keystore.password": "hush-1",
        "ssl.key.password": "hush-2",
    }
    with pytest.raises(ConfigurationError) as refused:
        client_settings(properties, {"sasl.password": "hush-3"}, HOST)
    assert "hush" not in str(refused.value)


def test_the_operators_settings_win() -> None:
    """Settings for librdkafka are passed on unchanged, whatever the file has."""
    found = settings({"listeners": "PLAINTEXT://b:1"}, client_id="own", bootstrap_servers="other:2")
    assert found == {"bootstrap.servers": "other:2", "client.id": "own", "security.protocol": "plaintext"}
