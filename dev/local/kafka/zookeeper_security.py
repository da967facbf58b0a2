"""TLS and SASL for a local ZooKeeper, and the key stores of ZooKeeper, brokers and agents.

stores = KeyStores(directory)                 an authority, certificates, and each of them as PEM, JKS and PKCS12
secured = ZooKeeperSecurity(stores.server, stores.trust["PKCS12"], users={"kafka": "secret"})
ZooKeeper(data, logs, secured)                `secure_connect` is its port with TLS, `connect` the one without
broker_properties(...), jaas_flag(...)        for a real broker that connects with it
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dev.local.certificates import Certificates
from dev.local.jdk import program
from dev.local.jvm import FAST_START

PASSWORD = "store secret"
TYPES = ("PEM", "JKS", "PKCS12")
_ENDINGS = {"PEM": "pem", "JKS": "jks", "PKCS12": "p12"}
# ZooKeeper's default has no cipher of TLS 1.3.
_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
)
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


class _Stores(dict[str, Path]):
    """Paths of stores by type; each store is written when it is first requested, since a `keytool` is a JVM."""

    def __init__(self, write: Callable[[str], Path]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, kind: str) -> Path:
        self[kind] = self._write(kind)
        return self[kind]


class KeyStores:
    """Key stores and trust stores of each type, written by `keytool` and OpenSSL.

    Attributes:
        certificates: the certificates in them.
        trust: by type, a trust store with the authority.
        client: by type, a key store of a client.

    Args:
        directory: an existing directory for the files.
        server_hosts: the hosts in the server's certificate; None: loopback and localhost.
        server_expired: whether the server's certificate expired yesterday.
    """

    def __init__(
        self, directory: Path, server_hosts: tuple[str, ...] | None = None, *, server_expired: bool = False
    ) -> None:
        self._directory = directory
        self.certificates = Certificates(directory, server_hosts, server_expired=server_expired)
        self.trust = _Stores(self._trust_store)
        self.client = self.key_stores("client", self.certificates.client, self.certificates.client_key)

    @cached_property
    def server(self) -> Path:
        """A PKCS12 key store of the server."""
        return self.key_stores("server", self.certificates.server, self.certificates.server_key)["PKCS12"]

    def key_stores(self, name: str, certificate: Path, key: Path) -> Mapping[str, Path]:
        """Return a key store of each type; the key in it has the store's password."""

        def openssl(*arguments: str) -> bytes:
            command = ["openssl", *arguments, "-passout", f"pass:{PASSWORD}"]
            return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

        def write(kind: str) -> Path:
            path = self._directory / f"{name}-store.{_ENDINGS[kind]}"
            if kind == "PEM":
                text = openssl("pkcs8", "-topk8", "-in", str(key), "-v2", "aes-256-cbc")
                path.write_bytes(text + certificate.read_bytes())
            elif kind == "PKCS12":
                source = ["-inkey", str(key), "-in", str(certificate), "-name", name]
                openssl("pkcs12", "-export", *source, "-out", str(path))
            else:
                of = ["-srckeystore", str(found["PKCS12"]), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
                to = ["-destkeystore", str(path), "-deststoretype", kind, "-deststorepass", PASSWORD]
                _keytool("-importkeystore", *of, *to)
            return path

        found = _Stores(write)
        return found

    def _trust_store(self, kind: str) -> Path:
        authority = self.certificates.authority
        if kind == "PEM":
            return authority
        path = self._directory / f"trust.{_ENDINGS[kind]}"
        source = ["-file", str(authority), "-alias", "authority"]
        _keytool("-importcert", *source, "-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD)
        return path


def _keytool(*arguments: str) -> None:
    keytool = str(Path(program("java")).with_name("keytool"))
    options = [f"-J{option}" for option in FAST_START]
    subprocess.run([keytool, *options, *arguments, "-noprompt"], check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """The security settings of a ZooKeeper.

    Attributes:
        key_store: PKCS12, of the server; None: no port with TLS.
        trust_store: PKCS12, with the authority of its clients.
        client_auth: whether a client needs a certificate: "none", "want" or "need".
        users: passwords by name, for DIGEST-MD5; empty: no SASL, unless `jaas` is given.
        jaas: a section Server of the caller's own.
        requires_sasl: whether a session without SASL is closed.
        options: further options of its JVM.
    """

    key_store: Path | None = None
    trust_store: Path | None = None
    client_auth: str = "none"
    users: Mapping[str, str] = field(default_factory=dict)
    jaas: str = ""
    requires_sasl: bool = False
    options: tuple[str, ...] = ()

    def configuration(self, host: str, secure_port: int) -> str:
        """Return the lines of `zoo.cfg`."""
        lines = []
        if self.key_store is not None:
            lines += [
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"secureClientPort={secure_port}",
                f"secureClientPortAddress={host}",
                f"ssl.keyStore.location={self.key_store}",
                f"ssl.keyStore.password={PASSWORD}",
                "ssl.keyStore.type=PKCS12",
                f"ssl.clientAuth={self.client_auth}",
                "ssl.protocol=TLSv1.3",
                "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
                f"ssl.ciphersuites={','.join(_SUITES)}",
            ]
        if self.trust_store is not None:
            lines += [
                f"ssl.trustStore.location={self.trust_store}",
                f"ssl.trustStore.password={PASSWORD}",
                "ssl.trustStore.type=PKCS12",
            ]
        if self.users or self.jaas:
            lines.append("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        if self.requires_sasl:
            lines += ["sessionRequireClientSASLAuth=true", "enforce.auth.enabled=true", "enforce.auth.schemes=sasl"]
        return "".join(f"{line}\n" for line in lines)

    def server_jaas(self) -> str:
        """Return the server's JAAS file; empty without SASL."""
        if self.jaas or not self.users:
            return self.jaas
        users = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in self.users.items())
        return f"Server {{ {_DIGEST} required {users}; }};\n"


def client_jaas(user: str, password: str) -> str:
    """Return a broker's JAAS file for ZooKeeper."""
    return f'Client {{\n  {_DIGEST} required\n  username="{user}"\n  password="{_quoted(password)}";\n}};\n'


def broker_properties(
    connect: str, trust_store: Path, key_store: Path | None = None, kind: str = "PKCS12"
) -> dict[str, str]:
    """Return the settings of a broker's file for TLS to ZooKeeper."""
    properties = {
        "zookeeper.connect": connect,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": str(trust_store),
    }
    if trust_store.suffix != ".pem":
        properties["zookeeper.ssl.truststore.password"] = PASSWORD
    if key_store is not None:
        properties["zookeeper.ssl.keystore.location"] = str(key_store)
        properties["zookeeper.ssl.keystore.password"] = PASSWORD
        properties["zookeeper.ssl.keystore.type"] = kind
    return properties


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
