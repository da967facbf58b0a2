"""TLS and SASL to ZooKeeper, from the broker's own `server.properties` and the cluster's file.

The names and defaults are those of Kafka's `ZkConfigs`; the agent connects as the local broker does. A key of the
cluster's file (`ts_common.config.zookeeper_options`) replaces the broker's setting of that name. A broker has its SASL
login, and sometimes its stores, in flags of its JVM. No other process can read these, so the cluster's file names them.

ZooKeeper reads a store's type from a setting, else from the file's ending (its `KeyStoreFileType`).

A setting that the agent does not support is a problem that names the key to give instead. No message contains a
password.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ts_common.config.zookeeper_options import PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.zookeeper.jaas import JaasEntry, JaasError, parse_jaas

BROKERS = "zookeeper."  # the prefix of these settings in the broker's file
SOURCE = "the connection to ZooKeeper"
DIGEST, GSSAPI = "DIGEST-MD5", "GSSAPI"
_FROM_PROVIDER = re.compile(r"\$\{[^}]*\}")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FORMER = {"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"}
_DIGEST_MODULE, _KERBEROS_MODULE = "DigestLoginModule", "Krb5LoginModule"


class StoreType(StrEnum):
    """The types of stores that the agent reads; ZooKeeper reads BCFKS as well."""

    PEM = "PEM"
    JKS = "JKS"
    PKCS12 = "PKCS12"


ENDINGS = {".pem": StoreType.PEM, ".jks": StoreType.JKS, ".p12": StoreType.PKCS12}


@dataclass(frozen=True, slots=True)
class Secret:
    """A password, or the file that contains it.

    Attributes:
        key: of the setting, for messages.
        value: the password, if no file is named.
    """

    key: str
    value: str = field(default="", repr=False)
    file: Path | None = None

    def read(self) -> str:
        """Return the password, without a line end at the end of its file.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        if self.file is None:
            return self.value
        return _text_of(self.file, self.key).rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or trust store.

    Attributes:
        key: of its location, for messages.
    """

    key: str
    path: Path
    kind: StoreType
    password: Secret


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to ZooKeeper.

    Attributes:
        truststore: whose certificates are trusted; None: the authorities that this host trusts.
        keystore: the agent's own certificate; None: it presents no certificate.
        versions: the versions of TLS, without a gap.
        ciphers: Java's names of the cipher suites of TLS 1.2; empty: OpenSSL's choice.
        names_hosts: whether the certificate must name the host.
    """

    truststore: Store | None
    keystore: Store | None
    versions: tuple[ssl.TLSVersion, ...]
    ciphers: tuple[str, ...]
    names_hosts: bool


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials as they are at this moment.

    Attributes:
        mechanism: `DIGEST` or `GSSAPI`.
        username, password: with `DIGEST`.
        principal, keytab: with `GSSAPI`; empty: those of the ticket cache.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    principal: str = ""
    keytab: str = ""


