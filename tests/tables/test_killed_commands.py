"""Generations and replays on S3 that are killed at each of their writes, and begun again."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.proxy.s3 import S3FaultProxy
from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_parsed_tables import NAME, Made
from tests.tables.victims import Victim
from ts_common.errors import OperatorError
from ts_tables import Tables

BUCKET = "lake"
SECOND_NAME = f"{NAME}@2"
TEXTS: dict[str, Any] = {"id": "long", "at": "timestamp"}
MENDED: dict[str, Any] = {
    "parser": {"type": "json", "columns": {"id": "long", "at": {"type": "timestamp", "unit": "ms"}}}
}
END = 20


def value_of(offset: int) -> bytes:
    """Return a value: of ten, one is no JSON, and three have the time as text: the others have a number."""
    at = "2026-11-26T00:00:00Z" if offset % 10 < 3 else offset
    return b"{" if offset % 10 == 9 else json.dumps({"id": offset, "at": at}).encode()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with LocalCluster(brokers=0, mode="kraft", s3=True, buckets=[BUCKET], name="killed") as cluster:
        assert cluster.s3 is not None
        yield cluster.s3


class MadeOnS3(Made):
    """A table whose files are on S3, at the server that the environment names."""

    @property
    def location(self) -> str:
        """Where its files are."""
        return f"s3://{BUCKET}{self.directory}"

    @property
    def catalog(self) -> dict[str, str]:
        """The properties of the catalog."""
        return {**super().catalog, "warehouse": f"{self.location}/warehouse"}

    @property
    def content(self) -> dict[str, Any]:
        """The file of tables, as values."""
        found = super().content
        if self.format != "iceberg":
            found["tables"][NAME]["location"] = f"{self.location}/files"
        return found


def run_generation(content: dict[str, Any], environment: dict[str, str]) -> None:
    """Make, run and use the second generation; the main function of a process that is killed."""
    os.environ.update(environment)
    tables = Tables(content, engine=lambda tasks: [task() for task in tasks])
    try:
        tables.create(SECOND_NAME)
        tables.run(SECOND_NAME)
    except OperatorError as error:
        if "tsctl tables switch" not in str(error):  # a former one was killed amid the switch
            raise
    tables.switch(NAME, 2)


def replay(content: dict[str, Any], environment: dict[str, str]) -> None:
    """Replay what was refused; the main function of a process that is killed."""
    os.environ.update(environment)
    Tables(content, engine=lambda tasks: [task() for task in tasks]).replay(NAME)


Command = Callable[[dict[str, Any], dict[str, str]], None]
CASES: list[tuple[Command, str, str]] = [
    *product((run_generation,), ("iceberg",), ("before", "after")),
    *product((replay,), ("iceberg", "parquet"), ("before", "after")),
]


@pytest.mark.parametrize("case", cases(CASES, quick=[]), ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[2]}")
def test_t01_a_command_that_is_killed_at_any_write_is_completed_when_it_runs_again(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[Command, str, str]
) -> None:
    """It is killed at each kind of write that a whole command makes; no record is in both tables, or in neither."""
    command, form, moment = case
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    with S3FaultProxy(s3) as proxy:
        whole, made = (made_table(tmp_path / name, form) for name in ("whole", "killed"))
        if command is replay:
            whole.more = made.more = MENDED
        recording = Victim(proxy, "t", "never")
        assert recording.live(command, whole.content, proxy.environment()) == 0
        victim = Victim(proxy, "t", moment)
        end = END
        for _ in range(4 * len(recording.seen)):
            if command is run_generation:  # a run of each process has something to write
                put(made, end)
                end += END
            if victim.live(command, made.content, proxy.environment()) == 0:
                break
        assert len(recording.seen) >= 5, recording.seen
        assert victim.met >= recording.seen, recording.seen - victim.met
    for each, its_end in ((whole, END), (made, end)):
        each.more = MENDED
        check(each, its_end, refused=4 if command is run_generation else 1)


def made_table(directory: Path, form: str) -> Made:
    """Return a table that was run with a parser that refuses numbers; its second generation refuses texts."""
    first = {"parser": {"type": "json", "columns": TEXTS}, "generations": {2: MENDED}}
    made = MadeOnS3(MadeArchive(directory / "archive"), directory / "t", form, first)
    put(made, 0)
    made.tables.create(NAME)
    made.tables.run(NAME)
    return made


def put(made: Made, start: int) -> None:
    """Add records to each partition."""
    for partition in range(2):
        made.put_values(start, [value_of(offset) for offset in range(start, start + END)], partition=partition)


def check(made: Made, end: int, refused: int) -> None:
    """Each record is in one of both tables, and so many of ten are refused."""
    compared = made.tables.verify(NAME)
    assert compared.differences == ()
    assert compared.rows == 2 * end
    done = made.tables.replay(NAME)
    assert (done.moved, done.left) == (0, 2 * end * refused // 10)
