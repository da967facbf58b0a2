"""One connection to a broker. Used by one thread.

A frame is a length of four bytes and a request or a response. A request has its kind, its version, a number and the
client's name; the response has the same number (`https://kafka.apache.org/protocol#protocol_messages`). The first
request is ApiVersions, which a broker answers before a login. With SASL, SaslHandshake and SaslAuthenticate follow.

A broker can close a connection whose login is older than `connections.max.reauth.ms`: open a new one.
"""

import math
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from types import TracebackType
from typing import Final, Self

from ts_common.broker_connection.encoding import Reader, compact_string, sized_bytes, string
from ts_common.broker_connection.scram import ScramClient
from ts_common.broker_connection.security import PLAIN, Login, Security
from ts_common.errors import CorruptData, OperatorError, TransientError
from ts_common.installed import version as installed_version

LARGEST: Final = 16 << 20  # bytes of a response, as in the settings of librdkafka's client
NO_TAGS: Final = b"\0"  # the end of a structure without tagged fields
_CLIENT: Final = "ts-uploader"
_PIECE: Final = 1 << 16
_UNSUPPORTED_VERSION: Final = 35
_FINALIZED_FEATURES: Final = 2  # tag


class Api(IntEnum):
    """The requests that this connection sends."""

    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    ALTER_PARTITION_REASSIGNMENTS = 45
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class NoAnswer(TransientError):
    """The broker does not listen, ended the connection, or did not answer in time."""


class LoginRejected(OperatorError):
    """The two sides reject each other: the certificate, or the user and password."""


class UnsupportedRequest(OperatorError):
    """The broker is too old, or too new, for a request."""


