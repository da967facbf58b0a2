"""Live tails: what clients get above the next offset, what wakes a Fetch, and what it costs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tests.endpoint.clients import (
    Served,
    batches_of,
    call,
    consumed,
    fetch,
    list_offset,
    module_of,
    read_all,
    run,
    serving,
)
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry
from tests.reader.shapes import txnindex_entry
from tests.transactions import ABORT, COMMIT, data, ended
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import pack_name
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ByteRange, ObjectInfo, ObjectStore, ObjectStream
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_endpoint.protocol.versions import Api
from ts_endpoint.requests import fetch as fetch_handler
from ts_endpoint.topics import tails

EPOCHS = module_of(Api.OFFSET_FOR_LEADER_EPOCH)
HOUR = 3600.0


@pytest.fixture(autouse=True)
def _packs_are_requested_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "FOLLOW_SECONDS", 0.02)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeArchive:
    """An archive with a closed segment `[0, 50)`; Fetches wait as long as a slow machine needs."""
    monkeypatch.setattr(fetch_handler, "LEAST_LOAD_SECONDS", 60.0)
    monkeypatch.setattr(fetch_handler, "_MOST_SECONDS", HOUR)
    made = MadeArchive(tmp_path / "archive")
    made.put_segment("t", 0, batches(*steps(0, 50)))
    commit(made)
    return made


def commit(archive: MadeArchive, *ahead: tuple[int, int], next_offset: int = 50, **fields: Any) -> None:
    """Commit the closed segment, with the log of broker 1."""
    live = Live("1", tuple(fields.pop("former", ())), EpochHistory(ahead or ((0, next_offset),)))
    archive.commit("t", next_offset, **{"live": live, "last_stable_offset": next_offset, **fields})


def made(archive: MadeArchive, *ranges: tuple[int, int], epoch: int = 0) -> Any:
    """Return an entry of plain records."""
    return entry(archive, "t", ranges[0][0], batches(*ranges, epoch=epoch), epoch=epoch)


class Recorded(WrappedStore):
    """A store that records its requests, and can be away."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.requests: list[str] = []
        self.is_away = False
        self.error: type[Exception] = StoreUnavailable

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        self._note(f"GET {key}")
        return self._inner.open(key, byte_range)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._note(f"LIST {prefix}")
        return self._inner.list(prefix, start_after=start_after)

    def _note(self, request: str) -> None:
        self.requests.append(request)
        if self.is_away and "/tail/" in request:
            raise self.error(request)

    @property
    def of_tail(self) -> Sequence[str]:
        return [request for request in self.requests if "/tail/" in request]


def served(archive: MadeArchive, work: Callable[[Served], Awaitable[Any]], **options: Any) -> Any:
    """Return what a coroutine function returns that uses an endpoint; its commits stay in memory for an hour."""

    async def serve() -> Any:
        store = options.pop("store", archive.store)
        with serving(store, archive.keys, **{"refresh_seconds": HOUR, **options}) as endpoint:
            return await asyncio.wait_for(work(endpoint), 120)

    return run(serve)


@pytest.mark.parametrize("committed", [False, True])
def test_clients_read_closed_segments_and_then_the_tail(archive: MadeArchive, committed: bool) -> None:
    """Each offset once, by entries of several packs; the first begins below the next offset."""
    tail = MadeTail(archive)
    tail.put(made(archive, (45, 50), (50, 55)))
    tail.put(made(archive, (55, 70), (70, 80)))

    async def work(endpoint: Served) -> list[int]:
        assert (await list_offset(endpoint, "t", -1, committed=committed))["offset"] == 80
        return [row["offset"] for row in await read_all(endpoint, "t", committed=committed)]

    assert served(archive, work) == list(range(80))


def test_batches_of_the_tail_are_the_bytes_of_the_broker(archive: MadeArchive) -> None:
    """Nothing is encoded again, and the high watermark is the end of the chain."""
    body = batches((50, 55), (55, 60))
    MadeTail(archive).put(entry(archive, "t", 50, body))

    async def work(endpoint: Served) -> None:
        answer = await fetch(endpoint, "t", 50)
        assert answer.records == body
        assert answer.values["high_watermark"] == answer.values["last_stable_offset"] == 60

    served(archive, work)


