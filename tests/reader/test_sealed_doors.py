"""Each reader returns the same by sealed objects as by a listing (reading rule 10)."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.endpoint.clients import list_offset, read_all, run, serving
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_seals import NEVER, SEALED, STEP, looking_for_seals, put_sealed
from tests.tables.made_tables import MadeTable
from tests.tsctl.running import runner
from ts_common.archive.catalog import read_catalog
from ts_common.archive.view import open_view
from ts_endpoint.topics.erasures import Erasures
from ts_endpoint.topics.partitions import Partition
from ts_endpoint.topics.tails import Tails
from ts_reader import Archive
from ts_reader.following.follower import Follower
from ts_reader.query.query import Edge, Query, Subscription
from ts_reader.reading.first_offset import first_offset_at, search_for
from ts_reader.reading.transactions import find_hidden, stable_end

SHAPES = ("tail", "late segment", "late index", "corrupt index", "no transactions")
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.fixture(params=SHAPES)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> MadeArchive:
    """Topic `t`, whose first segments are sealed."""
    made = MadeArchive(tmp_path / "store")
    put_sealed(made, request.param)
    return made


def by_both(door: Callable[[], Any]) -> Any:
    """Return what a reader returns by sealed objects, and check that it is what it returns by a listing."""
    with looking_for_seals(1) as read:
        found = door()
    assert read
    with looking_for_seals(NEVER) as read:
        listed = door()
    assert not read
    assert found == listed
    return found


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_clients_of_the_endpoint(archive: MadeArchive, isolation: str) -> None:
    """Rows from each offset, and the offset of each timestamp."""

    def door() -> list[Any]:
        found: list[Any] = []

        async def read() -> None:
            with serving(archive.store, archive.keys) as served:
                is_committed = isolation == "read_committed"
                starts, times = (0, 5, 11, SEALED * STEP - 1, SEALED * STEP + 2), (-2, -1, -3, 1000, 1009, 1023, 5000)
                found.extend([await read_all(served, "t", start=each, committed=is_committed) for each in starts])
                found.extend([await list_offset(served, "t", each, committed=is_committed) for each in times])

        run(read)
        return found

    assert len(by_both(door)[0]) >= SEALED * STEP - 6


def test_the_endpoint_reads_a_sealed_object_once(tmp_path: Path) -> None:
    """It never changes, so a later snapshot uses the one in memory."""
    archive = MadeArchive(tmp_path / "store")
    put_sealed(archive, "tail")
    erasures, tails = Erasures(archive.store, archive.keys), Tails(archive.store, archive.keys)
    partition = Partition(archive.store, archive.partition("t"), 0.0, erasures, tails)

    async def renew() -> None:
        first = await partition.renewed()
        assert await partition.renewed() is first
        assert [first.number_at(offset) for offset in (0, 3, 4, 23, 24, 31)] == [0, 0, 1, 5, 6, 7]

    with looking_for_seals(1) as read:
        run(renew)
    assert len(read) == 1


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_stream(archive: MadeArchive, isolation: str) -> None:
    """The ranges and the aborted transactions of steps of some offsets each."""

    def door() -> list[Any]:
        query = Query(
            archive.location,
            CLUSTER,
            0,
            Subscription(("t",)),
            Edge.EARLIEST,
            read_committed=isolation == "read_committed",
        )
        following = Follower(archive.store, query, lambda _: None)
        at, found = following.beginning(), list[Any]()
        for _ in range(4):
            look = following.look()
            end = following.end_of_step(at, following.furthest(at, look), look, 9)
            found += [
                (part.start, part.end, [copy.key for copy in part.copies], split.aborted)
                for split in following.plan(at, end).splits
                for part in split.ranges
            ]
            at = end
        return found

    assert by_both(door)


def test_a_table(archive: MadeArchive, tmp_path: Path) -> None:
    """Rows and claims of a table that begins with sealed segments; its comparison finds each row."""
    numbers = count()

    def door() -> list[Any]:
        table = MadeTable(archive, tmp_path / f"lake-{next(numbers)}")
        table.create()
        table.run()
        return [(row["partition"], row["offset"], row["value"]) for row in table.rows()]

    assert by_both(door)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_query(archive: MadeArchive, isolation: str) -> None:
    """Rows of `tsctl cat`, `tsctl sql` and `ts_reader`, which have one plan; of all, and of a window of time."""

    def door() -> list[Any]:
        scan = Archive(archive.location, CLUSTER).scan("t", isolation_level=isolation)
        window = Archive(archive.location, CLUSTER).scan("t", isolation_level=isolation, starting_timestamp=1009)
        return [scan.to_table().to_pylist(), window.to_table().to_pylist()]

    assert by_both(door)


def test_tsctl_get(archive: MadeArchive, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The files of a range."""
    numbers = count()

    def door() -> dict[str, bytes]:
        directory = tmp_path / f"got-{next(numbers)}"
        ended = runner(capfd)(
            "get", "t", directory, "--from", 5, "--to", 26, "--url", archive.location, "--cluster", CLUSTER
        )
        assert ended.code == 0, ended.err
        return {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }

    assert by_both(door)


def test_transactions_and_timestamps(archive: MadeArchive) -> None:
    """What `read_committed` hides in each window of offsets, and the first offset of each timestamp."""
    keys = archive.partition("t")

    def door() -> list[Any]:
        view = open_view(archive.store, read_catalog(archive.store, keys, seals=True))
        windows = [(start, stop) for start in range(0, view.end, 3) for stop in range(start + 1, view.end + 1, 4)]
        hidden = [find_hidden(archive.store, view, *window) for window in windows]
        times = [
            first_offset_at(view, search_for(archive.store, time, erased=view.erased), least=time)
            for time in range(998, 1000 + view.end)
        ]
        return [hidden, times, stable_end(archive.store, view)]

    assert by_both(door)
