"""Ships the live tail to one log: each interval one pack, with the new records of all its partitions.

A round requests the high watermarks, reads whole batches below them, and puts a pack. Only after the answer of the put
the records count as shipped; after any error from the store the log and all chains are read again (tail rules 2 and 3).
An error before that, of the main thread or the broker, costs a round and no request. A pack has at
most `_PACK_BYTES`, so the agent's memory is bounded. If more waits, the next round begins at once.

The records that were acknowledged first are first in a pack. Partitions that have never reached their high watermark
are last, those with the least to do first: after the first switch-on each has up to a whole segment to ship. Their
share of a pack is bounded, so that they delay no other partition.

A thread of its own: no failure here ends the agent, or delays a closed segment.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Final, Protocol

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.tail_chain import Chain, TailEntry
from ts_common.archive.tail_logs import TailLogs
from ts_common.errors import (
    CorruptData,
    DataLoss,
    ObjectNotFound,
    OperatorError,
    SegmentChanged,
    TieredStorageError,
)
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.retry import backoff_seconds
from ts_uploader.health.store_health import failure_reason
from ts_uploader.health.tail_state import LATE_SECONDS, TailState
from ts_uploader.messages.observations import Answered, EarlyRequest
from ts_uploader.metrics.counters import SHIP_TAIL, Metrics
from ts_uploader.tail.adoption import Adoption
from ts_uploader.tail.broker_watermarks import denial
from ts_uploader.tail.led_partitions import LedPartition, LedPartitions
from ts_uploader.tail.live_log import Piece
from ts_uploader.tail.pack_log import IndexFull, PackLog
from ts_uploader.tail.upkeep import Upkeep
from ts_uploader.tracking.backlog import Backlog

log = structlog.get_logger()

_PACK_BYTES: Final = 8 << 20
_BEGINNING_BYTES: Final = 4 << 20  # of a pack, for partitions that have never reached their high watermark
_READING_SECONDS: Final = 1.0  # then a pack has what was read: the place in a log can be far behind its beginning
_CHANGING_SECONDS: Final = 60.0
_ADOPTED_BYTES: Final = 1 << 20  # of a pack, for what former leaderships shipped
_ROWS: Final = 15_000  # of all packs: above that a merge is waited for, as an index has no room for many more
_LEAST_ROWS: Final = 100
_AGAIN_SECONDS: Final = 30.0  # after an error of one partition
_ANEW_AFTER: Final = 10  # readings of the own log, or of a chain, that find it damaged
_BROKER_SECONDS: Final = 300.0  # before the broker is requested again after it denied the right
_MILLISECONDS: Final = 1000


class Requests(Protocol):
    """What requests high watermarks: `ts_uploader.tail.broker_watermarks.BrokerWatermarks`."""

    @property
    def denied(self) -> Set[str]:
        """Topics that this identity may not describe, by the last answers."""

    def request(self, leader_epochs: Mapping[TopicPartition, int], /) -> Mapping[TopicPartition, int]:
        """Return those that differ from the last call's."""

    def close(self) -> None:
        """End a request soon, from any thread."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a shipper reads of the rest of the agent; each is called on its thread.

    Attributes:
        backlog: of every partition that this broker leads; it raises TimeoutError if the main thread does not answer.
        selects: whether a topic's tail is shipped to the log.
        offer: puts a message into the inbox of the main loop.
        rate: the most bytes of packs per second; None without a limit.
        interval: seconds between two packs.
    """

    backlog: Callable[[], Mapping[TopicPartition, Backlog]]
    selects: Callable[[str], bool]
    offer: Callable[[object], None]
    rate: Callable[[], int | None]
    interval: float


