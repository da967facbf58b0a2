"""Pieces of a live log: of a real broker's while it is written, and what ends a reading without a result."""

import os
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.common.log_format.build import CONTROL, TRANSACTIONAL, batch, marker, message, record
from tests.uploader.log_dirs.test_broker_files import snapshot
from ts_common.archive.tail_chain import Aborted
from ts_common.archive.tail_pack import MOST_ABORTED
from ts_common.broker_connection.security import security_of
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.log_format.checkpoints import encode_leader_epoch_checkpoint
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.markers import ABORT, COMMIT
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.page_cache import SMALL_BYTES
from ts_uploader.log_dirs.segment_file import OpenLog
from ts_uploader.tail.high_watermarks import HighWatermarks
from ts_uploader.tail.live_log import LiveLog, Piece

SECONDS = 60
MOST = 1 << 20
T = TopicPartition("tail-live", 0)
ROUNDS = 9
OPEN = batch(100, epoch=7, attributes=TRANSACTIONAL, producer_id=9)
WRITTEN = 4 * ROUNDS + 1  # of each round three records and a marker; and the record of an open transaction


@pytest.mark.parametrize("cluster", ["zookeeper", pytest.param("kraft", marks=pytest.mark.full)], indirect=True)
def test_the_pieces_of_a_log_are_the_log_that_is_written_meanwhile(cluster: LocalCluster) -> None:
    """Byte for byte, over rolls; with Kafka's own last stable offset, and its aborted transactions."""
    cluster.create_topic(T.topic, assignment=[[1, 2]], config={"segment.bytes": "5000"})
    directory = cluster.brokers[1].partition_directory(T.topic, 0)
    ended = threading.Event()
    writer = threading.Thread(target=write, args=(cluster, ended))
    pieces: list[Piece] = []
    log = live_log(directory, 0, 0)
    answers = HighWatermarks(lambda: security_of({"bootstrap.servers": cluster.brokers[1].bootstrap}))
    with closing(answers):
        wait_for(lambda: T in answers.request({T: 0}), "the leader's high watermark", SECONDS)
        writer.start()
        try:
            while writer.is_alive():
                take(log, answers.request({T: 0})[T], pieces)
                writer.join(0.01)
        finally:
            ended.set()
            writer.join(SECONDS)
        # The broker writes the last marker after it has confirmed the end of the transaction.
        wait_for(lambda: cluster.latest(T.topic, 0) == WRITTEN, "the last marker", SECONDS)
        while log.end < WRITTEN:
            take(log, answers.request({T: 0})[T], pieces)
        assert answers.request({T: 1}) == answers.request({T: -2}) == {}  # another leader's
    files = sorted(directory.glob("*.log"))
    assert len(files) > 3
    assert b"".join(data for piece in pieces for data in piece.data) == b"".join(map(Path.read_bytes, files))
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].stable == cluster.latest(T.topic, 0, committed=True) < pieces[-1].end
    aborted = [each for piece in pieces for each in piece.aborted or ()]
    assert {(each.producer_id, each.first, each.last) for each in aborted} == entries_of(directory)
    assert sum(piece.records for piece in pieces) == pieces[-1].end
    half = pieces[len(pieces) // 2]
    again = live_log(directory, 0, half.start)
    found: list[Piece] = []
    take(again, half.end, found)
    assert (found[0].start, found[0].stable, found[0].crc32c) == (half.start, half.stable, half.crc32c)


def take(log: LiveLog, high_watermark: int, pieces: list[Piece]) -> None:
    """Add the next piece, if there is one."""
    if (piece := log.read(high_watermark, 40_000)) is not None:
        assert piece.end <= high_watermark
        assert piece.crc32c == crc32c(b"".join(piece.data))
        log.take(piece)
        pieces.append(piece)


def write(cluster: LocalCluster, ended: threading.Event) -> None:
    """Write plain records, transactions of both outcomes, and one that stays open."""
    open_one = cluster.producer({"transactional.id": "tail-open", "transaction.timeout.ms": 600_000})
    open_one.init_transactions(SECONDS)
    producer = cluster.producer({"transactional.id": "tail-ended", "compression.type": "lz4"})
    producer.init_transactions(SECONDS)
    plain = cluster.producer({"enable.idempotence": True})
    for number in range(ROUNDS):
        if ended.is_set():
            break
        producer.begin_transaction()
        for size in (10, 3000):
            producer.produce(T.topic, bytes(range(250)) * (size // 10), b"t", partition=0)
        producer.flush(SECONDS)
        plain.produce(T.topic, b"plain" * 300, partition=0)
        plain.flush(SECONDS)
        if number == 6:
            open_one.begin_transaction()
            open_one.produce(T.topic, b"open", partition=0)
            open_one.flush(SECONDS)
        if number % 3:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


def entries_of(directory: Path) -> set[tuple[int, int, int]]:
    """Return producer id, first and last offset of the aborted transactions that the broker indexed."""
    form = struct.Struct(">hqqqq")
    data = b"".join(path.read_bytes() for path in directory.glob("*.txnindex"))
    return {(producer, first, last) for _, producer, first, last, _ in form.iter_unpack(data)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition's directory whose leader epoch is 7."""
    made = tmp_path / "t-0"
    made.mkdir()
    begin(made, (5, 0), (7, 3))
    return made


def live_log(directory: Path, epoch: int, start: int) -> LiveLog:
    """Return the log of a directory as it is now."""
    status = directory.stat()
    return LiveLog(directory, (status.st_dev, status.st_ino), epoch, start)


def begin(directory: Path, *epochs: tuple[int, int]) -> None:
    """Write the leader epochs as a broker does: by a rename."""
    beside = directory / "leader-epoch-checkpoint.tmp"
    beside.write_bytes(encode_leader_epoch_checkpoint(epochs))
    beside.replace(directory / "leader-epoch-checkpoint")


def put(directory: Path, base: int, *batches: bytes) -> None:
    """Write a file of the log."""
    (directory / f"{base:020d}.log").write_bytes(b"".join(batches))


def rows(directory: Path, start: int, high_watermark: int, most: int = MOST) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the pieces of a log."""
    log = live_log(directory, 7, start)
    while (piece := log.read(high_watermark, most)) is not None:
        yield piece.start, piece.end
        log.take(piece)


def test_only_whole_batches_below_the_high_watermark_are_read(directory: Path) -> None:
    """A batch across it, a torn one and zeros wait; a first batch can be larger than the limit."""
    put(directory, 0, batch(0, epoch=5), batch(1, epoch=5), batch(2, epoch=5), batch(3, epoch=7)[:-1])
    assert [*rows(directory, 0, 2)] == [(0, 2)]
    assert [*rows(directory, 0, 99, most=1)] == [(0, 1), (1, 2), (2, 3)]
    put(directory, 0, batch(0, epoch=5), bytes(200))
    assert [*rows(directory, 0, 99)] == [(0, 1)]


def control(base: int, offset: int) -> bytes:
    """Return a marker whose record names another offset."""
    key = struct.pack(">hh", 0, ABORT)
    body = [record(offset - base, key, bytes(6))]
    return batch(base, body, attributes=TRANSACTIONAL | CONTROL, producer_id=9, last_offset_delta=0, epoch=7)


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        ((batch(0, epoch=8),), "leader epoch 8, above 7"),
        ((batch(0, epoch=7), batch(1, epoch=-2)), "leader epoch -2, below -1"),
        ((batch(0, epoch=7), batch(1, count=0, body=b"", last_offset_delta=-2, epoch=7)), "its last offset is -1"),
        ((batch(0, epoch=7), control(1, offset=2)), "base offset 1: a record of offset 2"),
        ((batch(0, epoch=7), control(1, offset=0)), "base offset 1: a record of offset 0"),
        ((batch(0, epoch=7)[:-1] + b"!",), "wrong CRC"),
        ((batch(1, epoch=7), batch(0, epoch=7)), "it begins below 2"),
        ((batch(0, epoch=7), batch(1, count=3, last_offset_delta=1, epoch=7)), "it begins below 1"),
        ((batch(0, epoch=7), message(1, 1, b"v")), "magic 1"),
        ((batch(0, epoch=7), batch(1, epoch=7, count=-1)), f"{0:020d}.log: .*record count -1"),
    ],
)
def test_a_doubt_ends_the_reading_without_a_piece(directory: Path, batches: tuple[bytes, ...], text: str) -> None:
    """The batches before it are not used either.

    Readers would reject the index that has it, with the entries of all partitions.
    """
    put(directory, 0, *batches)
    with pytest.raises(CorruptData, match=text):
        live_log(directory, 7, 0).read(99, MOST)


@pytest.mark.parametrize("first", [100, SMALL_BYTES - HEADER_SIZE, SMALL_BYTES - 1, SMALL_BYTES, 1 << 21])
def test_a_log_is_read_in_parts_that_end_anywhere(directory: Path, first: int) -> None:
    """Before a batch, inside its header or its records, or before the end of a batch that is larger than a part."""
    sizes = (first, 40_000, 900_000, 300_000, 1 << 21, 70)
    times = (3000, 9000, 2000, 2000, 2000, 2000)
    batches = [
        batch(
            offset, count=1, body=bytes(size - HEADER_SIZE), epoch=5 if offset < 3 else 7, max_timestamp=times[offset]
        )
        for offset, size in enumerate(sizes)
    ]
    put(directory, 0, *batches, batch(6, epoch=7)[:-1])
    piece = live_log(directory, 7, 0).read(99, 8 << 20)
    assert piece is not None
    assert b"".join(piece.data) == b"".join(batches)
    assert (piece.end, piece.length, piece.records, piece.time_max) == (6, sum(sizes), 6, 9000)
    assert (piece.epochs, piece.crc32c) == (((5, 0), (7, 3)), crc32c(b"".join(batches)))


def test_a_damaged_length_makes_no_agent_need_the_memory_of_a_file(directory: Path) -> None:
    """The length field of a batch is 64 MiB, and the file is larger; also before the place that a reading begins at.

    A batch that is so large is read.
    """
    size = 64 << 20
    cases = (
        (0, batch(0, epoch=7), "batch of base offset 0: wrong CRC"),
        (1, marker(0, 9, ABORT, epoch=7), f"a control batch of {size + 12} bytes"),
    )
    for start, whole, text in cases:
        put(directory, 0, struct.pack(">qi", 0, size) + whole[12:])
        os.truncate(directory / f"{0:020d}.log", 2 * size)
        tracemalloc.start()
        try:
            with pytest.raises(CorruptData, match=text):
                live_log(directory, 7, start).read(99, MOST)
            assert tracemalloc.get_traced_memory()[1] < size // 8
        finally:
            tracemalloc.stop()
    large = batch(0, count=1, body=bytes(9 << 20), epoch=7)
    put(directory, 0, large, batch(1, epoch=7))
    piece = live_log(directory, 7, 0).read(99, MOST)
    assert piece is not None
    assert (piece.data, piece.end) == ((large,), 1)


def test_a_gap_is_read_in_the_newest_file_only(directory: Path) -> None:
    """A follower fetches what compaction left; in a closed file the cleaner can have removed batches since."""
    put(directory, 0, batch(0, epoch=7), batch(5, epoch=7))
    assert [*rows(directory, 0, 99)] == [(0, 6)]
    put(directory, 6, batch(6, epoch=7))
    with pytest.raises(CorruptData, match="it begins above 1, in a file that is not the newest"):
        [*rows(directory, 0, 99)]


@pytest.mark.parametrize("large", [70, SMALL_BYTES // 4, SMALL_BYTES, 1 << 20])
def test_a_search_reads_many_small_batches_at_once_and_of_a_large_one_its_header(
    directory: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    """A file of 1 GiB can have millions of small ones; the other partitions wait meanwhile."""
    sizes = [*[70] * 2000, *[large] * 9, *[70] * 2000]
    batches = [batch(at, body=bytes(size - HEADER_SIZE), count=1, epoch=7) for at, size in enumerate(sizes)]
    put(directory, 0, *batches)
    read: list[int] = []
    read_at = OpenLog.read_at

    def counted(log: OpenLog, position: int, size: int) -> bytes:
        read.append(size)
        return read_at(log, position, size)

    monkeypatch.setattr(OpenLog, "read_at", counted)
    log = live_log(directory, 7, len(sizes) - 1)
    piece = log.read(len(sizes), MOST)
    assert piece is not None
    assert (piece.start, piece.data) == (len(sizes) - 1, (batches[-1],))
    assert len(read) < 30
    assert sum(read) < 3 * 4000 * 70


def test_a_log_with_many_gaps_is_listed_once_for_each_part(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that fetched a compacted log can have one before each batch; other partitions wait meanwhile."""
    listed = list[str]()
    list_directory = os.listdir

    def counted(path: str) -> list[str]:
        listed.append(path)
        return list_directory(path)

    put(directory, 0, *(batch(offset, epoch=7) for offset in range(0, 400, 4)))
    log = live_log(directory, 7, 0)
    monkeypatch.setattr(os, "listdir", counted)
    piece = log.read(999, MOST)
    assert piece is not None
    assert (piece.end, piece.records) == (397, 100)
    assert len(listed) < 5


def test_a_piece_continues_in_the_next_file(directory: Path) -> None:
    """The newest one, so a batch can begin above the end of the one before."""
    put(directory, 0, batch(0, epoch=7), batch(1, epoch=7))
    put(directory, 2, batch(2, epoch=7), batch(4, epoch=7))
    assert [*rows(directory, 0, 99)] == [(0, 5)]


def test_a_log_that_another_leadership_has_is_not_read(directory: Path) -> None:
    """The epoch in the file decides before the reading, and that the file is the same after it."""
    put(directory, 0, batch(0, epoch=7))
    with pytest.raises(SegmentChanged, match="ends with 7, the leader epoch is 6"):
        live_log(directory, 6, 0).read(99, MOST)
    log = live_log(directory, 7, 0)
    read_file = log._read_file

    def replaced(*given: Any) -> bool:
        continues = read_file(*given)
        begin(directory, (5, 0), (7, 3))
        return continues

    log._read_file = replaced  # type: ignore[assignment, method-assign]
    with pytest.raises(SegmentChanged, match="changed before the reading ended"):
        log.read(99, MOST)


def test_a_file_that_became_shorter_or_was_deleted_is_not_read(directory: Path) -> None:
    """The log ends before the place where the reading continues; whether the leadership ended is not known yet."""
    put(directory, 0, batch(0, epoch=7), batch(1, epoch=7))
    log = live_log(directory, 7, 0)
    piece = log.read(2, MOST)
    assert piece is not None
    log.take(piece)
    put(directory, 0, batch(0, epoch=7))
    with pytest.raises(SegmentChanged, match="shorter than it was"):
        log.read(3, MOST)
    (directory / f"{0:020d}.log").unlink()
    with pytest.raises(SegmentChanged, match="no longer exists"):
        log.read(3, MOST)


def test_a_directory_of_a_topic_that_was_created_again_is_not_read(directory: Path) -> None:
    """It has the same name and leader epoch, and a batch can begin where the reading continues."""
    put(directory, 0, batch(0, epoch=7))
    log = live_log(directory, 7, 0)
    piece = log.read(1, MOST)
    assert piece is not None
    log.take(piece)
    directory.rename(directory.with_name("t-0.0123456789abcdef-delete"))
    directory.mkdir()
    begin(directory, (7, 0))
    put(directory, 0, batch(0, epoch=7), batch(1, epoch=7))
    with pytest.raises(SegmentChanged, match="changed before the reading ended"):
        log.read(2, MOST)
    with pytest.raises(SegmentChanged, match="the topic was created again"):
        log.read(2, MOST)


def test_a_batch_that_another_leader_replaced_is_no_damage(directory: Path) -> None:
    """After an election the log has other batches; the partition is not reported, and not left out for a while."""
    put(directory, 0, batch(0, epoch=7))
    log = live_log(directory, 7, 0)
    piece = log.read(1, MOST)
    assert piece is not None
    log.take(piece)
    put(directory, 0, batch(0, epoch=7), batch(1, epoch=8))
    with pytest.raises(CorruptData, match="leader epoch 8, above 7"):
        log.read(2, MOST)
    begin(directory, (7, 0), (8, 1))
    with pytest.raises(SegmentChanged, match="changed before the reading ended"):
        log.read(2, MOST)


def test_transactions_begin_with_the_producer_snapshot(directory: Path) -> None:
    """Of the file that has the first offset; without it, it is unknown what is open there.

    The lowest file of a follower that began there has none: nothing is open there, as for the broker itself.
    """
    put(directory, 0, batch(0, epoch=7))
    put(
        directory,
        100,
        batch(100, epoch=7, attributes=TRANSACTIONAL, producer_id=9),
        marker(101, 4001, COMMIT, epoch=7),
        marker(102, 9, ABORT, epoch=7),
        marker(103, 5, ABORT, epoch=7),
    )
    log = live_log(directory, 7, 102)
    with pytest.raises(SegmentChanged, match="unknown which transactions are open"):
        log.read(103, MOST)
    (directory / f"{100:020d}.snapshot").write_bytes(snapshot(-1, 50, 70))  # of the producers 4000 to 4002
    piece = log.read(103, MOST)
    assert piece is not None
    assert (piece.stable, piece.aborted) == (70, (Aborted(9, 100, 102),))
    log.take(piece)
    last = log.read(104, MOST)
    assert last is not None
    assert last.aborted is None  # its transaction had no record here, or compaction removed them
    for path in (directory / f"{0:020d}.log", directory / f"{100:020d}.snapshot"):
        path.unlink()
    lowest = live_log(directory, 7, 102).read(103, MOST)
    assert lowest is not None
    assert (lowest.stable, lowest.aborted) == (103, (Aborted(9, 100, 102),))


@pytest.mark.parametrize(
    ("unstable", "content", "text"),
    [
        (500, batch(100, epoch=7), "an open transaction begins at offset 500"),
        (-1, OPEN[:7] + b"\x05" + OPEN[8:], "a batch of base offset 5 after offset 99"),
        (-1, b"\x80" + OPEN[1:], "a batch of base offset -9223372036854775708 after offset 99"),
    ],
    ids=["snapshot", "base offset below", "base offset below 0"],
)
def test_a_transaction_that_is_open_at_no_offset_of_the_log_ends_the_reading(
    directory: Path, unstable: int, content: bytes, text: str
) -> None:
    """The last stable offset would be above the end, or below 0: no reader accepts an index with it."""
    put(directory, 100, content, batch(101, epoch=7))
    (directory / f"{100:020d}.snapshot").write_bytes(snapshot(unstable))
    with pytest.raises(CorruptData, match=text):
        live_log(directory, 7, 101).read(102, MOST)


@pytest.mark.parametrize("delta", [-5, 0, 1000, (1 << 31) - 1])
def test_an_open_transaction_begins_at_its_offset_whatever_its_producer_wrote(directory: Path, delta: int) -> None:
    """A broker of 0.11 to 1.1 computed the base offset from the last offset and the producer's delta."""
    open_one = batch(100 - delta, epoch=7, attributes=TRANSACTIONAL, producer_id=9, last_offset_delta=delta)
    put(directory, 100, open_one, batch(101, epoch=7))
    piece = live_log(directory, 7, 101).read(102, MOST)
    assert piece is not None
    assert (piece.start, piece.end, piece.stable) == (101, 102, 100)
    put(directory, 100, batch(100, epoch=7, count=0, body=b"", last_offset_delta=-2), batch(101, epoch=7))
    with pytest.raises(CorruptData, match="a batch of base offset 100 after offset 99"):
        live_log(directory, 7, 101).read(102, MOST)


def test_many_aborted_transactions_are_not_named(directory: Path) -> None:
    """An index with all of them would be larger than readers accept: one producer could end the tails of a broker."""
    body = b""
    for first in range(0, 2 * MOST_ABORTED + 2, 2):
        body += batch(first, epoch=7, attributes=TRANSACTIONAL, producer_id=9) + marker(first + 1, 9, ABORT, epoch=7)
    put(directory, 0, body)
    few = live_log(directory, 7, 0).read(2 * MOST_ABORTED, MOST)
    many = live_log(directory, 7, 0).read(2 * MOST_ABORTED + 2, MOST)
    assert few is not None
    assert many is not None
    assert few.aborted == tuple(Aborted(9, first, first + 1) for first in range(0, 2 * MOST_ABORTED, 2))
    assert many.aborted is None


def test_an_offset_inside_a_batch_is_no_beginning(directory: Path) -> None:
    """Replicas have the same batches, so the archive ends where one ends."""
    put(directory, 0, batch(0, count=5, epoch=7))
    with pytest.raises(CorruptData, match="offset 3 is inside a batch"):
        live_log(directory, 7, 3).read(99, MOST)
