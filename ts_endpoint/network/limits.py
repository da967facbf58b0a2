"""What one listener grants its clients, and what it counts."""

from collections import Counter
from dataclasses import dataclass, field

from ts_endpoint.protocol.versions import Api


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of a listener.

    Attributes:
        connections: open at once.
        connections_per_host: open at once from one client address.
        frame_bytes: of a request. A Produce request above it is not read, so it is not refused politely: its
            connection ends. Producers send at most 1 MiB by default.
        frame_bytes_before_login: of a request before the client has authenticated.
        login_seconds: for the TLS handshake and SASL together.
        stall_seconds: for the rest of a frame that began, and for each 256 KiB of a reply.
        idle_seconds: without a request, as Kafka's `connections.max.idle.ms`.
        large_frames: of more than 64 KiB, in memory at once; further ones wait.
    """

    connections: int = 5_000
    connections_per_host: int = 2_000
    frame_bytes: int = 1 << 20
    frame_bytes_before_login: int = 64 << 10
    login_seconds: float = 30.0
    stall_seconds: float = 30.0
    idle_seconds: float = 600.0
    large_frames: int = 32


@dataclass(slots=True)
class Counters:
    """Numbers since the start, for metrics.

    Attributes:
        accepted: connections that were served.
        refused: connections that were closed at once, by the limit: `connections`, `connections_per_host`.
        ended: connections that the endpoint closed: `idle`, `login_timeout`, `frame_timeout`, `reply_timeout`,
            `reply_memory` (a large reply, while clients do not read theirs), `parting_timeout`, `frame_size`,
            `cut_frame`, `malformed_request`, `unsupported_version`, `unsupported_request`, `unexpected_request` (before
            a login), `refused_request`, `failed_request`, `tls`, `stopped`.
        requests: by kind.
        bytes_received: of requests, with their lengths.
        bytes_sent: of replies, with their lengths.
        failed_requests: handlers that raised an unexpected exception, by kind.
        failed_logins: refused credentials, by mechanism.
        throttled_seconds: of muted connections.
        accept_pauses: times that the system had no file descriptor for a connection.
    """

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    requests: Counter[Api] = field(default_factory=Counter)
    bytes_received: int = 0
    bytes_sent: int = 0
    failed_requests: Counter[Api] = field(default_factory=Counter)
    failed_logins: Counter[str] = field(default_factory=Counter)
    throttled_seconds: float = 0.0
    accept_pauses: int = 0
