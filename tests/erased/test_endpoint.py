"""The person's records on the wire of the endpoint: in no batch that a Fetch returns, whatever its codec and place."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode

from tests.common.log_format.build import message
from tests.endpoint.clients import Served, batches_of, consumed, fetch, list_offset, read_all, rows_of, serving
from tests.endpoint.running import running
from tests.erased.canary import END, GONE, STAY, Canary, canary, log_of, put_erased
from tests.made_tail import MadeTail, entry
from tests.matrix import cases, examples
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erasures import erasure_key
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ObjectInfo
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_endpoint.topics import erasures, partitions
from ts_reader.decode.codecs import Codec

WHOLE_BATCH = range(110, 120)
STARTS = [0, 15, 58, 100, 112, 199, *(1, 12, 13, 14, 99, 101, 120, 198), *(each for each in WHOLE_BATCH if each != 112)]
SECONDS = 60.0


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """Return an archive with a list."""
    found = canary(tmp_path / "archive")
    found.erase()
    return found


async def _answers(served: Served, person: Canary, start: int, most_bytes: int) -> list[int]:
    """Return the offsets that a client is shown from an offset to the end; check each batch on the way."""
    position, shown = start, list[int]()
    while position < END:
        answer = await fetch(served, "t", position, most_bytes=most_bytes, max_wait=30.0)
        assert answer.error is ErrorCode.none
        assert person.person not in answer.records
        for header, batch in batches_of(answer.records):
            rows = rows_of(batch)
            assert person.person not in str(rows).encode()
            assert not GONE.intersection(row["offset"] for row in rows)
            assert header.last_offset - header.base_offset == 9
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, header.base_offset)
            assert header.codec == (0 if header.base_offset == 110 else [*Codec][header.base_offset // 10 % 5])
            assert header.record_count == len(rows)
        rows, after = consumed(answer, position, committed=False)
        assert after > position
        shown += [row["offset"] for row in rows]
        position = after
    return shown


@pytest.mark.parametrize("most_bytes", cases([1, 700, 2000, 1 << 20], quick=[1, 1 << 20]))
def test_no_batch_on_the_wire_has_an_erased_record(person: Canary, most_bytes: int) -> None:
    """From each offset on, also just behind an erased record, and with the first and the last one erased."""

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            for start in STARTS[: examples(len(STARTS), quick=6)]:
                shown = await _answers(served, person, start, most_bytes)
                assert shown == [each for each in STAY if each >= start]

    asyncio.run(check())


def test_without_a_list_stored_bytes_are_sent(tmp_path: Path) -> None:
    """The reply is the object's own bytes."""
    person = canary(tmp_path / "archive")

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            answer = await fetch(served, "t", 0, max_wait=30.0)
            assert answer.records == person.archive.store.get(person.keys.segment(SegmentName(0)))[0]

    asyncio.run(check())


def test_a_list_is_obeyed_by_an_open_partition(tmp_path: Path) -> None:
    """A new snapshot is another one, though its segments are the same: nothing that was kept of the former is sent."""
    person = canary(tmp_path / "archive")

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            assert [row["offset"] for row in await read_all(served, "t")] == [*range(END)]
            person.erase({5})
            await _renewed(served)
            assert [row["offset"] for row in await read_all(served, "t")] == [each for each in range(END) if each != 5]
            person.erase(number=2)
            await _renewed(served)
            assert await _answers(served, person, 0, 1 << 20) == STAY

    asyncio.run(check())


async def _renewed(served: Served) -> None:
    """Let the partition be listed again, as after a minute."""
    partition = await served.archive.partition("t", 0)
    assert partition is not None
    await partition.renewed(lists=True)


class Listed(WrappedStore):
    """Keeps the prefixes of listings; `fails` lets those of the partition fail."""

    def __init__(self, person: Canary) -> None:
        super().__init__(person.archive.store, threads=1)
        self.prefixes = list[str]()
        self.fails = False
        self._partition = person.keys.prefix

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._count(prefix)
        return self._inner.list(prefix, start_after=start_after)

    def list_skipping(self, prefix: str, *arguments: Any, **named: Any) -> Iterator[ObjectInfo]:
        self._count(prefix)
        return self._inner.list_skipping(prefix, *arguments, **named)

    def _count(self, prefix: str) -> None:
        self.prefixes.append(prefix)
        if self.fails and prefix.startswith(self._partition):
            raise StoreUnavailable("no answer")


