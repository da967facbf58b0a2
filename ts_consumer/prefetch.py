"""Reading ahead: the record batches of partitions that are read from the archive, within one limit of bytes.

Threads read one batch at a time, so that a partition whose application is slow holds no thread. Only some partitions
are read at once. The others wait, and each is read for a bounded number of bytes before the next one's turn.
"""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from ts_consumer.archive_tier import HistoryPlan
from ts_consumer.messages import COLUMNS
from ts_reader.decode.memory import RecycledMemory
from ts_reader.query.read_split import read_split

_THREADS: Final = 4
_BYTES_OF_A_READER: Final = 4 << 20  # at least; so many partitions are read at once as the limit has room for
_TURN_BYTES: Final = 64 << 20  # of a partition, before another one that waits is read


class Reading:
    """A plan that is being read; it belongs to one partition, and to one generation of it.

    Attributes:
        buffered: batches that the application has not got.
        has_ended: whether all batches were read; then there may still be buffered ones.
        error: what ended the reading.
    """

    def __init__(self, plan: HistoryPlan) -> None:
        self.plan = plan
        self.buffered: deque[pa.RecordBatch] = deque()
        self.nbytes = 0
        self.has_ended = False
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.is_running = False  # a thread reads its next batch
        self.turn_bytes = 0
        self.batches: Iterator[pa.RecordBatch] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more arrives, and nothing is buffered."""
        return (self.has_ended or self.error is not None) and not self.buffered


class Prefetch:
    """Reads plans ahead; used by the application's thread, and closed by it.

    Attributes:
        arrived: is notified when a batch, an end or an error has arrived; its lock guards all readings.
        nbytes: of all buffered batches.

    Args:
        most_bytes: of buffered batches.
    """

    def __init__(self, most_bytes: int) -> None:
        self.arrived = threading.Condition()
        self._most_bytes = most_bytes
        self._most_active = max(1, most_bytes // _BYTES_OF_A_READER)
        self.nbytes = 0
        self._active: set[Reading] = set()
        self._waiting: deque[Reading] = deque()
        self._memory = RecycledMemory()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="archive-reads")
        self._is_closed = False

    def begin(self, plan: HistoryPlan) -> Reading:
        """Begin to read a plan."""
        reading = Reading(plan)
        with self.arrived:
            self._waiting.append(reading)
            self._go_on()
        return reading

    def take(self, reading: Reading) -> pa.RecordBatch | None:
        """Return the next batch; None if it has not arrived yet, or after the last one."""
        with self.arrived:
            if not reading.buffered:
                return None
            batch = reading.buffered.popleft()
            reading.nbytes -= batch.nbytes
            self.nbytes -= batch.nbytes
            self._go_on()
            return batch

    def cancel(self, reading: Reading) -> None:
        """End a reading, and drop what it has; a batch that arrives later is dropped."""
        with self.arrived:
            reading.is_cancelled = True
            self.nbytes -= reading.nbytes
            reading.nbytes = 0
            reading.buffered.clear()
            if reading in self._waiting:
                self._waiting.remove(reading)
            self._leave(reading)
            self._go_on()

    def close(self) -> None:
        """End all readings. A request in progress ends by itself, and what it returns is dropped."""
        with self.arrived:
            self._is_closed = True
            for reading in [*self._active, *self._waiting]:
                reading.is_cancelled = True
                reading.buffered.clear()
                self._leave(reading)
            self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._memory.trim()

    def _go_on(self) -> None:
        """Read the next batch of each active reading that has room; the lock is held."""
        if self._is_closed:
            return
        while self._waiting and len(self._active) < self._most_active:
            reading = self._waiting.popleft()
            reading.turn_bytes = 0
            self._active.add(reading)
        share = self._most_bytes // max(1, len(self._active)) // 2
        for reading in self._active:
            is_done = reading.has_ended or reading.error is not None
            if not reading.is_running and not is_done and (not reading.buffered or reading.nbytes < share):
                reading.is_running = True
                self._executor.submit(self._read, reading)

    def _read(self, reading: Reading) -> None:
        batch: pa.RecordBatch | None = None
        error: BaseException | None = None
        try:
            if reading.batches is None:
                reading.batches = self._batches(reading.plan)
            batch = next(reading.batches, None)
        except BaseException as raised:  # noqa: BLE001  (the application's thread raises it)
            error = raised
        with self.arrived:
            self._arrive(reading, batch, error)
            self.arrived.notify_all()

    def _arrive(self, reading: Reading, batch: pa.RecordBatch | None, error: BaseException | None) -> None:
        reading.is_running = False
        if reading.is_cancelled:
            self._leave(reading)
        elif error is not None:
            reading.error = error
            self._leave(reading)
        elif batch is None:
            reading.has_ended = True
            self._leave(reading)
        else:
            reading.buffered.append(batch)
            reading.nbytes += batch.nbytes
            self.nbytes += batch.nbytes
            reading.turn_bytes += batch.nbytes
            if self._waiting and reading.turn_bytes >= _TURN_BYTES:  # it continues after the others
                self._active.discard(reading)
                self._waiting.append(reading)
        self._go_on()

    def _leave(self, reading: Reading) -> None:
        if reading.is_running:  # its thread ends it
            return
        self._active.discard(reading)
        _end(reading)

    def _batches(self, plan: HistoryPlan) -> Iterator[pa.RecordBatch]:
        for split in plan.splits:
            for rows in read_split(plan.store, split, COLUMNS, self._memory):
                if rows.num_rows:
                    yield rows


def _end(reading: Reading) -> None:
    """Close the connection that a reading has open."""
    close = getattr(reading.batches, "close", None)
    reading.batches = None
    if close is not None:
        close()
