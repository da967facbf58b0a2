"""The keys of a cluster's file for the connection to ZooKeeper, with the texts of the reference page.

Most replace the broker's setting of that name below `zookeeper.` (Kafka's `ZkConfigs`). The others replace flags of the
broker's JVM: a JAAS file, and passwords that no broker setting contains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.suggestions import nearest

PREFIX: Final = "ts.segment.uploader.zookeeper."


@dataclass(frozen=True, slots=True)
class ZookeeperOption:
    """One key.

    Attributes:
        name: the key without `PREFIX`.
    """

    name: str
    doc: str


_PASSWORD = "Its password. No error, log line or page shows it."  # noqa: S105  (the text of a page)
_PASSWORD_FILE = "A file with its password; read at each connection."  # noqa: S105  (the text of a page)

OPTIONS = (
    ZookeeperOption("ssl.client.enable", "true or false: whether the connection uses TLS."),
    ZookeeperOption("ssl.truststore.location", "The file with the authorities that may sign ZooKeeper's certificate."),
    ZookeeperOption("ssl.truststore.type", "PEM, JKS or PKCS12; absent: by the ending .pem, .jks or .p12."),
    ZookeeperOption("ssl.truststore.password", _PASSWORD),
    ZookeeperOption("ssl.truststore.password.file", _PASSWORD_FILE),
    ZookeeperOption("ssl.keystore.location", "The file with the agent's own certificate and key, for mutual TLS."),
    ZookeeperOption("ssl.keystore.type", "PEM, JKS or PKCS12; absent: by the ending .pem, .jks or .p12."),
    ZookeeperOption("ssl.keystore.password", _PASSWORD),
    ZookeeperOption("ssl.keystore.password.file", _PASSWORD_FILE),
    ZookeeperOption("ssl.protocol", "TLSv1.2 (the default) or TLSv1.3, where ssl.enabled.protocols is absent."),
    ZookeeperOption("ssl.enabled.protocols", "TLSv1.2, TLSv1.3 or both, separated by commas."),
    ZookeeperOption("ssl.cipher.suites", "Java's names of cipher suites of TLS 1.2, separated by commas."),
    ZookeeperOption(
        "ssl.endpoint.identification.algorithm",
        "https (the default): the certificate must name the host. Empty: the agent does not compare the two.",
    ),
    ZookeeperOption("ssl.crl.enable", "Only false: the agent reads no revocation lists."),
    ZookeeperOption("ssl.ocsp.enable", "Only false: the agent sends no OCSP requests."),
    ZookeeperOption(
        "jaas.file",
        "The broker's JAAS file, as in its flag -Djava.security.auth.login.config.",
    ),
    ZookeeperOption("jaas.section", "The section of that file; absent: Client."),
    ZookeeperOption("sasl.mechanism", "DIGEST-MD5 or GSSAPI (Kerberos); absent: as in the JAAS file, else DIGEST-MD5."),
    ZookeeperOption("sasl.username", "The user, with DIGEST-MD5 and without a JAAS file."),
    ZookeeperOption("sasl.password", "The user's password. No error, log line or page shows it."),
    ZookeeperOption("sasl.password.file", "A file with the user's password; read at each connection."),
    ZookeeperOption("sasl.principal", "The Kerberos principal, with GSSAPI; absent: the ticket cache's."),
    ZookeeperOption("sasl.keytab", "The principal's keytab; absent: the ticket cache of the environment."),
    ZookeeperOption("sasl.service", "ZooKeeper's own service name in Kerberos; absent: zookeeper."),
)
NAMES: Final = frozenset(option.name for option in OPTIONS)
SECRETS: Final = frozenset(name for name in NAMES if name.endswith(".password"))


def options_of(properties: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the ZooKeeper options in a cluster's properties, by name without `PREFIX`.

    Args:
        properties: the content of the cluster's file.
        problems: receives one message for each unknown key.
    """
    found = {}
    for name, value in _below_prefix(properties):
        if name in NAMES:
            found[name] = value
        else:
            problems.append(f"{PREFIX}{name}: unknown key{nearest(name, NAMES, PREFIX)}")
    return found


def _below_prefix(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        if key.startswith(PREFIX):
            yield key.removeprefix(PREFIX), value.strip()