def put_request(person: Canary) -> None:
    """Put what is put after the lists of a request to erase."""
    person.archive.store.put(erasure_key(person.archive.keys, "case-1"), b"{}")


def test_a_request_to_erase_is_obeyed_before_the_next_renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing of requests serves all partitions. Without a request, a partition is not listed once more."""
    person, hour = canary(tmp_path / "archive"), 3600.0
    store = Listed(person)

    async def check() -> None:
        with serving(store, person.archive.keys, refresh_seconds=hour) as served:
            for _ in range(2):
                assert len(await read_all(served, "t")) == END
            assert store.prefixes.count(person.archive.keys.erasures) == 1
            before = store.prefixes.count(person.keys.prefix)
            monkeypatch.setattr(erasures, "LOOK_SECONDS", 0.0)
            monkeypatch.setattr(erasures, "monotonic", lambda: monotonic() + hour)
            await read_all(served, "t")
            assert store.prefixes.count(person.keys.prefix) == before
            person.erase()
            put_request(person)
            deadline = monotonic() + SECONDS
            while await _offsets(served) != STAY:
                assert monotonic() < deadline

    asyncio.run(check())


async def _offsets(served: Served) -> list[int]:
    return [row["offset"] for row in await read_all(served, "t")]


@pytest.mark.parametrize("fails", [False, True])
def test_a_partition_that_was_idle_is_listed_before_the_first_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """What is in memory can be days old. If the store does not answer, clients get that, as with busy partitions."""
    person = canary(tmp_path / "archive")
    store = Listed(person)

    async def check() -> None:
        with serving(store, person.archive.keys, refresh_seconds=SECONDS) as served:
            assert len(await read_all(served, "t")) == END
            person.erase()
            store.fails = fails
            monkeypatch.setattr(partitions, "monotonic", lambda: monotonic() + 3600.0)
            partition = await served.archive.partition("t", 0)
            assert partition is not None
            assert (await partition.snapshot()).view.erased.count == (0 if fails else len(GONE))

    asyncio.run(check())


def test_nothing_is_sent_while_the_list_of_a_request_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has seen that there is a request: what it has in memory can have records of the person."""
    person = canary(tmp_path / "archive")
    store = Listed(person)
    monkeypatch.setattr(erasures, "LOOK_SECONDS", 0.0)

    async def check() -> None:
        with serving(store, person.archive.keys, refresh_seconds=SECONDS) as served:
            assert len(await read_all(served, "t")) == END
            person.erase()
            put_request(person)
            store.fails = True
            deadline = monotonic() + SECONDS
            while (answer := await fetch(served, "t", 0)).error is ErrorCode.none:
                assert monotonic() < deadline
            assert (answer.error, answer.records) == (ErrorCode.kafka_storage_error, b"")
            store.fails = False
            assert await _offsets(served) == STAY

    asyncio.run(check())


def test_a_time_leads_to_a_record_that_is_shown(person: Canary) -> None:
    """ListOffsets passes erased records over, for a time and for the greatest one."""

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            for offset in (0, 13, 110, 198):
                found = await list_offset(served, "t", 1000 + offset)
                expected = next(each for each in STAY if each >= offset)
                assert (found["offset"], found["timestamp"]) == (expected, 1000 + expected)
            assert (await list_offset(served, "t", 1199))["offset"] == -1
            assert (await list_offset(served, "t", -3))["offset"] == 198

    asyncio.run(check())