@pytest.mark.parametrize("committed", [False, True])
def test_a_waiting_fetch_is_answered_when_a_pack_arrives(archive: MadeArchive, committed: bool) -> None:
    """Neither its longest wait nor the next look at the commit is due: both are an hour."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))

    async def work(endpoint: Served) -> list[int]:
        assert (await fetch(endpoint, "t", 55, max_wait=0.0)).records == b""
        waiting = asyncio.ensure_future(fetch(endpoint, "t", 55, max_wait=HOUR, committed=committed))
        await asyncio.sleep(0)
        tail.put(made(archive, (55, 60)))
        return [header.base_offset for header, _ in batches_of((await waiting).records)]

    assert served(archive, work) == [55]


def test_a_pack_of_a_later_leadership_makes_the_endpoint_read_its_commit(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was elected again: entries of the new epoch count by the new commit, which is due in an hour."""
    monkeypatch.setattr("ts_endpoint.topics.partitions._LATE_SECONDS", 0.0)
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))

    async def work(endpoint: Served) -> list[int]:
        assert (await fetch(endpoint, "t", 55, max_wait=0.0)).records == b""
        waiting = asyncio.ensure_future(fetch(endpoint, "t", 55, max_wait=HOUR))
        await asyncio.sleep(0)
        commit(archive, (0, 50), (4, 55), epoch=4, former=[("1", 0)])
        tail.put(made(archive, (55, 60), epoch=4))
        return [header.base_offset for header, _ in batches_of((await waiting).records)]

    assert served(archive, work) == [55]


@pytest.fixture
def followed_briefly(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> MadeTail:
    """Return a tail with a pack; its log is not followed after a request."""
    monkeypatch.setattr(tails, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr("ts_endpoint.topics.partitions.IDLE_SECONDS", 0.0)
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    return tail


def test_a_partition_that_no_client_used_for_a_while_has_its_newest_end(
    archive: MadeArchive, followed_briefly: MadeTail
) -> None:
    """Its log is not followed then, and the next request reads it."""
    tail = followed_briefly

    async def work(endpoint: Served) -> list[int]:
        found = [(await list_offset(endpoint, "t", -1))["offset"]]
        tail.put(made(archive, (55, 60)))
        return [*found, (await list_offset(endpoint, "t", -1))["offset"]]

    assert served(archive, work) == [55, 60]


def test_a_client_that_read_more_elsewhere_is_in_range_though_many_packs_were_not_read(
    archive: MadeArchive, followed_briefly: MadeTail
) -> None:
    """It has all of them, by another process; this one did not follow the log for some seconds."""
    tail = followed_briefly

    async def work(endpoint: Served) -> None:
        await list_offset(endpoint, "t", -1)
        partition = await endpoint.archive.partition("t", 0)
        assert partition is not None
        while any(each.is_followed for each in partition._logs):
            await asyncio.sleep(0.01)
        for start in range(55, 255, 5):
            tail.put(made(archive, (start, start + 5)))
        assert (await list_offset(endpoint, "t", -1))["offset"] == 255
        assert (await fetch(endpoint, "t", 255, max_wait=0.0)).error is ErrorCode.none

    served(archive, work)


def test_a_log_is_followed_once_for_all_partitions(archive: MadeArchive) -> None:
    """Twenty clients wait at the ends of two partitions: one request each time, for the next name."""
    archive.put_segment("t", 0, batches(*steps(0, 50)), partition=1)
    live = Live("1", (), EpochHistory(((0, 50),)))
    archive.commit("t", 50, partition=1, last_stable_offset=50, live=live)
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)), entry(archive, "t", 50, batches((50, 55)), partition=1))
    store = Recorded(archive.store)

    async def work(endpoint: Served) -> None:
        for number in (0, 1):
            assert (await fetch(endpoint, "t", 55, partition=number, max_wait=0.0)).values["high_watermark"] == 55
        waiting = [
            asyncio.ensure_future(fetch(endpoint, "t", 55, partition=number, max_wait=HOUR))
            for number in (0, 1)
            for _ in range(10)
        ]
        packs = archive.keys.tail("1")
        begun = len(store.requests)
        while store.requests[begun:].count(f"GET {packs}{pack_name(2)}") < 3:
            await asyncio.sleep(0.01)
        assert set(store.requests[begun:]) == {f"GET {packs}{pack_name(2)}"}
        tail.put(made(archive, (55, 60)), entry(archive, "t", 55, batches((55, 60)), partition=1))
        assert all([batches_of((await each).records) for each in waiting])

    served(archive, work, store=store)
    assert store.of_tail.count(f"LIST {archive.keys.tail('1')}packs/") == 1


