"""A store that fails as real ones do, lets others act before and after each call, and reports its changes.

Puts are rejected, answered with 409 or 412, written without an answer, or land later, when their condition is checked.
Reads and listings fail, a listing also in its middle. A listing that is wrongly empty is not simulated: a driver
rejects an invalid listing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from awscrt.checksums import crc32c as checksum

from dev.simulation.memory_store import MemoryStore, read_body
from ts_common.errors import CorruptData, OutcomeUnknown, PreconditionFailed, StoreUnavailable, TieredStorageError
from ts_common.store.contract import (
    NO_METADATA,
    Body,
    ByteRange,
    Condition,
    ObjectInfo,
    ObjectStream,
)
from ts_common.store.wrappers.wrapped import WrappedStore

PUT_FAULTS = ("refused", "lost answer", "late", "late", "conflict")


@dataclass(frozen=True)
class Put:
    """One put of an agent's call; `by` is the agent's task."""

    key: str
    body: bytes
    metadata: Mapping[str, str]
    condition: Condition
    by: Any


@dataclass
class Weather:
    """The probabilities that calls fail, and that others act at a call.

    Attributes:
        faults: share of puts that fail.
        reads: share of reads and listings that fail.
        pauses: share of the points when others act.
        renames: whether these others are the brokers' renames only.
    """

    faults: float = 0.0
    reads: float = 0.0
    pauses: float = 0.0
    renames: bool = False
    rng: Random = field(default_factory=lambda: Random(0))


class FaultyStore(WrappedStore):
    """The store; see the module's docstring.

    Args:
        inner: with the objects.
        weather: the probabilities.
        pause: called before and after each call.
        working: returns the task of the agent that calls.
        landed: called when an object was written, by any put.
        note: called with each fault, for the history.
    """

    def __init__(
        self,
        inner: MemoryStore,
        weather: Weather,
        pause: Callable[[str], None],
        working: Callable[[], Any],
        landed: Callable[[Put], None],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(inner, threads=1)
        self._weather = weather
        self._pause = pause
        self._working = working
        self._landed = landed
        self._note = note
        self.late: list[Put] = []

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        """Put with the faults of the weather."""
        self._pause("before put")
        data = read_body(body, size)
        if crc32c is not None and crc32c != checksum(data):
            raise CorruptData(f"{key}: other bytes than were read")
        put = Put(key, data, dict(metadata), condition, self._working())
        fault = self._weather.rng.choice(PUT_FAULTS) if self._fails(self._weather.faults) else None
        if fault is not None:
            self._note(f"put of {_short(key)}: {fault}")
        match fault:
            case "refused":
                raise StoreUnavailable("refused")
            case "conflict":
                raise OutcomeUnknown("409: another write goes on")
            case "late":
                self.late.append(put)
                raise OutcomeUnknown("no answer")
        info = self.write(put)
        if fault is not None:
            raise OutcomeUnknown("no answer")
        self._pause("after put")
        return info

    def write(self, put: Put) -> ObjectInfo:
        """Apply the put to the store.

        Raises:
            PreconditionFailed: its condition does not hold.
        """
        info = self._inner.put(put.key, put.body, metadata=put.metadata, condition=put.condition)
        self._note(f"put of {_short(put.key)} landed")
        self._landed(put)
        return info

    def land(self, index: int) -> None:
        """Let an abandoned put reach the store after all."""
        if self.late:
            put = self.late.pop(index % len(self.late))
            try:
                self.write(put)
            except PreconditionFailed:
                self._note(f"late put of {_short(put.key)}: refused by its condition")

    def put_async(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> Future[ObjectInfo]:
        """Read at once: other changes arrive at the pauses."""
        future: Future[ObjectInfo] = Future()
        try:
            future.set_result(self.put(key, body, size=size, metadata=metadata, condition=condition))
        except TieredStorageError as error:
            future.set_exception(error)
        return future

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Read, or fail."""
        self._read(f"get of {_short(key)}")
        return super().open(key, byte_range)

    def head(self, key: str) -> ObjectInfo:
        """Read, or fail."""
        self._read(f"head of {_short(key)}")
        return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List, or fail, before the first answer or between two."""
        self._read("listing")
        found = list(super().list(prefix, start_after=start_after))
        for number, info in enumerate(found):
            if number and self._fails(self._weather.reads / 4):
                self._note("listing: broke off")
                raise StoreUnavailable("the second page")
            yield info

    def delete(self, keys: Iterable[str]) -> None:
        """Fail: agents delete nothing."""
        raise AssertionError(f"an agent deletes {list(keys)}")

    def _read(self, what: str) -> None:
        self._pause(f"before {what}")
        if self._fails(self._weather.reads):
            self._note(f"{what}: failed")
            raise StoreUnavailable(f"{what}: no answer")

    def _fails(self, share: float) -> bool:
        return share > 0 and self._weather.rng.random() < share


def _short(key: str) -> str:
    return key.partition("/")[2].replace("0" * 16, "")
