"""TLS and SASL of a raw connection, from librdkafka's settings, so that both clients have one configuration.

What this connection does not support, as Kerberos, is a problem that names the setting.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ts_common.broker_connection.scram import HASHES
from ts_common.errors import ConfigurationError

SOURCE: Final = "the raw connection to the broker"
PLAIN: Final = "PLAIN"
_MECHANISMS: Final = (PLAIN, *HASHES)
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_NOT_READ: Final = ("ssl.crl.location", "ssl.engine.location", "ssl.providers")
_OFF: Final = frozenset({"false", "f", "0"})
_KEY_STORE: Final = "ssl.keystore.location"

SETTINGS: Final = frozenset(
    {
        *("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.mechanisms"),
        *("sasl.username", "sasl.password", "enable.ssl.certificate.verification"),
        *("ssl.endpoint.identification.algorithm", "ssl.ca.pem", "ssl.ca.location", "ssl.cipher.suites"),
        *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password"),
        *(_KEY_STORE, "ssl.keystore.password"),
    }
)
"""The settings that `security_of` reads; others mean nothing to this connection."""

ReadKeyStore = Callable[[Path, str], bytes]


@dataclass(frozen=True, slots=True)
class Login:
    """A user of SASL.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    """

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect.

    Attributes:
        address: host and port of the broker.
        tls: None for a connection without TLS.
        login: None for a connection without SASL.
    """

    address: tuple[str, int]
    tls: ssl.SSLContext | None = None
    login: Login | None = None


def security_of(settings: Mapping[str, str], prefix: str = "", read_key_store: ReadKeyStore | None = None) -> Security:
    """Return how to connect to the first broker of `bootstrap.servers`. It reads the files of TLS.

    Args:
        prefix: of the settings' names in messages.
        read_key_store: returns key and certificates of a PKCS#12 file and its password, as PEM; it raises ValueError.
            None: this setting is not supported.

    Raises:
        ConfigurationError: a setting is not supported, or a file cannot be read; no message contains a password.
    """
    first = settings.get("bootstrap.servers", "").split(",")[0].strip().rpartition("://")[2]
    host, _, port = first.rpartition(":")
    protocol = settings.get("security.protocol", "plaintext").lower()
    not_read = _NOT_READ if read_key_store else (*_NOT_READ, _KEY_STORE)
    problems = [f"{prefix}{key}: not supported" for key in not_read if key in settings]
    if not host or not port.isdecimal():
        problems.append(f"{prefix}bootstrap.servers: {first!r} is not host:port")
    if protocol not in _PROTOCOLS:
        problems.append(f"{prefix}security.protocol: {protocol!r}; expected one of {', '.join(_PROTOCOLS)}")
    login = None
    if protocol.startswith("sasl"):
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI")).upper()
        login = Login(mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", ""))
        if mechanism not in _MECHANISMS:
            problems.append(f"{prefix}sasl.mechanism: {mechanism}; supported are {', '.join(_MECHANISMS)}")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    tls = None
    if protocol.endswith("ssl"):
        try:
            tls = _read_context(settings, read_key_store)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"TLS: a file or text of {prefix}ssl.* is not usable: {error}"
            raise ConfigurationError(SOURCE, [problem]) from None
    return Security((host.strip("[]"), int(port)), tls, login)


def load_own_certificate(context: ssl.SSLContext, pem: bytes, password: str = "") -> None:
    """Give a context its own key and certificates, which OpenSSL loads only from a file: here from one in memory.

    Raises:
        ssl.SSLError: OpenSSL cannot use them.
    """
    descriptor = os.memfd_create("ts-uploader", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123  (a descriptor has no path)
        file.write(pem)
        context.load_cert_chain(Path(f"/proc/self/fd/{descriptor}"), password=password)


def _read_context(settings: Mapping[str, str], read_key_store: ReadKeyStore | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    if settings.get("enable.ssl.certificate.verification", "true").lower() in _OFF:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if authorities := settings.get("ssl.ca.pem"):
        context.load_verify_locations(cadata=authorities)
    elif location := settings.get("ssl.ca.location", "probe").removeprefix("probe"):
        path = Path(location)
        context.load_verify_locations(**{"capath" if path.is_dir() else "cafile": location})
    else:
        context.load_default_certs()
    if ciphers := settings.get("ssl.cipher.suites"):
        context.set_ciphers(ciphers)
    _take_certificate(context, settings, read_key_store)
    return context


def _take_certificate(
    context: ssl.SSLContext, settings: Mapping[str, str], read_key_store: ReadKeyStore | None
) -> None:
    """Set the client's own certificate, if there is one."""
    password = settings.get("ssl.key.password", "")
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), password)
    elif read_key_store and (keystore := settings.get(_KEY_STORE)):
        load_own_certificate(context, read_key_store(Path(keystore), settings.get("ssl.keystore.password", "")))
    elif own := settings.get("ssl.certificate.pem"):
        load_own_certificate(context, f"{settings.get('ssl.key.pem', '')}\n{own}".encode(), password)