def test_a_log_that_no_client_uses_is_not_followed(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests end after some seconds."""
    MadeTail(archive).put(made(archive, (50, 55)))
    store = Recorded(archive.store)
    monkeypatch.setattr(tails, "IDLE_SECONDS", 0.0)

    async def work(endpoint: Served) -> None:
        await fetch(endpoint, "t", 50)
        partition = await endpoint.archive.partition("t", 0)
        assert partition is not None
        while any(each.is_followed for each in partition._logs):
            await asyncio.sleep(0.01)

    served(archive, work, store=store)
    packs = archive.keys.tail("1")
    assert store.of_tail == [f"LIST {packs}packs/", *[f"GET {packs}{pack_name(1)}"] * 2]  # its index, and the records


def test_an_endpoint_without_tails_ends_at_the_next_offset(archive: MadeArchive) -> None:
    """By `--no-tail`; it looks for no pack."""
    MadeTail(archive).put(made(archive, (50, 55)))
    store = Recorded(archive.store)

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 50, max_wait=0.0)).values["high_watermark"] == 50

    served(archive, work, store=store, tail=False)
    assert store.of_tail == []


def test_a_partition_without_a_tail_causes_no_request_more(archive: MadeArchive) -> None:
    """Packs exist, but its commit names no log; a client that waits at its end sends none either."""
    MadeTail(archive).put(made(archive, (50, 55)))
    archive.commit("t", 50, last_stable_offset=50)
    store = Recorded(archive.store)

    async def work(endpoint: Served) -> None:
        assert len(await read_all(endpoint, "t")) == 50
        begun = len(store.requests)
        assert (await fetch(endpoint, "t", 50, max_wait=0.2)).records == b""
        assert len(store.requests) == begun

    served(archive, work, store=store)
    keys = archive.partition("t")
    assert store.of_tail == []
    assert [request for request in store.requests if request.startswith(f"GET {keys.prefix}")] == [
        f"GET {keys.commit}",
        f"GET {keys.log_start}",
        f"GET {keys.prefix}{0:020d}.log",
    ]


def test_an_end_that_falls_alone_makes_clients_wait(archive: MadeArchive) -> None:
    """An agent of an earlier release drops the tail: the same epochs and lineage, so nothing was lost."""
    MadeTail(archive).put(made(archive, (50, 80)))

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 80, max_wait=0.0, fetched=0)).error is ErrorCode.none
        archive.commit("t", 50, last_stable_offset=50)
        assert (await list_offset(endpoint, "t", -1))["offset"] == 50
        for fetched in (-1, 0):
            answer = await fetch(endpoint, "t", 80, max_wait=0.0, fetched=fetched)
            assert answer.error is ErrorCode.none
            assert "diverging_epoch" not in answer.values
            assert answer.records == b""
        assert await epoch_end(endpoint, 0) == (0, 80)
        assert (await fetch(endpoint, "t", 81, max_wait=0.0)).error is ErrorCode.offset_out_of_range
        archive.put_segment("t", 50, batches((50, 90)))
        archive.commit("t", 90, last_stable_offset=90, highest_base=50)
        rows, _ = consumed(await fetch(endpoint, "t", 80), 80, committed=False)
        assert [row["offset"] for row in rows] == list(range(80, 90))

    served(archive, work, refresh_seconds=0.0)


def test_an_end_that_falls_by_an_election_is_out_of_range(archive: MadeArchive) -> None:
    """The leader's epochs part from what was read: offsets from 60 on were lost."""
    MadeTail(archive).put(made(archive, (50, 80)))

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 80, max_wait=0.0)).error is ErrorCode.none
        commit(archive, (0, 50), (2, 60), epoch=2, former=[("1", 0)])
        assert (await list_offset(endpoint, "t", -1))["offset"] == 60
        assert (await fetch(endpoint, "t", 80, max_wait=0.0)).error is ErrorCode.offset_out_of_range
        answer = await fetch(endpoint, "t", 80, max_wait=0.0, fetched=0)
        assert answer.values["diverging_epoch"] == {"epoch": 0, "end_offset": 60}
        assert await epoch_end(endpoint, 0) == (0, 60)

    served(archive, work, refresh_seconds=0.0)


