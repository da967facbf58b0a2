"""`python -m dev.bench.cold_sql`: `tsctl sql` on one minute out of a day, in a cold process.

A topic of two partitions in a directory has a day of records: a batch of 51 each second, in segments of an hour. Each
round starts two fresh processes, with the compiled code cached, as an installation of `tsctl` has it
(`dev.bench.measuring.installation`).

- `tsctl sql` with `--from` and `--to` counts the records of one minute;
- Python imports DuckDB and pyarrow, and counts as many rows of a table in memory.

The goal: at most twice the time. Exits with 1 if it is missed; `--no-gate` only prints.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dev.bench.measuring.installation import as_installed
from dev.bench.measuring.made_archives import (
    CLUSTER,
    RECORDS_A_BATCH,
    TIME,
    ZSTD,
    ship,
    small_records,
    template_segment,
)
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, median_ratio, print_goals, print_table, rounds
from ts_common.store.factory import open_store

TIMES: Final = 2.0
PARTITIONS: Final = 2
HOURS: Final = 24
BATCHES: Final = 3600  # of an hour
SQL, PEER = "tsctl sql", "python, duckdb, pyarrow"
_MINUTE: Final = 60_000
_FROM: Final = TIME + 13 * 3_600_000 + 37 * _MINUTE
_ROWS: Final = PARTITIONS * 60 * RECORDS_A_BATCH
_PEER: Final = f"""
import duckdb, pyarrow
rows = pyarrow.table({{"partition": pyarrow.array([n % 2 for n in range({_ROWS})])}})
print(duckdb.sql("select count(*) from rows").fetchall()[0][0])
"""


def fill(location: str) -> None:
    """Put a day of records."""
    pattern = small_records(RECORDS_A_BATCH, ZSTD)
    with open_store(location) as store:
        for partition in range(PARTITIONS):
            count = RECORDS_A_BATCH * BATCHES
            made = [
                (
                    hour * count,
                    template_segment(pattern, hour * count, RECORDS_A_BATCH, BATCHES, TIME + hour * 3_600_000, 1000),
                )
                for hour in range(HOURS)
            ]
            ship(store, "events", made, HOURS * count, partition)


def seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the seconds of a fresh process that counts the rows of the minute.

    Raises:
        RuntimeError: it counted others.
    """
    began = time.perf_counter()
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    elapsed = time.perf_counter() - began
    if ended.stdout.split()[-1] != str(_ROWS):
        raise RuntimeError(f"{_ROWS} rows were expected: {ended.stdout}")
    return elapsed


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--repeat", type=int, default=10, help="rounds, after two that warm up")
    options = arguments.parse_args()
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-cold-sql.", dir=build) as directory:
        location = Path(directory).as_uri()
        fill(location)
        installed = as_installed(Path(directory) / "site")
        tsctl = [str(Path(sys.executable).with_name("tsctl")), "sql", "--url", location, "--cluster", CLUSTER]
        window = ["--from", f"@{_FROM}", "--to", f"@{_FROM + _MINUTE}"]
        things = {
            SQL: partial(seconds, [*tsctl, *window, "--format", "csv", "select count(*) as n from events"], installed),
            PEER: partial(seconds, [sys.executable, "-c", _PEER], installed),
        }
        found = rounds(things, options.repeat, warm_up=2)
    print_table(("seconds, median", *found), [("", *(statistics.median(times) for times in found.values()))])
    print()
    ratio = median_ratio(found[SQL], found[PEER])
    return exit_code(print_goals([Goal(f"{SQL} / {PEER}", ratio, TIMES, at_least=False)]), options)


if __name__ == "__main__":
    sys.exit(main())
