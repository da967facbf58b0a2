"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka's clients use it.

A user's keys do not reveal the password and do not suffice to log in as a client. The same keys verify a password of
SASL PLAIN, so no file has passwords.

The library `scramp` was considered. It prepares names and passwords by SASLprep, and refuses an authorization id.
Kafka's brokers and clients use the bytes of UTF-8 as they are, so some passwords that are not ASCII would never match.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ITERATIONS: Final = 8192
_FEWEST_ITERATIONS: Final = 4096  # RFC 7677; Kafka's clients refuse fewer
_MOST_ITERATIONS: Final = 1_000_000
SALT_BYTES: Final = 20
_FIRST: Final = re.compile(
    r"(?P<header>(?P<binding>[nyp])(?:=[A-Za-z0-9.-]+)?,(?:a=(?P<authorization>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    r"(?P<unproven>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"=(2C|3D)")


class ScramMechanism(StrEnum):
    """SASL's name of a mechanism."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The name of the hash in `hashlib`."""
        return {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self.value]


class MalformedExchange(ValueError):
    """A message of the client is not SCRAM's."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What verifies a password, of one mechanism.

    Attributes:
        salt: random bytes.
        stored_key: hash of the client's key.
        server_key: by it the server proves that it has the user's keys.
        iterations: of PBKDF2.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramKeys(iterations={self.iterations})"

    def text(self) -> str:
        """Return the keys as Kafka writes them: `salt=...,stored_key=...,server_key=...,iterations=...`."""
        parts = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        encoded = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
        return ",".join([*encoded, f"iterations={self.iterations}"])


def keys_of(
    mechanism: ScramMechanism, password: str, salt: bytes | None = None, iterations: int = ITERATIONS
) -> ScramKeys:
    """Return keys for a password.

    Args:
        password: in clear text.
        salt: None for a random one.
        iterations: of PBKDF2.
    """
    name = mechanism.hash_name
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramKeys(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def has_password(mechanism: ScramMechanism, keys: ScramKeys, password: str) -> bool:
    """Return whether keys are of a password, in a time that does not depend on the password."""
    found = keys_of(mechanism, password, keys.salt, keys.iterations)
    return hmac.compare_digest(found.stored_key, keys.stored_key)


def parse_keys(mechanism: ScramMechanism, text: str) -> ScramKeys:
    """Return the keys of a text, see `ScramKeys.text`.

    Raises:
        ValueError: it has another form, or another mechanism's length of keys.
    """
    parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("salt=...,stored_key=...,server_key=...,iterations=... is expected")
    try:
        salt, stored_key, server_key = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(parts["iterations"])
    except (ValueError, binascii.Error):
        raise ValueError("the keys are base64, and iterations is a number") from None
    size = hashlib.new(mechanism.hash_name).digest_size
    if {len(stored_key), len(server_key)} != {size}:
        raise ValueError(f"stored_key and server_key have {size} bytes in {mechanism}")
    if not salt or not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise ValueError(f"a salt, and from {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} iterations, are expected")
    return ScramKeys(salt, stored_key, server_key, iterations)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client.

    Attributes:
        user: its name, decoded.
        header: with the channel binding and the authorization id.
        bare: the message without the header.
    """

    user: str
    header: str
    bare: str
    nonce: str


def parse_first(message: bytes) -> ClientFirst:
    """Return the parts of a client's first message.

    Raises:
        MalformedExchange: it has another form, needs a channel binding, or would act as another user.
    """
    found = _FIRST.fullmatch(_text(message))
    if found is None:
        raise MalformedExchange("the first message of SCRAM is malformed")
    if found["binding"] == "p":
        raise MalformedExchange("channel binding is not served")
    if "=" in _ESCAPED.sub("", found["user"]):
        raise MalformedExchange("the user name of SCRAM is malformed")
    user = _ESCAPED.sub(lambda match: {"2C": ",", "3D": "="}[match[1]], found["user"])
    if (found["authorization"] or found["user"]) != found["user"]:
        raise MalformedExchange("the authorization id differs from the user name")
    return ClientFirst(user, found["header"], found["bare"], found["nonce"])


class ScramExchange:
    """One login after the client's first message.

    Args:
        first: the client's message.
        keys: of the user; of an unknown user any keys, which no password has.
    """

    def __init__(self, mechanism: ScramMechanism, first: ClientFirst, keys: ScramKeys) -> None:
        self._mechanism = mechanism
        self._first = first
        self._keys = keys
        self._nonce = first.nonce + secrets.token_urlsafe(24)
        salt = base64.b64encode(keys.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={keys.iterations}".encode()

    def prove(self, message: bytes) -> bytes | None:
        """Return the server's last message; None if the client does not have the password.

        Args:
            message: the client's last one.

        Raises:
            MalformedExchange: it has another form.
        """
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise MalformedExchange("the last message of SCRAM is malformed")
        try:
            header = base64.b64decode(found["header"], validate=True)
            proof = base64.b64decode(found["proof"], validate=True)
        except binascii.Error:
            raise MalformedExchange("the last message of SCRAM is no base64") from None
        name = self._mechanism.hash_name
        signed = b",".join([self._first.bare.encode(), self.challenge, found["unproven"].encode()])
        signature = hmac.digest(self._keys.stored_key, signed, name)
        if len(proof) != len(signature):
            raise MalformedExchange("the proof of SCRAM has another length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_proven = hmac.compare_digest(hashlib.new(name, client_key).digest(), self._keys.stored_key)
        # librdkafka before 2.6.1 sends its own nonce twice. The whole nonce follows, so nothing can be replayed.
        nonces = (self._nonce, self._first.nonce + self._nonce)
        has_nonce = any(hmac.compare_digest(found["nonce"].encode(), each.encode()) for each in nonces)
        if not (is_proven and has_nonce and hmac.compare_digest(header, self._first.header.encode())):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._keys.server_key, signed, name))


def _text(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise MalformedExchange("the message of SCRAM is no UTF-8") from None
    if "\0" in text:
        raise MalformedExchange("the message of SCRAM contains NUL")
    return text
