"""TLS of a listener, from files of PEM: certificate, key, and the authorities of clients' certificates (mutual TLS).

With mutual TLS the user is the certificate's whole subject, `CN=reader,OU=data,O=Example`, as Kafka's principal is by
default (`ssl.principal.mapping.rules` DEFAULT). TLS 1.2 is the oldest version.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from ts_common.errors import ConfigurationError
from ts_endpoint.security.reloaded import CHECK_SECONDS, Reloaded

# Java's names of attributes (X500Principal, RFC 2253); another attribute is written with its number and its bytes.
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',+"\\<>;')
_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files.

    Attributes:
        certificate: of the server, followed by those of intermediate authorities.
        key: of the certificate, not encrypted.
        client_authorities: certificates of the authorities of clients; None: clients need no certificate.
    """

    certificate: Path
    key: Path
    client_authorities: Path | None = None

    def paths(self) -> list[Path]:
        """Return all files."""
        found = [self.certificate, self.key]
        return found if self.client_authorities is None else [*found, self.client_authorities]


class Tls:
    """Contexts for new connections; connections that exist keep theirs.

    Args:
        files: which are read again when they change.
        check_seconds: as of `Reloaded`.

    Raises:
        ConfigurationError: a file is missing or wrong.
    """

    def __init__(self, files: TlsFiles, *, check_seconds: float = CHECK_SECONDS) -> None:
        self.names_users = files.client_authorities is not None
        self._context = Reloaded(
            files.paths(), lambda: _context(files), (ConfigurationError,), check_seconds=check_seconds
        )

    def context(self) -> ssl.SSLContext:
        """Return the context of the files as they are, or were when they were last valid."""
        return self._context.current()


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate as Java's X500Principal writes it, which is Kafka's default principal.

    Args:
        certificate: in DER.
    """
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute(each) for each in part) for part in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[Any]) -> str:
    number = attribute.oid.dotted_string
    if number in _NAMES and isinstance(attribute.value, str):
        return f"{_NAMES[number]}={_escaped(attribute.value)}"
    return f"{number}=#{_encoded_value(attribute).hex()}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    if text[:1] in {" ", "#"}:
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text


def _encoded_value(attribute: x509.NameAttribute[Any]) -> bytes:
    """Return the DER of a value: what follows the number in SEQUENCE { SET { SEQUENCE { number, value } } }."""
    content = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        content = _inside(content)[0]
    return _inside(content)[1]


def _inside(encoded: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first element of DER, and the elements that follow it."""
    size, start = encoded[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(encoded[2:start], "big")
    return encoded[start : start + size], encoded[start + size :]


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # no session outlasts a change of the files
    _loaded(files.certificate, lambda: context.load_cert_chain(files.certificate, files.key, _no_password), files.key)
    authorities = files.client_authorities
    if authorities is not None:
        _loaded(authorities, lambda: context.load_verify_locations(authorities))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _loaded(path: Path, load: Callable[[], None], key: Path | None = None) -> None:
    for each, block in ((path, _CERTIFICATE), (key, _KEY)):
        if each is None:
            continue
        try:
            data = each.read_bytes()
        except OSError as error:
            raise ConfigurationError(str(each), [f"cannot read the file: {error.strerror}"]) from error
        if block not in data:
            kind = "certificate" if block == _CERTIFICATE else "private key"
            raise ConfigurationError(
                str(each), [f"no {kind} in PEM: a line -----BEGIN ... {block.decode()} is expected"]
            )
    try:
        load()
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        message = f"no usable PEM: {reason}"
        if reason == "KEY_VALUES_MISMATCH":
            message = f"the key {key} belongs to another certificate; name the key that this one was issued for"
        elif key is not None:
            message = f"no usable pair with the key {key}: {reason}"
        raise ConfigurationError(str(path), [message]) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; write it without a password, readable by this process alone")
