"""ListOffsets and OffsetForLeaderEpoch at the edges of a view, as a broker answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import Answer, Served, fetch, list_offset, run, serving
from tests.endpoint.requests.test_changes import end_of_epoch
from tests.made_archive import MadeArchive, batches
from tests.reader.test_views import JAVA
from tests.transactions import data, ended
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.factory import open_store

GREATEST = -3


def in_a_dead_tail(archive: MadeArchive) -> None:
    """The records from 20 on that an election removed are the latest."""
    archive.put_segment("t", 0, batches((0, 20)) + batches((20, 40), time=9000))
    archive.put_segment("t", 0, batches((0, 20)) + batches((20, 30), epoch=2), variant=True)
    archive.commit("t", 30, epochs=((0, 0), (2, 20)))


def below_the_start(archive: MadeArchive) -> None:
    """Retention is about to remove the latest records."""
    archive.put_segment("t", 0, batches((0, 10), time=9000) + batches((10, 20)))
    archive.put_segment("t", 20, batches((20, 30)))
    archive.commit("t", 30, highest_base=20, log_start=10)


def above_the_end(archive: MadeArchive) -> None:
    """The segment is longer than what is committed."""
    archive.put_segment("t", 0, batches((0, 30)) + batches((30, 40), time=9000))
    archive.commit("t", 30)


def of_a_marker(archive: MadeArchive) -> None:
    """A transaction ends later than its last record."""
    archive.put_segment("t", 0, batches((0, 28)) + data(28, 1001) + data(29, 1029) + ended(30, 9000))
    archive.commit("t", 31, last_stable_offset=31)


def of_a_marker_before_a_dead_tail(archive: MadeArchive) -> None:
    """The same object has later records, which an election removed."""
    archive.put_segment("t", 0, batches((0, 28)) + data(28, 1001) + ended(29, 1029) + batches((30, 40), time=9000))
    archive.put_segment("t", 30, batches((30, 31), time=990, epoch=2))
    archive.commit("t", 31, highest_base=30, epochs=((0, 0), (2, 30)), last_stable_offset=31)


def of_two_segments(archive: MadeArchive) -> None:
    """Both have the greatest timestamp: the first record with it counts."""
    archive.put_segment("t", 0, batches((0, 30)))
    archive.put_segment("t", 30, batches((30, 31), time=999))
    archive.commit("t", 31, highest_base=30)


@pytest.mark.parametrize(
    ("make", "greatest"),
    [
        (in_a_dead_tail, (29, 1029)),
        (below_the_start, (29, 1029)),
        (above_the_end, (29, 1029)),
        (of_a_marker, (30, 9000)),
        (of_a_marker_before_a_dead_tail, (29, 1029)),
        (of_two_segments, (29, 1029)),
    ],
)
def test_the_greatest_timestamp_is_of_a_record_or_a_marker_of_the_view(
    tmp_path: Path, make: Callable[[MadeArchive], None], greatest: tuple[int, int]
) -> None:
    """KIP-734, whatever else the segments have; a broker uses all batches, markers too."""
    archive = MadeArchive(tmp_path / "archive")
    make(archive)

    async def read() -> tuple[int, int]:
        with serving(archive.store, archive.keys) as served:
            found = await list_offset(served, "t", GREATEST)
            return found["offset"], found["timestamp"]

    assert run(read) == greatest


def test_committed_reads_have_no_greatest_timestamp_if_an_open_transaction_has_it(tmp_path: Path) -> None:
    """As a broker, which does not look for the greatest one below the last stable offset."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)) + data(10, 9000))
    archive.commit("t", 11, last_stable_offset=10)

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            return [(await list_offset(served, "t", GREATEST, committed=each))["offset"] for each in (False, True)]

    assert run(read) == [10, -1]


@pytest.mark.parametrize(
    ("time", "expected"),
    [(1, (0, 1)), (2, (1, 5)), (5, (1, 5)), (6, (3, 9)), (9, (3, 9)), (10, (5, 20)), (20, (5, 20)), (21, (-1, -1))],
)
def test_a_transaction_marker_counts_for_a_time(tmp_path: Path, time: int, expected: tuple[int, int]) -> None:
    """As for a broker, whose batches of markers have timestamps too; also if no record is at or after the time."""
    archive = MadeArchive(tmp_path / "archive")
    log = [data(0, 1, 7), ended(1, 5, 7), data(2, 3, 8), ended(3, 9, 8), data(4, 8, 7), ended(5, 20, 7)]
    archive.put_segment("t", 0, b"".join(log))
    archive.commit("t", 6, last_stable_offset=6)

    async def read() -> tuple[int, int]:
        with serving(archive.store, archive.keys) as served:
            found = await list_offset(served, "t", time)
            return found["offset"], found["timestamp"]

    assert run(read) == expected