class BrokerConnection:
    """A connection that is logged in.

    Attributes:
        versions: by kind of request, the least and the greatest version that the broker serves.
        features: the finalized features of a KRaft cluster by name, as `metadata.version`; empty with ZooKeeper.

    Args:
        seconds: for the connection with its login, and then for each request.
        most: largest response in bytes.
        until: monotonic time; every request must end before it.
        opening: is called with the connection before it is made, so that another thread can close it from then on.

    Raises:
        NoAnswer, LoginRejected, CorruptData: as `request`, and the certificate or the user was rejected.
    """

    versions: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def __init__(
        self,
        security: Security,
        seconds: float,
        most: int = LARGEST,
        until: float = math.inf,
        opening: Callable[[Self], None] = lambda _: None,
    ) -> None:
        host, port = security.address
        self.name = f"broker at {host}:{port}"
        self._seconds = seconds
        self._most = most
        self._until = until
        self._number = 0
        self._closed = False
        self._socket = socket.socket()  # until the address is known
        opening(self)
        self._give(seconds)
        try:
            self._connect(security)
            self.versions, self.features = self._negotiated()
            if security.login is not None:
                self._log_in(security.login)
        except BaseException:
            self.close()
            raise

    def request(
        self, api: Api, version: int, body: bytes, *, flexible: bool = False, seconds: float | None = None
    ) -> Reader:
        """Send a request, and return its response after the header.

        Args:
            version: of the request; `body` has its form.
            flexible: whether this version has tagged fields, also in the headers.
            seconds: until the end of the response; by default those of the connection.

        Raises:
            NoAnswer: no whole response in time; the connection is closed.
            CorruptData: the response is too large, or answers another request; the connection is closed.
            UnsupportedRequest: the broker does not serve this version.
        """
        least, most = self.versions.get(api, (0, -1))
        if not least <= version <= most:
            served = f"versions {least} to {most}" if most >= least else "none"
            raise UnsupportedRequest(f"{self.name}: {api.name} version {version} is needed, and it serves {served}")
        self._give(self._seconds if seconds is None else seconds)
        if not flexible:
            return self._exchange(api, version, body)
        answer = self._exchange(api, version, NO_TAGS + body)
        answer.tagged_fields()
        return answer

    def close(self) -> None:
        """Close the connection; any thread may call it, and a request under way then raises NoAnswer."""
        self._closed = True
        with suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, security: Security) -> None:
        host, port = security.address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for number, (family, kind, protocol, _, address) in enumerate(found, start=1):
                try:
                    self._use(socket.socket(family, kind, protocol))
                    self._socket.connect(address)
                    break
                except OSError:
                    if self._closed or number == len(found):
                        raise
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket.settimeout(self._left())
                secured = security.tls.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
                self._use(secured)
                secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise LoginRejected(f"{self.name}: its certificate is rejected: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise LoginRejected(f"{self.name}: the TLS handshake failed: {error.reason or error}") from error
        except OSError as error:
            raise NoAnswer(f"{self.name}: no connection: {error}") from error

    def _use(self, made: socket.socket) -> None:
        """Use a socket from now on; a connection that another thread has closed stays closed."""
        former, self._socket = self._socket, made
        former.close()
        if self._closed:
            raise ConnectionAbortedError("it is closed")
        made.settimeout(self._left())

    def _negotiated(self) -> tuple[dict[int, tuple[int, int]], dict[str, int]]:
        """Return the versions and features of the broker.

        ApiVersions 3 is a flexible request, but the header of its response is not. A broker that has only earlier
        versions answers in the form of version 0.
        """
        body = NO_TAGS + compact_string(_CLIENT) + compact_string(installed_version()) + NO_TAGS
        answer = self._exchange(Api.API_VERSIONS, 3, body)
        code = answer.int16()
        if code == _UNSUPPORTED_VERSION:
            old = answer.array(lambda: (answer.int16(), (answer.int16(), answer.int16())))
            return dict(old), {}
        if code:
            raise CorruptData(f"{self.name}: ApiVersions failed with error code {code}")

        def versions() -> tuple[int, tuple[int, int]]:
            found = answer.int16(), (answer.int16(), answer.int16())
            answer.tagged_fields()
            return found

        served = dict(answer.compact_array(versions))
        answer.int32()  # throttle time
        features = answer.tagged_fields(_FINALIZED_FEATURES)
        if features is None:
            return served, {}

        def levels(reader: Reader = features) -> tuple[str, int]:
            name, greatest, _ = reader.compact_string() or "", reader.int16(), reader.int16()
            reader.tagged_fields()
            return name, greatest

        return served, dict(features.compact_array(levels))

    def _log_in(self, login: Login) -> None:
        answer = self._exchange(Api.SASL_HANDSHAKE, 1, string(login.mechanism))
        if answer.int16():
            offered = ", ".join(each or "" for each in answer.array(answer.string)) or "none"
            raise LoginRejected(f"{self.name}: it does not serve SASL {login.mechanism} here; it serves {offered}")
        if login.mechanism == PLAIN:
            self._authenticate(f"\0{login.user}\0{login.password}".encode())
            return
        scram = ScramClient(login.mechanism, login.user, login.password)
        try:
            scram.check(self._authenticate(scram.prove(self._authenticate(scram.first))))
        except CorruptData as error:
            raise LoginRejected(f"{self.name}: {error}") from error

    def _authenticate(self, message: bytes) -> bytes:
        answer = self._exchange(Api.SASL_AUTHENTICATE, 0, sized_bytes(message))
        code, text = answer.int16(), answer.string()
        if code:
            reason = text or f"error code {code}"
            raise LoginRejected(f"{self.name}: it rejects the login: {reason}")
        return answer.sized_bytes()

    def _exchange(self, api: Api, version: int, body: bytes) -> Reader:
        self._number += 1
        head = struct.pack(">hhi", api, version, self._number) + string(_CLIENT)
        try:
            self._send(sized_bytes(head + body))
            (size,) = struct.unpack(">i", self._received(4))
            if not 4 <= size <= self._most:
                raise CorruptData(f"{self.name}: a response of {size} bytes; from 4 to {self._most} are expected")
            data = self._received(size)
            (number,) = struct.unpack_from(">i", data)
            if number != self._number:
                raise CorruptData(f"{self.name}: it answers request {number}; request {self._number} was sent")
        except TimeoutError as error:
            self.close()
            raise NoAnswer(f"{self.name}: no whole answer to {api.name} within {self._given:g} s") from error
        except OSError as error:
            self.close()
            raise NoAnswer(f"{self.name}: no answer to {api.name}: {error}") from error
        except (CorruptData, NoAnswer):
            self.close()
            raise
        return Reader(data[4:], f"{self.name}: the response to {api.name}")

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def _received(self, size: int) -> bytes:
        """Return so many bytes; memory grows with what arrives, not with what is announced."""
        found = bytearray()
        while len(found) < size:
            self._socket.settimeout(self._left())
            piece = self._socket.recv(min(size - len(found), _PIECE))
            if not piece:
                raise NoAnswer(f"{self.name}: it ended the connection")
            found += piece
        return bytes(found)

    def _give(self, seconds: float) -> None:
        """Begin the time of the next steps."""
        now = time.monotonic()
        self._deadline = min(now + seconds, self._until)
        self._given = max(0.0, self._deadline - now)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not within {self._given:g} s")
        return left
