"""`python -m dev.bench.pruning`: the share of an archive that a query on a small range of it fetches.

It measures bytes, not time: those of `.log` objects and indexes that planning and reading fetch, as a share of the
topic's `.log` bytes. Two topics in a directory have batches of 16 KiB with an index entry each, as a broker writes
them:

- `day`: 1,440 segments of one minute; the query is for one minute in the middle;
- `large`: one segment; the query is for 1 % of it in the middle.

Both queries use options (timestamps, offsets), and filters as Spark passes them. Timestamps may go back, and only
batches of one record (or of the broker's time) prove their least timestamp. So the upper bound of a filter on
timestamps prunes nothing in batches of many records: that figure is printed without a goal. Exits with 1 if a goal is
missed; `--no-gate` only prints.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import Filter, GreaterThanOrEqual, LessThan

from dev.bench.measuring.made_archives import CLUSTER, RECORDS_A_BATCH, TIME, ship, small_records, template_segment
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader.query.plan_query import plan_query
from ts_reader.query.read_split import read_split
from ts_spark.options.filters import query_filters
from ts_spark.options.parse import parse_options

SHARE: Final = 2.0  # percent
MINUTES: Final = 1440
BATCHES_A_MINUTE: Final = 4
MINUTE_MS: Final = 60_000
BATCH_MS: Final = MINUTE_MS // BATCHES_A_MINUTE
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


class CountingStore(WrappedStore):
    """Counts the bytes that are read through it."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.fetched = 0

    @contextmanager
    def _counted(self, opened: AbstractContextManager[ObjectStream]) -> Iterator[ObjectStream]:
        with opened as stream:
            yield _CountingStream(self, stream)

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Open as the inner store."""
        return self._counted(self._inner.open(key, byte_range))


class _CountingStream:
    def __init__(self, store: CountingStore, stream: ObjectStream) -> None:
        self._store, self._stream, self.info = store, stream, stream.info

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._store.fetched += len(data)
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        count = self._stream.readinto(buffer)
        self._store.fetched += count
        return count


def day(store: ObjectStore, topic: str, records: int) -> int:
    """Put a segment for each minute."""
    pattern, offsets = small_records(records), records * BATCHES_A_MINUTE
    segments = [
        (
            number * offsets,
            template_segment(pattern, number * offsets, records, BATCHES_A_MINUTE, TIME + number * MINUTE_MS, BATCH_MS),
        )
        for number in range(MINUTES)
    ]
    return ship(store, topic, segments, MINUTES * offsets)


def share(
    store: CountingStore, topic: str, total: int, options: Mapping[str, int], filters: Sequence[Filter] = ()
) -> tuple[float, int]:
    """Return the percentage of the topic's bytes that one query fetches, and the number of rows before the filters."""
    store.fetched = 0
    given = {"path": store.location, "cluster": CLUSTER, "subscribe": topic}
    query = parse_options({**given, **{name: str(value) for name, value in options.items()}}).query
    plan = plan_query(store, query, query_filters(filters))
    rows = sum(b.num_rows for split in plan.splits for b in read_split(store, split, _COLUMNS))
    return 100 * store.fetched / total, rows


def between(start: int, end: int) -> tuple[Filter, Filter]:
    """Return a filter on timestamps, as Spark passes it."""
    at = [_EPOCH + timedelta(milliseconds=ms) for ms in (start, end)]
    return GreaterThanOrEqual(("timestamp",), at[0]), LessThan(("timestamp",), at[1])


def main() -> int:
    """Fill, query, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--mebibytes", type=int, default=1024, help="size of the large segment")
    options = arguments.parse_args()
    goals, rows = [], []

    def ask(what: str, found: tuple[float, int], expected: int, *, goal: bool = True) -> None:
        rows.append((what, found[0], found[1], expected))
        if found[1] < expected:
            raise RuntimeError(f"{what}: {found[1]} rows, and {expected} match")
        if goal:
            goals.append(Goal(what, found[0], SHARE, at_least=False, unit=" %"))

    with tempfile.TemporaryDirectory(prefix="bench-pruning.") as directory:
        store = CountingStore(open_store(Path(directory).as_uri()))
        minute = (TIME + 700 * MINUTE_MS, TIME + 701 * MINUTE_MS)
        for topic, records in (("day-many", RECORDS_A_BATCH), ("day-one", 1)):
            total, asked = day(store, topic, records), BATCHES_A_MINUTE * records
            by_options = {"startingTimestamp": minute[0], "endingTimestamp": minute[1]}
            ask(f"{topic}: a minute, options", share(store, topic, total, by_options), asked)
            by_filters = share(store, topic, total, {}, between(*minute))
            ask(f"{topic}: a minute, filters", by_filters, asked, goal=records == 1)

        pattern = small_records(RECORDS_A_BATCH)
        batches = (options.mebibytes << 20) // len(pattern)
        total = ship(
            store,
            "large",
            [(0, template_segment(pattern, 0, RECORDS_A_BATCH, batches, TIME, 100))],
            batches * RECORDS_A_BATCH,
        )
        first, last = batches // 2, batches // 2 + batches // 100
        asked = (last - first) * RECORDS_A_BATCH
        times = (TIME + first * 100, TIME + last * 100)
        by_options = {"startingTimestamp": times[0], "endingTimestamp": times[1]}
        ask("large: 1 %, options", share(store, "large", total, by_options), asked)
        offsets = (first * RECORDS_A_BATCH, last * RECORDS_A_BATCH)
        by_offsets = (GreaterThanOrEqual(("offset",), offsets[0]), LessThan(("offset",), offsets[1]))
        ask("large: 1 %, filter on offsets", share(store, "large", total, {}, by_offsets), asked)
        ask("large: 1 %, filters on time", share(store, "large", total, {}, between(*times)), asked, goal=False)
    print_table(("", "% of bytes", "rows read", "rows that match"), rows)
    print()
    missed = print_goals(goals)
    return exit_code(missed, options)


if __name__ == "__main__":
    sys.exit(main())