def test_the_greatest_timestamp_of_a_bucket_of_the_java_uploader_is_found() -> None:
    """Its segments have no metadata."""

    async def read() -> tuple[int, int]:
        with open_store(JAVA) as store, serving(store, ClusterKeys("my_test_kafka_cluster", 3)) as served:
            greatest = await list_offset(served, "appendtime", GREATEST)
            later = await list_offset(served, "appendtime", greatest["timestamp"] + 1)
            first = await list_offset(served, "appendtime", greatest["timestamp"])
            assert greatest["offset"] == first["offset"] >= 0
            return later["offset"], first["timestamp"] - greatest["timestamp"]

    assert run(read) == (-1, 0)


def test_a_view_without_records_has_no_greatest_timestamp(tmp_path: Path) -> None:
    """As a broker answers for an empty partition: offset and timestamp -1, and no error."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10, log_start=10)

    async def read() -> dict[str, Any]:
        with serving(archive.store, archive.keys) as served:
            return await list_offset(served, "t", GREATEST)

    assert run(read) == {"partition_index": 0, "timestamp": -1, "offset": -1, "leader_epoch": -1}


def test_the_last_stable_offset_is_never_below_the_start(tmp_path: Path) -> None:
    """Retention moved the start into an open transaction: a committed client waits at the start, and is not lost."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.put_segment("t", 10, batches((10, 30)))
    archive.commit("t", 30, highest_base=10, log_start=10, last_stable_offset=5)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            assert (await list_offset(served, "t", -1, committed=True))["offset"] == 10
            answer = await fetch(served, "t", 10, committed=True, max_wait=0.0)
            assert (answer.error, answer.records, answer.values["last_stable_offset"]) == (ErrorCode.none, b"", 10)

    run(read)


@pytest.mark.parametrize(
    ("epoch", "ended_at"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),
        (3, (3, 0)),
        (4, (4, 10)),
        (5, (4, 10)),
        (6, (6, 20)),
        (7, (6, 20)),
        (8, (8, 20)),
        (9, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_that_of_a_leader(tmp_path: Path, epoch: int, ended_at: tuple[int, int]) -> None:
    """The last leader, of epoch 8, has committed no record of its own yet; -1 is no epoch."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10), epoch=4) + batches((10, 20), epoch=6))
    archive.commit("t", 20, epochs=((4, 0), (6, 10)), epoch=8)

    async def read() -> tuple[int, int]:
        with serving(archive.store, archive.keys) as served:
            found = await end_of_epoch(served, epoch)
            assert "error_code" not in found
            return found["leader_epoch"], found["end_offset"]

    assert run(read) == ended_at


@pytest.mark.parametrize(
    ("offset", "fetched", "error", "diverging"),
    [
        (5, 4, ErrorCode.none, None),
        (15, 4, ErrorCode.none, (4, 10)),
        (15, 5, ErrorCode.none, (4, 10)),
        (8, 5, ErrorCode.none, (4, 10)),
        (15, 6, ErrorCode.none, None),
        (25, 6, ErrorCode.none, (6, 20)),
        (15, 9, ErrorCode.offset_out_of_range, None),
        (15, -1, ErrorCode.none, None),
    ],
)
def test_a_fetch_whose_last_epoch_ended_before_gets_the_place_where_the_logs_part(
    tmp_path: Path, offset: int, fetched: int, error: ErrorCode, diverging: tuple[int, int] | None
) -> None:
    """As a leader answers (KIP-595), without records; an epoch that is later than all is out of range."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10), epoch=4) + batches((10, 20), epoch=6))
    archive.commit("t", 20, epochs=((4, 0), (6, 10)))

    async def read() -> Answer:
        with serving(archive.store, archive.keys) as served:
            return await fetch(served, "t", offset, fetched=fetched, max_wait=30.0)

    answer: Answer = run(read)
    found = answer.values.get("diverging_epoch")
    assert (answer.error, found and (found["epoch"], found["end_offset"])) == (error, diverging)
    assert bool(answer.records) == (error is ErrorCode.none and diverging is None)


def test_a_client_with_a_later_epoch_makes_this_process_look_again(tmp_path: Path) -> None:
    """Its metadata is of another process, or of a later commit: it gets no UNKNOWN_LEADER_EPOCH."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 10), epoch=4))
    archive.commit("t", 10, epochs=((4, 0),))

    def elect(epoch: int) -> None:
        archive.commit("t", 10, epochs=((4, 0),), epoch=epoch)

    async def read(served: Served) -> None:
        await list_offset(served, "t", -1)
        elect(6)
        assert (await end_of_epoch(served, 4, current=6))["end_offset"] == 10
        elect(7)
        assert (await list_offset(served, "t", -1, epoch=7))["offset"] == 10

    async def read_all() -> None:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            await read(served)

    run(read_all)
