"""Messages between the reader's process and its workers: pickled values on a Unix socket, with file descriptors.

Both ends are processes of this program, started by it on an unnamed socket pair, so pickles are safe here. A message is
a header of 12 bytes (the number of file descriptors, the length), then the pickle.
"""

import pickle
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ts_common import errors
from ts_reader.execution.decoded_columns import Columns
from ts_reader.query.splits import Split

_HEADER: Final = struct.Struct("<IQ")
_MOST_DESCRIPTORS: Final = 64


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """Read a split with these columns; None: those of the last split."""

    split: Split
    columns: Columns | None


@dataclass(frozen=True, slots=True)
class Do:
    """Run a task, a callable without arguments whose module the worker can import, and return what it returns."""

    task: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Done:
    """What a task returned."""

    value: object


@dataclass(frozen=True, slots=True)
class More:
    """The reader accepted a batch."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The reader wants no more of the current split."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """New shared memory, with a file descriptor for each, and numbers of blocks that no batch uses any more."""

    added: list[tuple[int, int]]
    dropped: list[int]


@dataclass(frozen=True, slots=True)
class Logged:
    """A log event of the worker, for the reader's log."""

    level: str
    event: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SplitEnd:
    """The end of a split, or of a task that failed.

    Attributes:
        error: name of the class of the error that ended it, and its message; None without an error.
    """

    error: tuple[str, str] | None = None


def error_of(end: SplitEnd) -> Exception | None:
    """Return the error that ended a split or a task, as the worker raised it."""
    if end.error is None:
        return None
    name, message = end.error
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.TieredStorageError)):
        return RuntimeError(f"a worker process raised {name}: {message}")
    if kind is errors.ConfigurationError:
        return errors.OperatorError(message)
    return kind(message)


class PeerGone(Exception):
    """The other process has ended, or closed the socket."""


class Channel:
    """One end of the socket; several threads may send, one receives.

    Args:
        connection: one end of a pair of stream sockets.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor, to wait for a message."""
        return self._socket.fileno()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message; the receiver gets duplicates of the descriptors.

        Raises:
            PeerGone: the other process has ended.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        header = _HEADER.pack(len(descriptors), len(data))
        try:
            with self._sending:
                if descriptors:
                    socket.send_fds(self._socket, [header], descriptors)
                else:
                    self._socket.sendall(header)
                self._socket.sendall(data)
        except (OSError, ValueError) as error:
            raise PeerGone from error

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message and its descriptors, which the caller closes.

        Raises:
            PeerGone: the other process has ended.
        """
        try:
            header, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, _MOST_DESCRIPTORS)
            header += self._exactly(_HEADER.size - len(header)) if header else b""
            if not header:
                raise PeerGone
            _, length = _HEADER.unpack(header)
            return pickle.loads(self._exactly(length)), descriptors  # noqa: S301  (see the module's docstring)
        except OSError as error:
            raise PeerGone from error

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if not count:
                raise PeerGone
            got += count
        return data