async def epoch_end(endpoint: Served, epoch: int) -> tuple[int, int]:
    """Return what OffsetForLeaderEpoch answers."""
    wanted = EPOCHS.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=-1)
    topic = EPOCHS.OffsetForLeaderTopic(topic="t", partitions=(wanted,))
    body = EPOCHS.OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,))
    (found,) = (await call(endpoint, Api.OFFSET_FOR_LEADER_EPOCH, body))["topics"][0]["partitions"]
    return found["leader_epoch"], found["end_offset"]


def test_epochs_of_the_tail_have_their_ends(archive: MadeArchive) -> None:
    """The commit has them in `ahead`; records have the epochs of their batches."""
    commit(archive, (0, 50), (3, 60), epoch=3, former=[("2", 0)])
    MadeTail(archive, "2").put(made(archive, (50, 60)))
    MadeTail(archive).put(made(archive, (60, 70), epoch=3))

    async def work(endpoint: Served) -> None:
        assert await epoch_end(endpoint, 0) == (0, 60)
        assert await epoch_end(endpoint, 3) == (3, 70)
        assert (await list_offset(endpoint, "t", -1))["leader_epoch"] == 3

    served(archive, work)


def test_times_of_the_tail_are_found(archive: MadeArchive) -> None:
    """The record at an offset has the timestamp 1000 + offset."""
    MadeTail(archive).put(made(archive, (50, 60)), made(archive, (60, 70)))

    async def work(endpoint: Served) -> None:
        for offset in (30, 50, 65):
            found = await list_offset(endpoint, "t", 1000 + offset)
            assert (found["offset"], found["timestamp"]) == (offset, 1000 + offset)
        found = await list_offset(endpoint, "t", -3)
        assert (found["offset"], found["timestamp"]) == (69, 1069)
        assert (await list_offset(endpoint, "t", 1070))["offset"] == -1

    served(archive, work)


def test_aborted_transactions_of_the_tail_are_in_replies(tmp_path: Path) -> None:
    """Two transactions begin in the closed segment: one is aborted in the tail, and one is decided by a later pack."""
    archive = MadeArchive(tmp_path)
    archive.put_segment("t", 0, data(0, 1000) + data(1, 1000, producer=8) + batches((2, 4)))
    commit(archive, next_offset=4, last_stable_offset=0)
    tail = MadeTail(archive)
    body = data(4, 1000) + ended(5, 1000, kind=ABORT) + batches((6, 8))
    tail.put(entry(archive, "t", 4, body, stable=1, aborted=[(7, 0, 5)]))

    async def work(endpoint: Served) -> None:
        assert (await list_offset(endpoint, "t", -1, committed=True))["offset"] == 1
        assert await read_all(endpoint, "t", committed=True) == []
        assert (await fetch(endpoint, "t", 0, committed=True)).aborted == [(7, 0)]
        waiting = asyncio.ensure_future(fetch(endpoint, "t", 1, committed=True, max_wait=HOUR))
        await asyncio.sleep(0)
        tail.put(entry(archive, "t", 8, ended(8, 1000, producer=8, kind=COMMIT), stable=9))
        assert (await waiting).records != b""
        assert [row["offset"] for row in await read_all(endpoint, "t", committed=True)] == [1, 2, 3, 6, 7]
        assert (await fetch(endpoint, "t", 4, committed=True)).aborted == [(7, 0)]

    served(archive, work)


