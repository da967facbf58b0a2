"""How a client reaches the broker beside it, from the broker's own `server.properties`. Pure.

The agent comes in as another broker would: by the inter-broker listener, and with the broker's own credentials. What
Kafka's Java clients take from these settings is handed to librdkafka under its names (its `CONFIGURATION.md`)::

    inter.broker.listener.name, else security.inter.broker.protocol     which listener
    advertised.listeners, else listeners                                bootstrap.servers
    listener.security.protocol.map                                      security.protocol
    ssl.truststore.*                                                    ssl.ca.location, ssl.ca.pem
    ssl.keystore.*, ssl.key.password                                    ssl.certificate.*, ssl.key.*, ssl.keystore.*
    ssl.endpoint.identification.algorithm                               ssl.endpoint.identification.algorithm
    sasl.mechanism.inter.broker.protocol                                sasl.mechanism
    listener.name.<listener>.<mechanism>.sasl.jaas.config               sasl.username, sasl.password

A setting with the prefix `listener.name.<listener>.` wins over the one without. librdkafka reads PEM and, for a
client's own key, PKCS12; Java's JKS it does not. What cannot be taken over is a problem that names the settings
that stand in for it; an operator who gives them has it no more. No value of a password ever stands in a problem.
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
    """The settings of librdkafka for a client of this broker.

    Args:
        properties: of the broker's file.
        overrides: librdkafka's settings by the operator; they win, and are not looked at.
        host: under which the broker advertises a listener that names none: this host's canonical name.

    Raises:
        ConfigurationError: how to reach the broker is not clear; all problems at once.
    """
    reader = _Reader(properties, overrides)
    listener = reader.inter_broker_listener()
    if listener is None:
        if "bootstrap.servers" not in overrides:
            reader.problems.append(
                f"listeners names no listener for brokers; give {PREFIX}bootstrap.servers and {PREFIX}security.protocol"
            )
    else:
        reader.take_address(listener, host)
        reader.take_security(listener)
    if reader.problems:
        raise ConfigurationError("the connection to the broker, by its own file", reader.problems)
    return {**reader.settings, **overrides}


class _Reader:
    """Reads one broker's file; what is found goes into `settings` and `problems`."""

    def __init__(self, properties: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        self.settings: dict[str, str] = {}
        self.problems: list[str] = []
        self._properties = properties
        self._overrides = overrides
        self._listener_prefix = ""

    def inter_broker_listener(self) -> _Listener | None:
        """The listener that brokers use among themselves, as it is advertised."""
        name = self._plain("inter.broker.listener.name")
        protocol = self._plain("security.inter.broker.protocol") or "PLAINTEXT"
        advertised = self._listeners("advertised.listeners")
        for listener in (*advertised, *self._listeners("listeners")):
            # Without a name Kafka takes the listener that is called like the protocol.
            if listener.name.upper() == (name or protocol).upper():
                self._listener_prefix = f"listener.name.{listener.name.lower()}."
                return listener
        return None

    def take_address(self, listener: _Listener, host: str) -> None:
        """`bootstrap.servers`."""
        # Kafka itself refuses to advertise a wildcard: it stands here only where nothing is advertised.
        found = host if listener.host in {"", "0.0.0.0", "[::]"} else listener.host  # noqa: S104  (nothing is bound)
        self._set("bootstrap.servers", f"{found}:{listener.port}")

    def take_security(self, listener: _Listener) -> None:
        """`security.protocol`, and what it needs."""
        protocols = dict(
            part.strip().upper().split(":", 1)
            for part in self._plain("listener.security.protocol.map").split(",")
            if ":" in part
        )
        protocol = protocols.get(listener.name.upper(), listener.name.upper())
        chosen = self._overrides.get("security.protocol", protocol).upper()
        if chosen not in _PROTOCOLS:
            self.problems.append(
                f"listener.security.protocol.map: {protocol!r} for the listener {listener.name} is none of "
                f"{', '.join(_PROTOCOLS)}; or give {PREFIX}security.protocol"
            )
            return
        self._set("security.protocol", chosen.lower())
        if chosen.endswith("SSL"):
            self._take_truststore()
            self._take_keystore(wanted=self._of_listener("ssl.client.auth") in {"required", "requested"})
            # Java checks host names unless it is told not to, and so does librdkafka.
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
                f"ssl.truststore.location={location}: a trust store of type {kind} cannot be read here; write its "
                f"certificates as PEM (keytool -exportcert -rfc) and give {PREFIX}ssl.ca.location"
            )

    def _take_keystore(self, *, wanted: bool) -> None:
        """The broker's own certificate, as a client's, where the listener asks clients for one."""
        ours = {"ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"}
        if ours & self._overrides.keys() or not wanted:
            return
        location = self._of_listener("ssl.keystore.location")
        kind = (self._of_listener("ssl.keystore.type") or "JKS").upper()
        key = self._secret("ssl.keystore.key", "ssl.key.pem")
        if key:
            self._set("ssl.key.pem", key)
            self._set("ssl.certificate.pem", self._of_listener("ssl.keystore.certificate.chain"))
        elif location and kind == "PEM":  # one file holds the key and its certificates
            self._set("ssl.key.location", location)
            self._set("ssl.certificate.location", location)
        elif location and kind == "PKCS12":
            self._set("ssl.keystore.location", location)
            self._set("ssl.keystore.password", self._secret("ssl.keystore.password", "ssl.keystore.password"))
            return
        elif location:
            self.problems.append(
                f"ssl.keystore.location={location}: a key store of type {kind} cannot be read here; write it as PKCS12 "
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
                    f"{', '.join(_PASSWORD_MECHANISMS)} can be taken over; give {PREFIX}sasl.mechanism and the rest"
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
                found = "is given by a config provider" if value else "is not there (a JAAS file is not read)"
                self.problems.append(f"{key}: its {option} {found}; give {PREFIX}{ours}")
            self._set(ours, value)

    def _set(self, key: str, value: str) -> None:
        if value:
            self.settings[key] = value

    def _plain(self, key: str) -> str:
        return self._properties.get(key, "").strip()

    def _of_listener(self, key: str, absent: str = "") -> str:
        """A setting of the listener, else of all listeners."""
        found = self._properties.get(self._listener_prefix + key, self._properties.get(key))
        return absent if found is None else found.strip()

    def _secret(self, key: str, ours: str) -> str:
        """As `_of_listener`; one that only a config provider knows is a problem, unless the operator gives it."""
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
    """The options of a JAAS entry, `module required username="u" password="p" ... ;`."""
    unescape: Callable[[str], str] = lambda text: re.sub(r"\\(.)", r"\1", text)  # noqa: E731
    options = {}
    for name, doubly, singly, word in _JAAS_OPTION.findall(config):
        options[name] = word or unescape(doubly or singly)
    return options