class TailShipper:
    """Ships to one log until `close`.

    Args:
        packs: the log.
        store: that has it.
        metrics: counts packs, bytes and failures.
        upkeep: merges and deletes.
    """

    def __init__(
        self,
        packs: PackLog,
        store: ObjectStore,
        keys: ClusterKeys,
        requests: Requests,
        sources: Sources,
        metrics: Metrics,
        upkeep: Upkeep,
    ) -> None:
        self._packs = packs
        self._store = store
        self._keys = keys
        self._requests = requests
        self._sources = sources
        self._metrics = metrics
        self._upkeep = upkeep
        self._led = LedPartitions(packs.name, sources.selects)
        self._adoption = Adoption()
        self._closed = threading.Event()
        self._is_read = False
        self._most_rows = _ROWS
        self._unreadable = 0  # readings of the log in a row
        self._lost: dict[TopicPartition, int] = {}  # readings of a chain in a row that failed
        self._changing: dict[TopicPartition, float] = {}  # since when a partition's files change at each reading
        self._again: dict[TopicPartition, float] = {}  # partitions with an error: when they are read again
        self._denied, self._denied_until = "", 0.0
        self._failing, self._failing_since = "", 0.0
        self._begun = inf  # of the round that runs
        self._requested: float | None = None

    @property
    def state(self) -> TailState:
        """How it is doing; any thread may read it."""
        waiting = [*self._led.waiting.values()]
        since = [led.since for led in waiting if not led.is_beginning and led.since is not None]
        now = time.monotonic()
        # What was acknowledged since a round began that fails or hangs is unknown.
        if self._failing:
            since.append(self._failing_since)
        elif now - self._begun >= LATE_SECONDS:
            since.append(self._begun)
        return TailState(
            log=self._packs.name,
            store=self._store.location,
            failing=self._failing,
            denied=self._denied or denial(self._requests.denied),
            partitions=len(self._led),
            beginning=sum(led.is_beginning for led in waiting),
            lag_seconds=round(now - min(since), 3) if since and len(self._led) else 0.0,
            failing_seconds=round(now - self._failing_since, 3) if self._failing else 0.0,
            newest=self._requested,
            undeleted=self._upkeep.undeleted,
            unmerged=self._upkeep.unmerged or _held(self._upkeep.held),
        )

    def run(self) -> None:
        """Ship until `close`."""
        attempt = 0
        while not self._closed.is_set():
            begun = self._begun = time.monotonic()
            try:
                size, more = self.ship()
                wait, attempt, self._failing = self._wait(size, more=more), 0, ""
            except Exception as error:  # noqa: BLE001  (whatever a broker, a file or a store sends, the agent ships)
                self._fail(error)
                attempt += 1
                wait = max(self._sources.interval, backoff_seconds(attempt))
            self._begun = inf
            self._closed.wait(max(0.0, begun + wait - time.monotonic()))

    def close(self) -> None:
        """Make `run` return soon; any thread may call it."""
        self._closed.set()
        self._requests.close()

    def ship(self) -> tuple[int, bool]:
        """Run one round; return the bytes of its pack, and whether more waits.

        Raises:
            TimeoutError, TieredStorageError, OSError: nothing counts as shipped. The next round reads the log again,
                unless the main thread or the broker failed.
        """
        now, requested = time.monotonic(), time.time()
        backlog = self._sources.backlog()
        self._led.update(backlog, now)
        unread = self._led.note(self._high_watermarks(backlog, now), now)
        is_read, self._is_read = self._is_read, False  # until this round is complete
        self._upkeep.finish()
        if not is_read:
            self._read_log(now)
        self._report(unread, backlog)
        self._continue_chains(now)
        pieces, more = self._read_pieces(now)
        self._adoption.look(self._led, now)
        adopted = self._adoption.read(_ADOPTED_BYTES) if len(pieces) < self._room else []
        size = sum(piece.length for _, piece in (*pieces, *adopted))
        if size or self._upkeep.must_publish(now):
            entries, batches = _pack((*pieces, *adopted))
            try:
                self._packs.put(int(requested * _MILLISECONDS), entries, batches)
            except IndexFull:
                self._most_rows = max(self._most_rows // 2, _LEAST_ROWS)
                self._upkeep.tend(self._led, now)
                self._is_read = True
                return 0, False
            self._most_rows = min(_ROWS, self._most_rows + self._most_rows // 16)
            self._took(pieces, now, requested, size)
            for covered in self._adoption.take(adopted, now):
                self._sources.offer(covered)
        self._upkeep.tend(self._led, now)
        self._is_read = True
        return size, more

    def _wait(self, size: int, *, more: bool) -> float:
        rate = self._sources.rate()
        least = 0.0 if rate is None else size / rate
        return max(least, 0.0 if more else self._sources.interval)

    def _fail(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, TieredStorageError) else f"{type(error).__name__}: {error}"
        self._metrics.errors.labels(SHIP_TAIL, failure_reason(error)).inc()
        if not self._failing:
            self._failing_since = time.monotonic()
        if not self._failing and not self._closed.is_set():
            log.warning("tail_not_shipped", message="repeated", log=self._packs.name, error=reason)
        self._failing = reason

    @property
    def _room(self) -> int:
        """The number of entries that the next pack has room for."""
        return max(0, self._most_rows - sum(len(pack.rows) for pack in self._packs.packs))

    def _read_log(self, now: float) -> None:
        try:
            self._packs.read()
        except (CorruptData, ObjectNotFound) as error:
            self._unreadable += 1
            if self._unreadable < _ANEW_AFTER:
                raise
            log.error("tail_lost", message="shipped again from the next offsets on", error=str(error))
            self._packs.begin_anew()
        self._unreadable = 0
        self._led.begin_again(now)
        self._adoption.begin_again()
        self._upkeep.begin_again()

    def _high_watermarks(self, backlog: Mapping[TopicPartition, Backlog], now: float) -> Mapping[TopicPartition, int]:
        if now >= self._denied_until:
            try:
                found = self._requests.request(self._led.epochs)
            except OperatorError as error:
                if str(error) != self._denied:
                    log.warning("tail_without_broker", message="high watermarks are late", error=str(error))
                self._denied, self._denied_until = str(error), now + _BROKER_SECONDS
            else:
                self._denied = ""
                denied = self._requests.denied
                return {**found, **self._checkpoints(backlog, lambda topic: topic in denied)} if denied else found
        return self._checkpoints(backlog, lambda _: True)

    def _checkpoints(
        self, backlog: Mapping[TopicPartition, Backlog], counts: Callable[[str], bool]
    ) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of the broker's checkpoint, which protocol rule 1 counts in this leadership."""
        return {
            partition: known.high_watermark
            for partition, known in backlog.items()
            if known.high_watermark is not None
            and counts(partition.topic)
            and known.listing.last_epoch.epoch == self._led.epochs.get(partition)
        }

    def _report(self, unread: Sequence[LedPartition], backlog: Mapping[TopicPartition, Backlog]) -> None:
        """Report the broker's answers for partitions without an own commit, whose positions are then read."""
        if self._denied:
            return  # they are the tracker's own
        denied = self._requests.denied
        unread = [led for led in unread if led.partition.topic not in denied]
        for led in unread:
            identity = backlog[led.partition].listing.identity
            self._sources.offer(Answered(led.partition, led.epoch, identity, led.high))
        written = {led.partition for led in unread if led.changes > 1}  # producers write to these
        if written:
            self._sources.offer(EarlyRequest(written))

    def _continue_chains(self, now: float) -> None:
        """Find out where partitions continue whose chain is not known."""
        unknown = [led for led in self._led.waiting.values() if led.end is None]
        logs = TailLogs(self._store, self._keys)  # each is read once, after these commits
        for led in unknown:
            if led.own is None:
                continue
            try:
                chain = logs.chain(led.own.keys, led.own.commit)
                if chain.damage is not None:  # of another agent's log; its entries are shipped again as own ones
                    log.warning("tail_damaged", partition=str(led.partition), error=chain.damage)
                led.continue_at(chain.end, _newest_own(chain, led.epoch))
                if led.high < chain.end:  # then nothing is read of it, and a loss would not show
                    self._piece(led, 0, now)
            except (CorruptData, ObjectNotFound, OperatorError) as error:
                # Also what a later release wrote into another agent's log, or this identity may not read of it.
                lost = self._lost[led.partition] = self._lost.get(led.partition, 0) + 1
                if not isinstance(error, CorruptData) and lost < _ANEW_AFTER:
                    continue  # an object was deleted meanwhile: the next round begins again
                self._metrics.errors.labels(SHIP_TAIL, failure_reason(error)).inc()
                log.warning("tail_damaged", message="shipped again", partition=str(led.partition), error=str(error))
                led.continue_at(led.own.commit.next_offset)
            self._lost.pop(led.partition, None)
            self._led.look(led, now)

    def _read_pieces(self, now: float) -> tuple[list[tuple[LedPartition, Piece]], bool]:
        """Return the batches of the next pack, and whether it has no room for more that waits."""
        pieces: list[tuple[LedPartition, Piece]] = []
        left, of_beginning, more, room = _PACK_BYTES, _BEGINNING_BYTES, False, self._room
        begun, held = time.monotonic(), self._upkeep.held
        for led in _in_order(self._led.waiting.values()):
            most = min(left, of_beginning) if led.is_beginning else left
            if led.end is None or led.own is None or now < self._again.get(led.partition, 0.0):
                continue
            if held and led.own.directory in held:
                continue
            if most <= 0 or len(pieces) >= room:
                return pieces, most <= 0
            if pieces and time.monotonic() - begun > _READING_SECONDS:
                return pieces, True
            piece = self._piece(led, most, now)
            if piece is not None:
                pieces.append((led, piece))
                left -= piece.length
                of_beginning -= piece.length if led.is_beginning else 0
                more |= piece.end < led.high
        return pieces, more

    def _piece(self, led: LedPartition, most: int, now: float) -> Piece | None:
        try:
            piece = led.read(most)
        except SegmentChanged as error:  # the broker works on it: the next round reads it
            since = self._changing.setdefault(led.partition, now)
            if now - since > _CHANGING_SECONDS:
                self._changing[led.partition] = now
                led.is_beginning = False
                self._metrics.errors.labels(SHIP_TAIL, failure_reason(error)).inc()
                log.warning("tail_not_read", message="repeated", partition=str(led.partition), error=str(error))
            return None
        except DataLoss as error:
            self._again[led.partition] = now + _AGAIN_SECONDS
            led.is_lost, led.is_beginning = True, False
            self._led.look(led, now)
            self._metrics.errors.labels(SHIP_TAIL, failure_reason(error)).inc()
            log.error("tail_records_lost", message="repeated", partition=str(led.partition), error=str(error))
            return None
        except (CorruptData, OSError) as error:
            self._again[led.partition] = now + _AGAIN_SECONDS
            led.is_beginning = False  # it is no nearer to its end later: its lag shows that
            self._metrics.errors.labels(SHIP_TAIL, failure_reason(error)).inc()
            log.warning("tail_not_read", message="repeated", partition=str(led.partition), error=str(error))
            return None
        else:
            self._changing.pop(led.partition, None)
            return piece

    def _took(self, pieces: Sequence[tuple[LedPartition, Piece]], now: float, requested: float, size: int) -> None:
        for led, piece in pieces:
            led.take(piece)
            self._again.pop(led.partition, None)
            self._led.look(led, now)
        self._requested = requested
        if left_out := self._upkeep.published(time.monotonic()):
            for led in self._led:
                if led.own is not None and led.own.directory in left_out:
                    led.continue_at(None)
                    self._led.look(led, now)
        self._metrics.tail_packs.inc()
        self._metrics.tail_bytes.inc(size)
        self._metrics.tail_seconds.observe(time.monotonic() - now)


def _newest_own(chain: Chain, epoch: int) -> TailEntry | None:
    """Return the entry that a chain ends with; None if it is of another leadership, or has a dead tail."""
    if not chain.links or chain.links[-1].entry.epoch != epoch or chain.end != chain.links[-1].entry.end:
        return None
    return chain.links[-1].entry


def _held(held: Mapping[str, int]) -> str:
    """Return the sentence about the held partition with the most entries; empty without one."""
    if not held:
        return ""
    name, count = max(held.items(), key=itemgetter(1))
    others = f", and {len(held) - 1} others" if len(held) > 1 else ""
    return f"{name} has {count} entries, and gets no more until its segments close{others}: look why they do not"


def _in_order(waiting: Collection[LedPartition]) -> Iterator[LedPartition]:
    """Yield the partitions in the order of their places in a pack."""
    yield from sorted((led for led in waiting if not led.is_beginning), key=lambda led: led.since or 0.0)
    yield from sorted((led for led in waiting if led.is_beginning), key=lambda led: led.high - (led.end or 0))


def _pack(pieces: Sequence[tuple[LedPartition, Piece]]) -> tuple[list[TailEntry], list[bytes]]:
    """Return the entries and the batches of a pack, grouped by partition."""
    entries: list[TailEntry] = []
    batches: list[bytes] = []
    position = 0
    named = [(led.own.directory, led.epoch, piece) for led, piece in pieces if led.own is not None]
    for directory, epoch, piece in sorted(named, key=itemgetter(0)):
        # `Piece` and `TailEntry` have these in the same order: from `length` to `time_max`.
        entries.append(TailEntry._make((directory, epoch, piece.start, piece.end, "", position, *piece[3:10])))
        batches += piece.data
        position += piece.length
    return entries, batches
