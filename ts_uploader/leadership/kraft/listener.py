"""Derive the client settings for the local broker from the broker's own `server.properties`. Pure.

The agent connects as another broker would: to the inter-broker listener, with the broker's own credentials. The
settings of Kafka's Java clients are passed to librdkafka under its names (its `CONFIGURATION.md`)::

    inter.broker.listener.name, else security.inter.broker.protocol     which listener
    advertised.listeners, else listeners                                bootstrap.servers
    listener.security.protocol.map                                      security.protocol
    ssl.truststore.*                                                    ssl.ca.location, ssl.ca.pem
    ssl.keystore.*, ssl.key.password                                    ssl.certificate.*, ssl.key.*, ssl.keystore.*
    ssl.endpoint.identification.algorithm                               ssl.endpoint.identification.algorithm
    sasl.mechanism.inter.broker.protocol                                sasl.mechanism
    listener.name.<listener>.<mechanism>.sasl.jaas.config               sasl.username, sasl.password

A setting with the prefix `listener.name.<listener>.` has precedence over the one without. librdkafka reads PEM and, for
a client's own key, PKCS12, but not Java's JKS. If a setting cannot be converted, that is a problem that names the
settings to give instead; once the operator gives them, the problem disappears. No problem contains a password.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ts_common.config.cluster_config import KAFKA_CLIENT as PREFIX
from ts_common.errors import ConfigurationError

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>-?[0-9]+)")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# A value of a JAAS option, as Java's StreamTokenizer reads it: quoted with escapes, or a word.
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_FROM_PROVIDER = re.compile(r"\$\{[^}]*\}")


class _Listener(NamedTuple):
    name: str
    host: str
    port: int


def client_settings(properties: Mapping[str, str], overrides: Mapping[str, str], host: str) -> dict[str, str]:
    """Return librdkafka's settings for a client of this broker.

    Args:
        overrides: librdkafka's settings by the operator; they have precedence, and are not checked.
        host: this host's canonical name, which the broker advertises for a listener without a host.

    Raises:
        ConfigurationError: the broker's file does not specify how to connect; it lists all problems.
    """
    reader = _Reader(properties, overrides)
    listener = reader.inter_broker_listener()
    if listener is None:
        if "bootstrap.servers" not in overrides:
            reader.problems.append(
                f"listeners has no inter-broker listener; give {PREFIX}bootstrap.servers and {PREFIX}security.protocol"
            )
    else:
        reader.take_address(listener, host)
        reader.take_security(listener)
    if reader.problems:
        raise ConfigurationError("the connection to the broker, by its own file", reader.problems)
    return {**reader.settings, **overrides}


class _Reader:
    """Reads one broker's file into `settings` and `problems`."""

    def __init__(self, properties: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        self.settings: dict[str, str] = {}
        self.problems: list[str] = []
        self._properties = properties
        self._overrides = overrides
        self._listener_prefix = ""

    def inter_broker_listener(self) -> _Listener | None:
        """Return the inter-broker listener, as it is advertised; None without one."""
        name = self._plain("inter.broker.listener.name")
        protocol = self._plain("security.inter.broker.protocol") or "PLAINTEXT"
        advertised = self._listeners("advertised.listeners")
        for listener in (*advertised, *self._listeners("listeners")):
            # Without a name Kafka uses the listener that has the name of the protocol.
            if listener.name.upper() == (name or protocol).upper():
                self._listener_prefix = f"listener.name.{listener.name.lower()}."
                return listener
        return None

    def take_address(self, listener: _Listener, host: str) -> None:
        """Set `bootstrap.servers`."""
        # Kafka rejects an advertised wildcard, so there is one only if `advertised.listeners` is missing.
        found = host if listener.host in {"", "0.0.0.0", "[::]"} else listener.host  # noqa: S104  (nothing is bound)
        self._set("bootstrap.servers", f"{found}:{listener.port}")

    def take_security(self, listener: _Listener) -> None:
        """Set `security.protocol`, and the settings that it needs."""
        protocols = dict(
            part.strip().upper().split(":", 1)
            for part in self._plain("listener.security.protocol.map").split(",")
            if ":" in part
        )
        protocol = protocols.get(listener.name.upper(), listener.name.upper())
        chosen = self._overrides.get("security.protocol", protocol).upper()
        if chosen not in _PROTOCOLS:
            self.problems.append(
                f"listener.security.protocol.map: {protocol!r} for the listener {listener.name}; expected one of "
                f"{', '.join(_PROTOCOLS)}; or give {PREFIX}security.protocol"
            )
            return
        self._set("security.protocol", chosen.lower())
        if chosen.endswith("SSL"):
            self._take_truststore()
            self._take_keystore(wanted=self._of_listener("ssl.client.auth") in {"required", "requested"})
            # Both Java and librdkafka check host names by default.
            algorithm = self._of_listener("ssl.endpoint.identification.algorithm", absent="https")
            self._set("ssl.endpoint.identification.algorithm", algorithm.lower() or "none")
        if chosen.startswith("SASL"):
            self._take_credentials()

    def _take_truststore(self) -> None:
        if {"ssl.ca.location", "ssl.ca.pem"} & self._overrides.keys():
            return
        location = self._of_listener("ssl.truststore.location")
        kind = (self._of_listener("ssl.truststore.type") or "JKS").upper()
        if certificates := self._secret("ssl.truststore.certificates", "ssl.ca.pem"):
            self._set("ssl.ca.pem", certificates)
        elif location and kind == "PEM":
            self._set("ssl.ca.location", location)
        elif location:
            self.problems.append(
                f"ssl.truststore.location={location}: unsupported type {kind}; export its certificates as PEM (keytool "
                f"-exportcert -rfc) and give {PREFIX}ssl.ca.location"
            )

    def _take_keystore(self, *, wanted: bool) -> None:
        """Set the broker's own certificate as the client's, if the listener requests one from clients."""
        ours = {"ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"}
        if ours & self._overrides.keys() or not wanted:
            return
        location = self._of_listener("ssl.keystore.location")
        kind = (self._of_listener("ssl.keystore.type") or "JKS").upper()
        key = self._secret("ssl.keystore.key", "ssl.key.pem")
        if key:
            self._set("ssl.key.pem", key)
            self._set("ssl.certificate.pem", self._of_listener("ssl.keystore.certificate.chain"))
        elif location and kind == "PEM":  # one file contains the key and its certificates
            self._set("ssl.key.location", location)
            self._set("ssl.certificate.location", location)
        elif location and kind == "PKCS12":
            self._set("ssl.keystore.location", location)
            self._set("ssl.keystore.password", self._secret("ssl.keystore.password", "ssl.keystore.password"))
            return
        elif location:
            self.problems.append(
                f"ssl.keystore.location={location}: unsupported type {kind}; convert it to PKCS12 "
                f"(keytool -importkeystore -deststoretype PKCS12) and give {PREFIX}ssl.keystore.location and "
                f"{PREFIX}ssl.keystore.password"
            )
        self._set("ssl.key.password", self._secret("ssl.key.password", "ssl.key.password"))

    def _take_credentials(self) -> None:
        mechanism = self._plain("sasl.mechanism.inter.broker.protocol") or "GSSAPI"
        mechanism = self._overrides.get("sasl.mechanism", self._overrides.get("sasl.mechanisms", mechanism)).upper()
        if mechanism not in _PASSWORD_MECHANISMS:
            if not {"sasl.mechanism", "sasl.mechanisms"} & self._overrides.keys():
                self.problems.append(
                    f"sasl.mechanism.inter.broker.protocol={mechanism}: only credentials of "
                    f"{', '.join(_PASSWORD_MECHANISMS)} can be read from it; give {PREFIX}sasl.mechanism and the rest"
                )
            return
        self._set("sasl.mechanism", mechanism)
        if {"sasl.username", "sasl.password"} <= self._overrides.keys():
            return
        key = f"{self._listener_prefix}{mechanism.lower()}.sasl.jaas.config"
        options = _jaas_options(self._properties.get(key, ""))
        for option in ("username", "password"):
            ours = f"sasl.{option}"
            if ours in self._overrides:
                continue
            value = options.get(option, "")
            if not value or _FROM_PROVIDER.search(value):
                found = "is given by a config provider" if value else "is missing (a JAAS file is not read)"
                self.problems.append(f"{key}: its {option} {found}; give {PREFIX}{ours}")
            self._set(ours, value)

    def _set(self, key: str, value: str) -> None:
        if value:
            self.settings[key] = value

    def _plain(self, key: str) -> str:
        return self._properties.get(key, "").strip()

    def _of_listener(self, key: str, absent: str = "") -> str:
        """Return a setting of the listener, else of all listeners."""
        found = self._properties.get(self._listener_prefix + key, self._properties.get(key))
        return absent if found is None else found.strip()

    def _secret(self, key: str, ours: str) -> str:
        """Return a secret setting; if only a config provider has it and the operator gives none, add a problem."""
        found = self._of_listener(key)
        if _FROM_PROVIDER.fullmatch(found) and ours not in self._overrides:
            self.problems.append(f"{key}: it is given by a config provider; give {PREFIX}{ours}")
        return found

    def _listeners(self, key: str) -> tuple[_Listener, ...]:
        found = []
        for part in filter(None, map(str.strip, self._plain(key).split(","))):
            match = _LISTENER.fullmatch(part)
            if match is not None:
                found.append(_Listener(match["name"], match["host"], int(match["port"])))
            elif "bootstrap.servers" not in self._overrides:
                self.problems.append(f"{key}: {part!r} is not of the form NAME://host:port")
        return tuple(found)


def _jaas_options(config: str) -> dict[str, str]:
    """Return the options of a JAAS entry, `module required username="u" password="p" ... ;`."""
    unescape: Callable[[str], str] = lambda text: re.sub(r"\\(.)", r"\1", text)  # noqa: E731
    options = {}
    for name, doubly, singly, word in _JAAS_OPTION.findall(config):
        options[name] = word or unescape(doubly or singly)
    return options
