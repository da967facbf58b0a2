"""SASL on one connection: SaslHandshake names a mechanism, and SaslAuthenticate carries its messages.

Until a client has authenticated, other requests end its connection, as on a broker. A refused login is answered after
a delay, and then the connection ends. An unknown user is refused as one with a wrong password: at the same step, after
the same computation, with the same text.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode

from ts_common.errors import ConfigurationError
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security.scram import (
    ITERATIONS,
    SALT_BYTES,
    ClientFirst,
    MalformedExchange,
    ScramExchange,
    ScramKeys,
    ScramMechanism,
    has_password,
    parse_first,
)

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (ScramMechanism.SHA_256, ScramMechanism.SHA_512, PLAIN)
_DELAY_SECONDS: Final = 0.1  # Kafka's connection.failed.authentication.delay.ms
_LONGEST_NAME: Final = 1024
_HASHED_AT_ONCE: Final = 2  # passwords of PLAIN, on threads
_INVALID: Final = "Authentication failed: Invalid username or password"  # Kafka's texts
_INVALID_OF: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
)

UserKeys = Mapping[ScramMechanism, ScramKeys]


class UnexpectedRequest(Exception):
    """A client that has not authenticated sent a request that only other clients may send."""

    kind = "unexpected_request"  # of the connection's end, for the counter


@dataclass(frozen=True, slots=True)
class Step:
    """What a request of a login leads to.

    Attributes:
        user: who has authenticated now; None if the login continues, or failed.
        refused: why the login failed; None if it did not. The connection ends after the reply.
    """

    values: Values
    user: str | None = None
    refused: str | None = None


def checked_mechanisms(
    mechanisms: Sequence[str], *, is_encrypted: bool, is_loopback: bool, plaintext_passwords: bool
) -> tuple[str, ...]:
    """Return the mechanisms of a listener.

    Args:
        mechanisms: as an operator names them; empty for SCRAM, and PLAIN too if passwords are encrypted.
        is_encrypted: whether the listener has TLS.
        is_loopback: whether only processes of this machine reach the listener.
        plaintext_passwords: whether the operator accepts that passwords cross the network unencrypted.

    Raises:
        ConfigurationError: a mechanism is unknown, or PLAIN would send passwords unencrypted.
    """
    is_safe = is_encrypted or is_loopback or plaintext_passwords
    unknown = [each for each in mechanisms if each not in MECHANISMS]
    problems = [f"{each}: the mechanisms are {', '.join(MECHANISMS)}" for each in unknown]
    if PLAIN in mechanisms and not is_safe:
        problems.append(
            "PLAIN would send passwords unencrypted: configure a certificate, use SCRAM-SHA-256, "
            "or add --allow-plaintext-passwords"
        )
    if problems:
        raise ConfigurationError("--sasl-mechanism", problems)
    return tuple(mechanisms) or tuple(each for each in MECHANISMS if each != PLAIN or is_safe)


@dataclass(slots=True)
class Sasl:
    """The logins of a listener.

    Attributes:
        mechanisms: that are offered.
        keys: returns the keys of a user; None for an unknown one.
        usual: returns the mechanisms of most users, most common first, each with the bytes of a salt and the
            iterations; an unknown user is answered as such a one.
        delay_seconds: before the reply to a refused login.
    """

    mechanisms: Sequence[str]
    keys: Callable[[str], UserKeys | None]
    usual: Callable[[], Mapping[ScramMechanism, tuple[int, int]]] = dict
    delay_seconds: float = _DELAY_SECONDS
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_HASHED_AT_ONCE), repr=False)

    def keys_for(self, user: str, mechanism: ScramMechanism) -> ScramKeys:
        """Return the keys of a user; of an unknown one such that no password has, always the same for a name."""
        known = self.keys(user)
        if known is not None and mechanism in known:
            return known[mechanism]
        salt_bytes, iterations = self.usual().get(mechanism, (SALT_BYTES, ITERATIONS))
        salt = hashlib.shake_256(self._secret + f"{mechanism} {user}".encode()).digest(salt_bytes)
        no_key = bytes(hashlib.new(mechanism.hash_name).digest_size)  # the hash of no key
        return ScramKeys(salt, no_key, no_key, iterations)

    async def is_password(self, user: str, password: str) -> bool:
        """Return whether a user has a password; the hash is computed on a thread."""
        known = self.keys(user) or {}
        mechanism = next(iter(known or self.usual()), ScramMechanism.SHA_256)
        keys = self.keys_for(user, mechanism)
        async with self._hashing:
            is_right = await asyncio.to_thread(has_password, mechanism, keys, password)
        return is_right and bool(known)


class Login:
    """The login of one connection."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self._exchange: tuple[str, ScramExchange] | None = None  # the user and what was sent
        self.mechanism: str | None = None
        self.claimed: str | None = None  # the user's name, before its proof

    async def answer(self, request: Request) -> Step:
        """Return what a SaslHandshake or a SaslAuthenticate leads to.

        Raises:
            UnexpectedRequest: it is another request, or not the next one.
        """
        if request.api is Api.SASL_HANDSHAKE and self.mechanism is None:
            return self._begin(request.body.mechanism, request.version)
        if request.api is Api.SASL_AUTHENTICATE and self.mechanism is not None:
            return await self._continue(self.mechanism, bytes(request.body.auth_bytes))
        unexpected = f"Unexpected Kafka request of type {request.api.name} during SASL handshake."  # Kafka's text
        illegal = {"error_code": ErrorCode.illegal_sasl_state, "error_message": unexpected}
        if request.api is Api.SASL_AUTHENTICATE:
            return Step({**_replied(b""), **illegal}, refused=unexpected)
        if request.api is Api.SASL_HANDSHAKE:
            return Step({**illegal, "mechanisms": []}, refused=unexpected)
        raise UnexpectedRequest(unexpected)

    def _begin(self, mechanism: str, version: int) -> Step:
        mechanisms = [*map(str, self._sasl.mechanisms)]
        if version == 0:  # the messages that follow would have no headers
            values = {"error_code": ErrorCode.unsupported_version, "mechanisms": mechanisms}
            return Step(values, refused="SaslHandshake of version 0, which clients older than Kafka 1.0 send")
        if mechanism not in mechanisms:
            values = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": mechanisms}
            return Step(values, refused=f"mechanism {mechanism[:100]!r} is not offered")
        self.mechanism = mechanism
        return Step({"error_code": ErrorCode.none, "mechanisms": mechanisms})

    async def _continue(self, mechanism: str, message: bytes) -> Step:
        try:
            if mechanism == PLAIN:
                return await self._plain(message)
            return await self._scram(ScramMechanism(mechanism), message)
        except MalformedExchange as error:
            return await self._refused(str(error))

    async def _plain(self, message: bytes) -> Step:
        """Return what a message of RFC 4616 leads to: authorization id, user and password, separated by NUL."""
        try:
            authorization, user, password = message.decode().split("\0")
        except ValueError:
            raise MalformedExchange("the message of PLAIN is malformed") from None
        self._claim(user)
        if not password or authorization not in {"", user}:
            raise MalformedExchange("the message of PLAIN has no password, or another authorization id")
        if await self._sasl.is_password(user, password):
            return Step(_replied(b""), user=user)
        return await self._refused("invalid credentials")

    async def _scram(self, mechanism: ScramMechanism, message: bytes) -> Step:
        if self._exchange is None:
            first: ClientFirst = parse_first(message)
            self._claim(first.user)
            exchange = ScramExchange(mechanism, first, self._sasl.keys_for(first.user, mechanism))
            self._exchange = first.user, exchange
            return Step(_replied(exchange.challenge))
        user, exchange = self._exchange
        proof = exchange.prove(message)
        known = self._sasl.keys(user)
        if proof is None or known is None or mechanism not in known:
            return await self._refused("invalid credentials")
        return Step(_replied(proof), user=user)

    def _claim(self, user: str) -> None:
        self.claimed = user[:_LONGEST_NAME]
        if not user or len(user) > _LONGEST_NAME:
            raise MalformedExchange("the user name is empty or too long")

    async def _refused(self, reason: str) -> Step:
        await asyncio.sleep(self._sasl.delay_seconds)
        text = _INVALID if self.mechanism == PLAIN else _INVALID_OF.format(mechanism=self.mechanism)
        values = {**_replied(b""), "error_code": ErrorCode.sasl_authentication_failed, "error_message": text}
        return Step(values, refused=reason)


def _replied(message: bytes) -> dict[str, object]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "auth_bytes": message,
        "session_lifetime": timedelta(0),  # the client need not authenticate again
    }