@dataclass(frozen=True, slots=True)
class Sasl:
    """SASL to ZooKeeper.

    Attributes:
        given: by keys of the cluster's file; they have precedence over the JAAS file.
        password: by these keys; None without one.
        jaas: the broker's JAAS file; None without one.
        service: ZooKeeper's name in Kerberos.
    """

    given: Login
    password: Secret | None
    jaas: Path | None
    section: str
    service: str

    def read(self) -> Login:
        """Return the credentials that the files contain now.

        Raises:
            ConfigurationError: a file cannot be read, or has no usable credentials.
        """
        jaas = Login("") if self.jaas is None else _login(self.jaas, self.section)
        mechanism = self.given.mechanism or jaas.mechanism or DIGEST
        if mechanism == GSSAPI:
            principal, keytab = self.given.principal or jaas.principal, self.given.keytab or jaas.keytab
            return Login(GSSAPI, principal=principal, keytab=keytab)
        username = self.given.username or jaas.username
        password = jaas.password if self.password is None else self.password.read()
        missing = [
            f"{PREFIX}sasl.{name}" for name, value in (("username", username), ("password", password)) if not value
        ]
        if missing:
            raise ConfigurationError(SOURCE, [f"{key}: absent or empty; {DIGEST} needs it" for key in missing])
        return Login(DIGEST, username, password)


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and SASL of a connection; neither by default.

    Attributes:
        tls: None: without TLS.
        sasl: None: without SASL.
    """

    tls: Tls | None = None
    sasl: Sasl | None = None


def security_of(properties: Mapping[str, str], overrides: Mapping[str, str]) -> Security:
    """Return the security settings of the broker's file and the cluster's; no file is opened.

    Args:
        overrides: of the cluster's file, by the names of `ts_common.config.zookeeper_options`.

    Raises:
        ConfigurationError: a setting is invalid or unsupported; it lists all problems.
    """
    reader = _Reader(properties, overrides)
    security = Security(reader.tls(), reader.sasl())
    if reader.problems:
        raise ConfigurationError(SOURCE, reader.problems)
    return security


class _Reader:
    """Reads both files, and collects `problems`."""

    def __init__(self, properties: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._properties = properties
        self._overrides = overrides

    def tls(self) -> Tls | None:
        if not self._switch("ssl.client.enable"):
            return None
        socket = self._properties.get(f"{BROKERS}clientCnxnSocket", "").strip()
        if "ssl.client.enable" not in self._overrides and socket.endswith("ClientCnxnSocketNIO"):
            self.problems.append(
                f"{BROKERS}clientCnxnSocket={socket}: this class has no TLS, and {BROKERS}ssl.client.enable is true; "
                f"name org.apache.zookeeper.ClientCnxnSocketNetty, or give {PREFIX}ssl.client.enable"
            )
        for name in ("ssl.crl.enable", "ssl.ocsp.enable"):
            if self._switch(name):
                self.problems.append(
                    f"{self._key(name)}=true: the agent cannot check whether a certificate was revoked; to connect "
                    f"without that, give {PREFIX}{name}=false"
                )
        algorithm = self._value("ssl.endpoint.identification.algorithm", "https")
        return Tls(
            truststore=self._store("truststore"),
            keystore=self._store("keystore"),
            versions=self._versions(),
            ciphers=tuple(self._listed("ssl.cipher.suites")),
            names_hosts=algorithm.lower() == "https",
        )

    def sasl(self) -> Sasl | None:
        given = {name for name in self._overrides if name.startswith(("sasl.", "jaas."))}
        if not given:
            return None
        mechanism = self._overrides.get("sasl.mechanism", "").upper()
        if mechanism not in {"", DIGEST, GSSAPI}:
            self.problems.append(f"{PREFIX}sasl.mechanism={mechanism}: ZooKeeper supports {DIGEST} and {GSSAPI}")
        if {"sasl.principal", "sasl.keytab"} & given:
            mechanism = mechanism or GSSAPI
        jaas = self._overrides.get("jaas.file", "")
        login = Login(
            mechanism,
            username=self._overrides.get("sasl.username", ""),
            principal=self._overrides.get("sasl.principal", ""),
            keytab=self._overrides.get("sasl.keytab", ""),
        )
        return Sasl(
            given=login,
            password=self._secret("sasl.password"),
            jaas=Path(jaas) if jaas else None,
            section=self._overrides.get("jaas.section", "") or "Client",
            service=self._overrides.get("sasl.service", "") or "zookeeper",
        )

    def _store(self, which: str) -> Store | None:
        name = f"ssl.{which}.location"
        location = self._value(name)
        if not location:
            return None
        path, kind = Path(location), self._value(f"ssl.{which}.type").upper()
        if kind and kind not in set(StoreType):
            accepted = ", ".join(StoreType)
            self.problems.append(
                f"{self._key(f'ssl.{which}.type')}={kind}: the agent reads {accepted}; convert the store"
            )
        elif not kind and path.suffix not in ENDINGS:
            self.problems.append(
                f"{self._key(name)}={location}: no type, and not one of the endings {', '.join(ENDINGS)}; give "
                f"{PREFIX}ssl.{which}.type"
            )
        else:
            secret = self._secret(f"ssl.{which}.password") or Secret(self._key(f"ssl.{which}.password"))
            return Store(self._key(name), path, StoreType(kind) if kind else ENDINGS[path.suffix], secret)
        return None

    def _versions(self) -> tuple[ssl.TLSVersion, ...]:
        """Return the versions of TLS, without those before 1.2 if a later one is named too."""
        name = "ssl.enabled.protocols" if self._listed("ssl.enabled.protocols") else "ssl.protocol"
        named = self._listed(name) or ["TLSv1.2"]
        if named == ["TLS"]:
            named = list(_VERSIONS)
        unknown = [each for each in named if each not in _VERSIONS and each not in _FORMER]
        found = tuple(version for text, version in _VERSIONS.items() if text in named)
        if unknown or not found:
            self.problems.append(
                f"{self._key(name)}={','.join(unknown or named)}: the agent speaks {' and '.join(_VERSIONS)}; give "
                f"{PREFIX}{name}"
            )
        return found

    def _secret(self, name: str) -> Secret | None:
        file = self._overrides.get(f"{name}.file", "")
        if file:
            if name in self._overrides:
                self.problems.append(f"{PREFIX}{name}: {PREFIX}{name}.file is given as well; drop one of the two")
            return Secret(f"{PREFIX}{name}.file", file=Path(file))
        value = self._value(name) if name.startswith("ssl.") else self._overrides.get(name)
        if value is None or (not value and name.startswith("sasl.")):
            return None
        if _FROM_PROVIDER.search(value):
            self.problems.append(
                f"{self._key(name)}: only a config provider of the broker has its value; give {PREFIX}{name}.file"
            )
        return Secret(self._key(name), value)

    def _switch(self, name: str) -> bool:
        value = self._value(name, "false").lower()
        if value not in {"true", "false"}:
            self.problems.append(f"{self._key(name)}={value}: expected true or false")
        return value == "true"

    def _listed(self, name: str) -> Sequence[str]:
        return [part.strip() for part in self._value(name).split(",") if part.strip()]

    def _value(self, name: str, absent: str = "") -> str:
        found = self._overrides.get(name, self._properties.get(BROKERS + name))
        return absent if found is None else found.strip()

    def _key(self, name: str) -> str:
        return (PREFIX if name in self._overrides else BROKERS) + name


def _login(path: Path, section: str) -> Login:
    """Return the login of ZooKeeper's client in a section of a JAAS file."""
    key = f"{PREFIX}jaas.file"
    try:
        sections = parse_jaas(_text_of(path, key))
    except JaasError as error:
        raise ConfigurationError(SOURCE, [f"{key}={path}: {error}"]) from None
    entries = sections.get(section, ())
    if not entries:
        there = ", ".join(sorted(sections)) or "nothing"
        raise ConfigurationError(
            SOURCE, [f"{key}={path}: no section {section}; found {there}; give {PREFIX}jaas.section"]
        )
    for entry in entries:
        if entry.module.endswith(_DIGEST_MODULE):
            return Login(DIGEST, entry.options.get("username", ""), entry.options.get("password", ""))
        if entry.module.endswith(_KERBEROS_MODULE):
            return _kerberos(entry)
    modules = ", ".join(entry.module for entry in entries)
    raise ConfigurationError(
        SOURCE,
        [f"{key}={path}: section {section} has {modules}; supported are {_DIGEST_MODULE} and {_KERBEROS_MODULE}"],
    )


def _kerberos(entry: JaasEntry) -> Login:
    options = entry.options
    keytab = options.get("keyTab", "") if options.get("useKeyTab", "").lower() == "true" else ""
    return Login(GSSAPI, principal=options.get("principal", ""), keytab=keytab.removeprefix("file:"))


def _text_of(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(SOURCE, [f"{key}={path}: it cannot be read: {why}"]) from error