def test_copies_that_are_merged_show_no_erased_record(tmp_path: Path) -> None:
    """Rows of several compacted copies are encoded again."""
    person = canary(tmp_path / "archive")
    first, second, third = (log_of(person.person, each, each + 10, {203, 225}) for each in (200, 210, 220))
    person.archive.put_segment("t", 200, first + third, end=240)
    person.archive.put_segment("t", 200, first + second, end=240, variant=True)
    person.archive.commit("t", 240, highest_base=200, log_start=None)
    person.erase(GONE | {203, 225})

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            rows = await read_all(served, "t", start=200)
            assert person.person not in str(rows).encode()
            assert [row["offset"] for row in rows] == [each for each in range(200, 230) if each not in {203, 225}]

    asyncio.run(check())


def test_messages_of_magic_1_are_sent_as_rows(tmp_path: Path) -> None:
    """They cannot be rewritten in place, so their rows are encoded again."""
    person = canary(tmp_path / "archive")
    log = b"".join(message(1, each, person.person if each == 5 else b"v%d" % each) for each in range(10))
    person.archive.put_segment("old", 0, log)
    person.archive.commit("old", 10, epochs=((-1, 0),))
    put_erased(person.archive.store, person.archive.partition("old"), [(5, 6, -1)])

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            rows = await read_all(served, "old")
            assert person.person not in str(rows).encode()
            assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9]

    asyncio.run(check())


def test_an_erased_record_of_the_live_tail_is_not_sent(tmp_path: Path) -> None:
    """Offsets from the next offset on can be listed before their segment closes."""
    person = canary(tmp_path / "archive")
    live = Live("1", (), EpochHistory(((0, END),)))
    person.archive.commit("t", END, live=live, last_stable_offset=END, highest_base=100)
    MadeTail(person.archive).put(entry(person.archive, "t", END, log_of(person.person, END, 220, {207})))
    person.erase(GONE | {207})

    async def check() -> None:
        with serving(person.archive.store, person.archive.keys) as served:
            rows = await read_all(served, "t", start=END)
            assert person.person not in str(rows).encode()
            assert [row["offset"] for row in rows] == [each for each in range(END, 220) if each != 207]

    asyncio.run(check())


class Tap:
    """Forwards connections, and keeps the bytes that the server sends.

    Attributes:
        wire: those bytes.
        server: where it listens; set before clients connect.
    """

    def __init__(self) -> None:
        self.wire = bytearray()
        self.server = ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                host, port = self.server.rsplit(":", 1)
                upstream = socket.create_connection((host, int(port)))
                self._sockets += client, upstream
                threading.Thread(target=self._pump, args=(client, upstream, bytearray()), daemon=True).start()
                threading.Thread(target=self._pump, args=(upstream, client, self.wire), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept.extend(data)
                target.sendall(data)

    def close(self) -> None:
        for each in (self._listening, *self._sockets):
            each.close()


@pytest.fixture(scope="module")
def served_canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Canary, Tap]]:
    """Serve an archive without compression through a process of the endpoint, whose clients connect to a tap."""
    directory = tmp_path_factory.mktemp("served")
    person = canary(directory / "archive", packed=False)
    person.erase()
    with closing(Tap()) as tap:
        options = ["--groups", "memory", "--advertise", tap.address]
        with running(person.archive.location, directory, options=options) as (process,):
            tap.server = process.address
            yield person, tap


@pytest.mark.parametrize("start", cases([0, 12, 15, 58, 110, 115, 199], quick=[0, 115]))
def test_librdkafka_reaches_the_end_and_the_wire_is_clean(served_canary: tuple[Canary, Tap], start: int) -> None:
    """A real client checks each CRC; batches are not compressed, so the tap would see the person."""
    person, tap = served_canary
    tap.wire.clear()
    consumer = Consumer(
        {"bootstrap.servers": tap.address, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    )
    with closing(consumer):
        consumer.assign([TopicPartition("t", 0, start)])
        found, is_at_end, deadline = list[int | None](), False, monotonic() + SECONDS
        while not is_at_end:
            assert monotonic() < deadline, found
            for each in consumer.consume(100, 0.2):
                if each.error() is None:
                    found.append(each.offset())
                is_at_end = is_at_end or each.error() is not None
    assert found == [each for each in STAY if each >= start]
    assert person.person not in tap.wire
    assert b"other-" in tap.wire or not found
