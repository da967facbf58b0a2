"""What a process that runs inputs leaves for the one that watches it: a file that both have in memory."""

import mmap
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct("<?xxxxxxxdQQd?xxxxxxxd")
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class State:
    """The content of the file.

    Attributes:
        running: whether an input runs.
        since: when it began, by the monotonic clock.
        length: of the input, in bytes.
        inputs: how many ended.
        slowest: seconds of the slowest of these.
        opened: whether the target is open.
        opened_at: since when, by the monotonic clock.
    """

    running: bool
    since: float
    length: int
    inputs: int
    slowest: float
    opened: bool
    opened_at: float


class Ledger:
    """The file.

    Args:
        path: of the file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_HEAD.size + _LARGEST)
            self._map = mmap.mmap(file.fileno(), _HEAD.size + _LARGEST)

    def open(self) -> None:
        """The target is open."""
        state = self.state
        self._write(State(False, state.since, 0, state.inputs, state.slowest, True, time.monotonic()))

    def begin(self, data: bytes) -> None:
        """An input begins."""
        if len(data) > _LARGEST:
            raise ValueError(f"an input of {len(data)} bytes; at most {_LARGEST} are kept")
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        state = self.state
        now = time.monotonic()
        self._write(State(True, now, len(data), state.inputs, state.slowest, state.opened, state.opened_at))

    def end(self) -> float:
        """It ended; returns its seconds."""
        state = self.state
        took = time.monotonic() - state.since
        slowest = max(state.slowest, took)
        self._write(State(False, state.since, 0, state.inputs + 1, slowest, state.opened, state.opened_at))
        return took

    def close_target(self) -> None:
        """No target is open any more; counts stay."""
        state = self.state
        self._write(State(False, 0.0, 0, state.inputs, state.slowest, False, 0.0))

    @property
    def state(self) -> State:
        """Return its current content."""
        return State(*_HEAD.unpack_from(self._map))

    @property
    def data(self) -> bytes:
        """The input that runs."""
        return self._map[_HEAD.size : _HEAD.size + self.state.length]

    def _write(self, state: State) -> None:
        # One copy: `pack_into` clears the bytes first, and a process that waits for a processor there looks closed.
        self._map[: _HEAD.size] = _HEAD.pack(
            state.running,
            state.since,
            state.length,
            state.inputs,
            state.slowest,
            state.opened,
            state.opened_at,
        )
