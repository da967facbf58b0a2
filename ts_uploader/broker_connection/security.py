"""TLS and SASL of a raw connection, from librdkafka's settings, so that both clients have one configuration.

The settings are those of `ts_uploader.leadership.kraft.listener.client_settings`. What this connection does not
support, as Kerberos, is a problem that names the setting.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ts_common.config.cluster_config import KAFKA_CLIENT as PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.broker_connection.scram import HASHES
from ts_uploader.leadership.zookeeper.jks import StoreError
from ts_uploader.leadership.zookeeper.security import StoreType

SOURCE: Final = "the raw connection to the broker"
PLAIN: Final = "PLAIN"
_MECHANISMS: Final = (PLAIN, *HASHES)
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_NOT_READ: Final = ("ssl.crl.location", "ssl.engine.location", "ssl.providers")
_OFF: Final = frozenset({"false", "f", "0"})


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


def security_of(settings: Mapping[str, str]) -> Security:
    """Return how to connect to the first broker of `bootstrap.servers`. It reads the files of TLS.

    Raises:
        ConfigurationError: a setting is not supported, or a file cannot be read; no message contains a password.
    """
    first = settings.get("bootstrap.servers", "").split(",")[0].strip().rpartition("://")[2]
    host, _, port = first.rpartition(":")
    protocol = settings.get("security.protocol", "plaintext").lower()
    problems = [f"{PREFIX}{key}: not supported" for key in _NOT_READ if key in settings]
    if not host or not port.isdecimal():
        problems.append(f"{PREFIX}bootstrap.servers: {first!r} is not host:port")
    if protocol not in _PROTOCOLS:
        problems.append(f"{PREFIX}security.protocol: {protocol!r}; expected one of {', '.join(_PROTOCOLS)}")
    login = None
    if protocol.startswith("sasl"):
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI")).upper()
        login = Login(mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", ""))
        if mechanism not in _MECHANISMS:
            problems.append(f"{PREFIX}sasl.mechanism: {mechanism}; supported are {', '.join(_MECHANISMS)}")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    return Security((host.strip("[]"), int(port)), _context(settings) if protocol.endswith("ssl") else None, login)


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return _read_context(settings)
    except (OSError, ValueError, StoreError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(SOURCE, [f"TLS: a file or text of {PREFIX}ssl.* is not usable: {error}"]) from None


def _read_context(settings: Mapping[str, str]) -> ssl.SSLContext:
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
    _take_certificate(context, settings)
    return context


def _take_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Set the client's own certificate, if there is one."""
    password = settings.get("ssl.key.password", "")
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), password)
        return
    keystore, own = settings.get("ssl.keystore.location"), settings.get("ssl.certificate.pem")
    if not keystore and not own:
        return
    # Here, because cryptography needs 10 MB of memory.
    from ts_uploader.leadership.zookeeper.key_stores import own_certificate_pem  # noqa: PLC0415
    from ts_uploader.leadership.zookeeper.tls import load_own_certificate  # noqa: PLC0415

    if keystore:
        secret = settings.get("ssl.keystore.password", "")
        load_own_certificate(context, own_certificate_pem(Path(keystore), StoreType.PKCS12, secret))
    else:
        load_own_certificate(context, f"{settings.get('ssl.key.pem', '')}\n{own}".encode(), password)