def test_a_pack_looks_up_no_transactions_of_closed_segments_again(tmp_path: Path) -> None:
    """Those below the last stable offset are decided; each pack makes a snapshot."""
    archive = MadeArchive(tmp_path)
    log = data(0, 1000) + ended(1, 1000, kind=ABORT) + batches((2, 50))
    archive.put_segment("t", 0, log, txnindex=txnindex_entry(7, 0, 1, 50))
    commit(archive)
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    store = Recorded(archive.store)

    async def work(endpoint: Served) -> None:
        for end in (55, 60, 65):
            assert (await fetch(endpoint, "t", 0, committed=True)).aborted == [(7, 0)]
            waiting = asyncio.ensure_future(fetch(endpoint, "t", end, committed=True, max_wait=HOUR))
            await asyncio.sleep(0)
            tail.put(made(archive, (end, end + 5)))
            assert (await waiting).records != b""

    served(archive, work, store=store)
    assert sum(request.endswith(".txnindex") for request in store.requests) == 1


def test_a_merge_while_a_client_reads_makes_the_endpoint_read_the_log_again(archive: MadeArchive) -> None:
    """The objects that a snapshot names were deleted."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    tail.put(made(archive, (55, 60)))

    async def work(endpoint: Served) -> list[int]:
        found, position = [], 0
        assert (await list_offset(endpoint, "t", -1))["offset"] == 60
        tail.merge()
        while position < 60:
            rows, position = consumed(await fetch(endpoint, "t", position), position, committed=False)
            found += [row["offset"] for row in rows]
        return found

    assert served(archive, work) == list(range(60))


def test_a_damaged_pack_ends_the_view_at_the_next_offset(archive: MadeArchive) -> None:
    """Closed segments are served, and the log names the pack."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    archive.store.put(tail.newest, b"TSPK\x01 damaged")

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 50, max_wait=0.0)).values["high_watermark"] == 50
        assert len(await read_all(endpoint, "t")) == 50

    served(archive, work)


@pytest.mark.parametrize("whose", ["1", "2"])
def test_a_position_in_a_damaged_tail_is_in_range_of_a_process_that_starts(archive: MadeArchive, whose: str) -> None:
    """Nothing shows where the tail ends: after a reset to the newest offset, a client would skip records in silence."""
    commit(archive, (0, 50), (2, 60), epoch=2, former=[("2", 0)])
    archive.store.put(archive.keys.tail(whose) + pack_name(1), b"damaged")

    async def work(endpoint: Served) -> None:
        answer = await fetch(endpoint, "t", 80, max_wait=0.0)
        assert (answer.error, answer.records, answer.values["high_watermark"]) == (ErrorCode.none, b"", 50)
        assert (await fetch(endpoint, "t", 80, max_wait=0.0, fetched=2)).error is ErrorCode.none
        answer = await fetch(endpoint, "t", 80, max_wait=0.0, fetched=0)
        assert answer.values["diverging_epoch"] == {"epoch": 0, "end_offset": 60}
        archive.store.delete([archive.keys.tail(whose) + pack_name(1)])
        MadeTail(archive).put(entry(archive, "t", 50, batches((50, 60)), epoch=2), made(archive, (60, 70), epoch=2))
        assert (await list_offset(endpoint, "t", -1))["offset"] == 70
        assert (await fetch(endpoint, "t", 80, max_wait=0.0)).error is ErrorCode.offset_out_of_range

    served(archive, work, refresh_seconds=0.0)


def test_packs_behind_a_damaged_one_are_read(archive: MadeArchive) -> None:
    """Their names cannot be computed while it is the next one; a listing shows them."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))

    async def work(endpoint: Served) -> None:
        assert (await list_offset(endpoint, "t", -1))["offset"] == 55
        tail.put(made(archive, (55, 60)))
        body = archive.store.get(tail.newest)[0]
        archive.store.put(tail.newest, body.replace(b"TSPK", b"DAMA"))
        tail.put(made(archive, (60, 65)))
        assert (await list_offset(endpoint, "t", -1))["offset"] == 65

    served(archive, work, refresh_seconds=0.0)


def test_an_index_that_lost_an_object_ends_the_view_at_the_next_offset(archive: MadeArchive) -> None:
    """Closed segments are served, before and after the log was read whole."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    tail.merge(moves_index=True)
    lost = tail.key(tail.entries[0].object)
    body = archive.store.get(lost)[0]
    archive.store.delete([lost])

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 50, max_wait=0.0)).values["high_watermark"] == 50
        assert len(await read_all(endpoint, "t")) == 50
        archive.store.put(lost, body)
        while (await list_offset(endpoint, "t", -1))["offset"] != 55:
            await asyncio.sleep(0.01)

    served(archive, work, refresh_seconds=0.0)


