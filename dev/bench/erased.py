"""`python -m dev.bench.erased`: the CPU of reading a segment of 32 MiB with erased offsets, next to the same without.

Records of 300 bytes in batches of 16 KiB that differ, compressed by LZ4. The erased offsets are spread evenly. Rows are
keys, values and offsets, as a scan reads them. Figures are CPU seconds of this process, and medians of the rounds'
ratios.

Exits with 1 if a goal is missed; `--no-gate` only prints.
"""

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from dev.bench.decode import build
from dev.bench.measuring.made_archives import CLUSTER, ship
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from ts_common.archive.catalog import read_catalog
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.decode.codecs import Codec
from ts_reader.reading.rows import read_ranges

SEGMENT_BYTES: Final = 32 << 20
COUNTS: Final = (0, 10, 1000, 10_000)
MOST_RATIO: Final = 1.3
_ROUNDS: Final = 9


def spread(count: int, records: int) -> ErasedOffsets:
    """Return so many erased offsets of a segment, spread evenly."""
    places = (records * number // count for number in range(count))
    return ErasedOffsets.of((offset, offset + 1, 0) for offset in places)


def cpu_seconds(store: ObjectStore, view: PartitionView, erased: ErasedOffsets, expected: int) -> float:
    """Return the CPU seconds of a scan."""
    began = time.process_time()
    ranges = view.ranges(view.start, view.end)
    rows = sum(rows.num_rows for rows in read_ranges(store, ranges, ["key", "value", "offset"], erased=erased))
    ended = time.process_time()
    assert rows == expected, (rows, expected)
    return ended - began


def main() -> int:
    """Measure, and print the table and the goal."""
    options = gate_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as directory, open_store(Path(directory).as_uri()) as store:
        segment = build(Codec.LZ4, SEGMENT_BYTES)
        ship(store, "t", [(0, (segment.data, b"", b""))], segment.records)
        view = open_view(store, read_catalog(store, ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))))
        runs = {
            str(count): partial(cpu_seconds, store, view, spread(count, segment.records), segment.records - count)
            for count in COUNTS
        }
        found = rounds(runs, _ROUNDS, warm_up=1)
    ratios = {count: median_ratio(found[count], found["0"]) for count in found}
    print_table(
        ("erased offsets", "CPU s", "of that without"),
        [(count, f"{statistics.median(each):.3f}", f"{ratios[count]:.2f}") for count, each in found.items()],
    )
    goal = Goal("CPU with 1,000 erased offsets, of that without", ratios["1000"], MOST_RATIO, at_least=False)
    return exit_code(print_goals([goal]), options)


if __name__ == "__main__":
    raise SystemExit(main())
