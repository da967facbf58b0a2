"""The worker's side of the protocol, on a thread of this process: credit, stops, errors, releases, its end."""

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import structlog

from tests.reader.execution.splits import place_of, split_of
from ts_common.errors import CorruptData
from ts_reader.execution import worker
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.shared_memory import SharedBatch
from ts_reader.execution.worker_messages import Blocks, Channel, Logged, More, PeerGone, ReadSplit, SplitEnd, Stop
from ts_reader.query.splits import Split


class Reader:
    """The reader's side, by hand."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        readable, self.releases = os.pipe()
        self.channel = Channel(here)
        here.settimeout(30)
        self._theirs = Channel(there)
        self._worker = worker._Worker(self._theirs, readable)
        self._readable = readable
        self.held = self._worker._memory._held
        self.ends: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:  # noqa: BLE001  (the test examines it)
            self.ends.append(error)

    def ask(self, split: Split, *names: str) -> None:
        """Have the worker read a split."""
        self.channel.send(ReadSplit(split, Columns(names)))

    def message(self) -> Any:
        """Return the next message that is not about blocks."""
        while True:
            message, descriptors = self.channel.receive()
            for descriptor in descriptors:
                os.close(descriptor)
            if not isinstance(message, Blocks):
                return message

    def end(self) -> BaseException:
        """Wait for the end of the worker; return what ended it."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._theirs.close()
        os.close(self._readable)
        return self.ends[0]


@pytest.fixture
def produced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have workers read splits of one batch for each offset; return the offsets that were read so far."""
    noted: list[int] = []

    def read(_store: object, split: Split, names: Any, _memory: object) -> Iterator[pa.RecordBatch]:
        if place_of(split)[0] == 1:
            raise CorruptData("t-1: damaged")
        if place_of(split)[0] == 2:
            raise MemoryError("too much")
        for offset in range(split.ranges[0].start, split.ranges[0].end):
            noted.append(offset)
            yield pa.record_batch({"offset": [offset]})

    monkeypatch.setattr(worker, "read_split", read)
    monkeypatch.setattr(worker, "shared_store", lambda *_: None)
    return noted


@pytest.fixture
def reader(produced: list[int]) -> Iterator[Reader]:
    """Return a reader's side whose worker runs."""
    del produced
    made = Reader()
    yield made
    made.channel.close()
    made.end()
    os.close(made.releases)


def test_a_worker_is_two_batches_ahead(reader: Reader, produced: list[int]) -> None:
    """It decodes the third and waits with it, until one is accepted."""
    reader.ask(split_of(0, 0, 10), "offset")
    assert [reader.message().lease for _ in range(2)] == [0, 1]
    reader.channel.send(More())
    assert reader.message().lease == 2
    assert max(produced) <= 3
    for lease in range(3, 10):
        reader.channel.send(More())
        assert reader.message().lease == lease
        assert max(produced) <= lease + 1
    assert reader.message() == SplitEnd()


def test_answers_to_a_split_do_not_reach_the_next_one(reader: Reader, produced: list[int]) -> None:
    """A worker that has ended a split waits for what the reader still accepts of it."""
    for _ in range(3):
        produced.clear()
        reader.ask(split_of(0, 0, 2), "offset")
        messages = [reader.message() for _ in range(3)]
        assert messages[-1] == SplitEnd()
        reader.channel.send(More())
        reader.channel.send(More())
        reader.ask(split_of(0, 5, 15), "offset")
        assert [type(reader.message()) for _ in range(2)] == [SharedBatch] * 2
        assert max(produced) <= 7
        reader.channel.send(Stop())
        while reader.message() != SplitEnd():
            pass


@pytest.mark.parametrize("accepted", [0, 1, 5, 10])
def test_a_stop_ends_a_split_wherever_it_is(reader: Reader, produced: list[int], accepted: int) -> None:
    """Also behind its last batch, where the end was sent already; the next split is whole."""
    reader.ask(split_of(0, 0, 10), "offset")
    for _ in range(accepted):
        assert isinstance(reader.message(), SharedBatch)
        reader.channel.send(More())
    reader.channel.send(Stop())
    while reader.message() != SplitEnd():
        pass
    produced.clear()
    reader.ask(split_of(0, 100, 101), "offset")
    assert isinstance(reader.message(), SharedBatch)
    assert reader.message() == SplitEnd()
    assert produced == [100]


def test_an_error_ends_its_split_only(reader: Reader) -> None:
    """Its class and its message are sent, whatever it is."""
    reader.ask(split_of(1, 0, 10), "offset")
    assert reader.message() == SplitEnd(("CorruptData", "t-1: damaged"))
    reader.ask(split_of(2, 0, 10), "offset")
    assert reader.message() == SplitEnd(("MemoryError", "too much"))
    reader.ask(split_of(0, 0, 1), "offset")
    assert isinstance(reader.message(), SharedBatch)
    assert reader.message() == SplitEnd()


def test_released_batches_are_dropped(reader: Reader) -> None:
    """Numbers of leases may arrive in pieces, and while the worker waits."""
    reader.ask(split_of(0, 0, 4), "offset")
    for _ in range(4):
        reader.message()
        reader.channel.send(More())
    assert reader.message() == SplitEnd()
    assert sorted(reader.held) == [0, 1, 2, 3]
    data = b"".join(lease.to_bytes(8, "little") for lease in (1, 3, 0))
    os.write(reader.releases, data[:5])
    os.write(reader.releases, data[5:])
    reader.ask(split_of(0, 9, 10), "offset")
    assert isinstance(reader.message(), SharedBatch)
    assert reader.message() == SplitEnd()
    assert sorted(reader.held) == [2, 4]


def test_a_worker_ends_with_its_reader(produced: list[int]) -> None:
    """By the socket or by the pipe, between splits and inside of one."""
    del produced
    for inside in (False, True):
        for by_pipe in (False, True):
            reader = Reader()
            if inside:
                reader.ask(split_of(0, 0, 10), "offset")
                reader.message()
            if by_pipe:
                os.close(reader.releases)
            else:
                reader.channel.close()
            assert isinstance(reader.end(), PeerGone)
            if by_pipe:
                reader.channel.close()
            else:
                os.close(reader.releases)


def test_log_events_are_sent_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as they are, other facts as text; nothing is written here."""
    found: list[Any] = []

    def configured(*, processors: list[Any]) -> None:
        found.extend(processors)

    monkeypatch.setattr("structlog.configure", configured)
    here, there = map(Channel, socket.socketpair())
    worker._forward_logs(there)
    (forward,) = found
    with pytest.raises(structlog.DropEvent):
        forward(
            None, "warning", {"event": "corrupt", "offset": 5, "share": 0.5, "key": None, "reason": ValueError("x")}
        )
    facts = {"offset": 5, "share": 0.5, "key": "None", "reason": "x"}
    assert here.receive()[0] == Logged("warning", "corrupt", facts)
    here.close()
    there.close()