def test_a_damaged_log_of_a_former_leadership_hides_no_own_entry(archive: MadeArchive) -> None:
    """The leader has shipped its entries again; a warning names it."""
    commit(archive, (0, 50), (2, 60), epoch=2, former=[("2", 0)])
    archive.store.put(archive.keys.tail("2") + pack_name(1), b"damaged")
    MadeTail(archive).put(entry(archive, "t", 50, batches((50, 60)), epoch=2), made(archive, (60, 70), epoch=2))

    async def work(endpoint: Served) -> list[int]:
        return [row["offset"] for row in await read_all(endpoint, "t")]

    with capture_logs() as logs:
        assert served(archive, work) == list(range(70))
    assert any("the view ends at offset 70: " in f"{each.get('reason')}" for each in logs)


def test_damaged_batches_make_a_client_wait_until_a_segment_has_them(archive: MadeArchive) -> None:
    """The view ends before a damaged entry, as if the leader had not shipped it yet."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)), made(archive, (55, 60)), made(archive, (60, 65)))
    body = bytearray(archive.store.get(tail.newest)[0])
    body[tail.entries[1].position + tail.entries[1].length - 3] ^= 1
    archive.store.put(tail.newest, bytes(body))

    async def work(endpoint: Served) -> None:
        rows, position = consumed(await fetch(endpoint, "t", 50), 50, committed=False)
        assert ([row["offset"] for row in rows], position) == ([*range(50, 55)], 55)
        answer = await fetch(endpoint, "t", 55, max_wait=0.1)
        assert (answer.error, answer.records) == (ErrorCode.none, b"")
        archive.put_segment("t", 50, batches(*steps(50, 70)))
        archive.commit("t", 70, highest_base=50, last_stable_offset=70)
        while (await list_offset(endpoint, "t", -1))["offset"] < 70:  # by a refresh that began before the commit
            await asyncio.sleep(0.01)
        assert (await fetch(endpoint, "t", 55)).records != b""

    served(archive, work, refresh_seconds=0.0)


def test_a_pack_of_a_later_release_loses_the_partition(archive: MadeArchive) -> None:
    """Its records cannot be read, and a client must not wait for them in silence."""
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    archive.store.put(tail.newest, b"TSPK\x09" + bytes(8))

    async def work(endpoint: Served) -> None:
        assert (await fetch(endpoint, "t", 50, max_wait=0.0)).error is ErrorCode.corrupt_message
        assert endpoint.archive.count_lost() == 1

    served(archive, work)


def test_an_error_that_no_one_expects_leaves_no_client_waiting(archive: MadeArchive) -> None:
    """The first client has the error, which is logged, and the next one is served."""
    MadeTail(archive).put(made(archive, (50, 55)))
    store = Recorded(archive.store)
    store.is_away, store.error = True, RuntimeError

    async def work(endpoint: Served) -> int:
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(fetch(endpoint, "t", 55, max_wait=0.0), 20)
        store.is_away = False
        return int((await fetch(endpoint, "t", 55, max_wait=0.0)).values["high_watermark"])

    with capture_logs() as logs:  # printed, its traceback would need half of the test's time
        assert served(archive, work, store=store) == 55
    assert "internal_error" in {each["event"] for each in logs}


def test_a_store_that_is_away_for_a_while_ends_no_following(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of before stay, and later ones arrive afterwards."""
    monkeypatch.setattr(tails, "_AGAIN_SECONDS", 0.01)
    tail = MadeTail(archive)
    tail.put(made(archive, (50, 55)))
    store = Recorded(archive.store)

    async def work(endpoint: Served) -> list[int]:
        assert (await fetch(endpoint, "t", 55, max_wait=0.0)).values["high_watermark"] == 55
        waiting = asyncio.ensure_future(fetch(endpoint, "t", 55, max_wait=HOUR))
        await asyncio.sleep(0)
        store.is_away, begun = True, len(store.of_tail)
        while len(store.of_tail) < begun + 3:
            await asyncio.sleep(0.01)
        tail.put(made(archive, (55, 60)))
        store.is_away = False
        return [header.base_offset for header, _ in batches_of((await waiting).records)]

    assert served(archive, work, store=store) == [55]
