"""One member of a classic group, and its deadline, which moves with each heartbeat."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from ts_endpoint.protocol.replies import Values

Answer = Callable[[Values], None]
Protocols = tuple[tuple[str, bytes], ...]

MEMBER_BYTES: Final = 2048  # of a member without metadata: the objects of Python, its ids and names
_PROTOCOL_BYTES: Final = 160


def bytes_of(protocols: Protocols) -> int:
    """Return about how many bytes of memory the protocols of a member need."""
    return sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def join_error(error: ErrorCode, member_id: str = "") -> Values:
    """Return the values of a JoinGroup reply with an error."""
    return {"error_code": error, "member_id": member_id, "leader": "", "protocol_name": None, "members": ()}


def sync_error(error: ErrorCode) -> Values:
    """Return the values of a SyncGroup reply with an error."""
    return {"error_code": error, "assignment": b""}


class Alarm:
    """Calls a function once its deadline has passed, on the event loop.

    A heartbeat only moves the deadline. The timer of the loop is set again when it fires early, so ten thousand
    members do not fill the loop with cancelled timers.
    """

    __slots__ = ("_call", "_deadline", "_handle", "_loop")

    def __init__(self, loop: AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._deadline: float | None = None
        self._handle: TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline, in place of an earlier one."""
        self._deadline = self._loop.time() + max(seconds, 0.0)
        if self._handle is not None and self._handle.when() > self._deadline:
            self._handle.cancel()
            self._handle = None
        if self._handle is None:
            self._handle = self._loop.call_at(self._deadline, self._fire)

    def cancel(self) -> None:
        """Remove the deadline."""
        self._deadline = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        fired, self._handle = self._handle, None
        if self._deadline is None or fired is None:
            return
        if fired.when() < self._deadline:
            self._handle = self._loop.call_at(self._deadline, self._fire)
            return
        self._deadline = None
        self._call()


@dataclass(slots=True, eq=False)
class Member:
    """A member, and the request of it that waits for a reply.

    Attributes:
        id: the coordinator created it; a static member gets another one at each start.
        instance: `group.instance.id` of a static member; None for a dynamic one.
        host: address of the client, as Kafka prints it.
        session: seconds without a heartbeat until the member is removed.
        rebalance: seconds that a rebalance waits for it.
        protocols: names with metadata, in its order of preference.
        alarm: fires when the session ends.
        assignment: what the leader assigned to it.
        is_new: whether its first JoinGroup still waits.
    """

    id: str
    instance: str | None
    client_id: str
    host: str
    session: float
    rebalance: float
    protocols: Protocols
    alarm: Alarm
    assignment: bytes = b""
    is_new: bool = True
    _joining: Answer | None = field(default=None, init=False)
    _syncing: Answer | None = field(default=None, init=False)

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup waits for a reply."""
        return self._joining is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a JoinGroup or a SyncGroup waits for a reply; such a member need not send heartbeats."""
        return self._joining is not None or self._syncing is not None

    @property
    def size(self) -> int:
        """About how many bytes of memory it needs."""
        return MEMBER_BYTES + bytes_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata of a protocol; no bytes if the member does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the first of the member's protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def wait_to_join(self, answer: Answer) -> None:
        """Keep a JoinGroup until the next generation.

        A client sends a second one after it lost its connection. The first then ends, so that no request waits forever.
        """
        self.answer_join(join_error(ErrorCode.rebalance_in_progress, self.id))
        self._joining = answer

    def wait_to_sync(self, answer: Answer) -> None:
        """Keep a SyncGroup until the leader has sent the assignments; an earlier one ends."""
        self.answer_sync(sync_error(ErrorCode.rebalance_in_progress))
        self._syncing = answer

    def answer_join(self, values: Values) -> None:
        """Answer the JoinGroup, if one waits."""
        answer, self._joining = self._joining, None
        if answer is not None:
            answer(values)

    def answer_sync(self, values: Values) -> bool:
        """Answer the SyncGroup; return whether one waited."""
        answer, self._syncing = self._syncing, None
        if answer is None:
            return False
        answer(values)
        return True

    def answer_all(self, error: ErrorCode) -> None:
        """Answer whatever waits with an error."""
        self.answer_join(join_error(error, self.id))
        self.answer_sync(sync_error(error))
