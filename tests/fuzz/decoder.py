"""The decoder against Kafka's Java consumer, record for record, in memory that ends at a guard page.

An input is a line of settings, and the bytes of a log. Settings are `rows=` and `bytes=` of one `RecordColumns`,
`sized` where the log's size is known, and `cuts=3,9`, where chunks end. Both read the log from offset 0, uncommitted
and committed. They must show the same records (each field but the leader epoch, which is no column), and refuse the
same batches. `excuses` lists the differences that are right, and the inputs that each excused are counted.
"""

import ctypes
import gc
import itertools
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import lz4.frame
import pyarrow
from awscrt.checksums import crc32

from dev.local.consumed_logs import Consumed, consume
from dev.local.resident_jvm import SMALL_HEAP_MB, CommandFailedError, JvmLostError, resident_jvm
from tests.common.log_format import build
from tests.fuzz.excuses import COUNT_BY_HEADER, Difference, Ours, Row, excuse_of
from tests.fuzz.guard import GuardedNumpy, guarded
from tests.fuzz.logs import batches_of, draw_log, with_crcs
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.target import Mismatch, Target, corpus_of, split_input
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, MAGIC_POSITION
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.limits import BatchLimit
from ts_reader.decode import columns
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.decode.batch_summary import BatchSummary
from ts_reader.decode.columns import BinaryColumn, Projection, RecordColumns
from ts_reader.decode.segment_decoder import SegmentDecoder

_MOST: Final = 8 << 20
_MOST_AHEAD: Final = 1 << 18
_LATEST: Final = ((1 << 63) - 1) // 1000
_COLLECT_EACH: Final = 100
_ROOMS: Final = ((4, 64), (3, 1000), (4096, 1 << 16), (4096, 1 << 16), (4096, 1 << 16), (1, 1))
_CHECKED_SHARE: Final = 4  # Arrow's and the counts' checks cost as much as the comparison
_ASKED_AT_ONCE: Final = 64
_MUTATED_SHARE: Final = 0.15
_LARGE: Final = ("h03-", "h04-", "value-above-")  # inputs that cost Java seconds, too many to mutate
_JAVA_SECONDS: Final = 30.0


class Decoder(Target):
    """One decoder after the other."""

    at_once = _ASKED_AT_ONCE

    def open(self) -> None:
        """Compile the kernels, and start the JVM; arrays end at a page that must not be accessed."""
        self._count = 0
        self._counts: Counter[str] = Counter()
        self._consumed: dict[bytes, Consumed] = {}
        module: Any = columns
        module.np = GuardedNumpy()
        self._real = [batch for path in sorted(build.DATA.glob("*.log")) for batch in batches_of(path.read_bytes())]
        seeds = [path for path in corpus_of(self.name) if not path.name.startswith(_LARGE)]
        self._corpus = [split_input(path.read_bytes())[1] for path in seeds]
        wrapper = build.message(1, 0, lz4.frame.compress(build.message(1, 0, b"v")), attributes=3)
        for log in (b"".join(self._real[:10]), wrapper):  # every kernel; an input that compiles one is slow and large
            _counted(log, self._decoded(log, {}))
        self.run(b"\n" + wrapper)
        self._counts.clear()
        gc.freeze()

    def drawn(self, chance: random.Random) -> bytes:
        """A log, or one of the corpus with other bytes and mostly with right CRCs, and how it is read."""
        if chance.random() >= _MUTATED_SHARE:
            return self.draw(chance)
        log = mutate_bytes(chance, chance.choice(self._corpus))
        return _settings(chance, log) + (with_crcs(log) if chance.random() < 0.8 else log)

    def draw(self, chance: random.Random) -> bytes:
        """A log, and how it is read."""
        log = draw_log(chance, self._real)
        return _settings(chance, log) + log

    def run_ahead(self, inputs: Sequence[bytes]) -> None:
        """Let Java read all of them in one call; what is large, or ends the JVM, it reads alone later."""
        logs = [split_input(data)[1] for data in inputs]
        try:
            found = consume(resident_jvm(SMALL_HEAP_MB), logs, most_bytes=_MOST_AHEAD, seconds=_JAVA_SECONDS)
        except (CommandFailedError, JvmLostError):
            found = []
        pairs = zip(logs, found, strict=False)
        self._consumed = {log: each for log, each in pairs if not (each.uncommitted.is_cut or each.committed.is_cut)}

    def counts(self) -> Mapping[str, int]:
        """Logs that were compared, and those that each excuse is for."""
        return self._counts

    def run(self, data: bytes) -> None:
        """Decode it for both isolation levels, and compare."""
        self._count += 1
        if self._count % _COLLECT_EACH == 0:
            gc.collect()  # errors hold decoders, and these guarded memory, in circles
        words, log = split_input(data)
        settings = dict(word.partition("=")[::2] for word in words)
        consumed = self._consumed.get(log)
        if consumed is None:
            (consumed,) = consume(resident_jvm(SMALL_HEAP_MB), [log], seconds=_JAVA_SECONDS)
        excuses = set()
        is_checked = crc32(data) % _CHECKED_SHARE == 0
        ours = self._decoded(log, settings, check_arrow=is_checked)
        excuses.add(_compared(log, ours, consumed, is_committed=False))
        if is_checked:
            excuses.add(_counted(log, ours))
        if consumed.aborted or consumed.committed != consumed.uncommitted:
            aborted = [AbortedTransaction(producer, first, last, 0) for producer, first, last in consumed.aborted]
            ours = self._decoded(log, settings, aborted)
        excuses.add(_compared(log, ours, consumed, is_committed=True))
        self._counts["compared"] += 1
        self._counts.update(excuse for excuse in excuses if excuse)

    def _decoded(
        self,
        log: bytes,
        settings: Mapping[str, str],
        aborted: Sequence[AbortedTransaction] = (),
        *,
        check_arrow: bool = False,
    ) -> Ours:
        decoder = SegmentDecoder(
            Projection(),
            0,
            max_rows=_number(settings.get("rows"), 1, 1 << 15),
            max_bytes=_number(settings.get("bytes"), 1, 1 << 20),
            size=len(log) if "sized" in settings else None,
            limit=BatchLimit(_MOST),
            aborted=aborted,
        )
        rows: list[Row] = []
        error: CorruptData | BatchTooLarge | None = None
        try:
            for found in decoder.decode(_chunks(log, settings.get("cuts", ""))):
                rows += _rows_of(found)
                if check_arrow:
                    _check_arrow(found)
        except (BatchTooLarge, CorruptData) as damage:
            error = damage
        return Ours(rows, error, decoder.valid_bytes, decoder.trailing, decoder.contradicted)


def _compared(log: bytes, ours: Ours, consumed: Consumed, *, is_committed: bool) -> str | None:
    """Return the excuse of a difference, None if there is no difference.

    Raises:
        Mismatch: a difference without an excuse.
    """
    difference = Difference(log, ours, consumed, is_committed)
    if difference.is_none:
        return None
    excuse = excuse_of(difference)
    if excuse is None:
        raise Mismatch(difference.text)
    return excuse


def _counted(log: bytes, ours: Ours) -> str | None:
    """Compare the number of records by headers, as `count_rows` computes it, with that of the records.

    Raises:
        Mismatch: another number, without the excuse.
    """
    if ours.error is not None:
        return None
    summary = BatchSummary()
    decoder = SegmentDecoder(size=len(log), limit=BatchLimit(_MOST), summary=summary)
    for found in decoder.decode([log]):
        summary.add(found.offsets, found.timestamps)
    if summary.rows == len(ours.rows):
        return None
    if not ours.contradicted or not any(map(_is_compressed_and_contradicted, batches_of(log))):
        raise Mismatch(f"{summary.rows} rows by headers, {len(ours.rows)} records")
    return COUNT_BY_HEADER


def _is_compressed_and_contradicted(batch: bytes) -> bool:
    """Whether the records of one batch have other offsets than its header, and a header is used for their number."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_POSITION] < 2 or not batch[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
        return False
    decoder = SegmentDecoder(size=len(batch), limit=BatchLimit(_MOST))
    with suppress(CorruptData, BatchTooLarge):
        deque(decoder.decode([batch]), 0)
    return bool(decoder.contradicted)


def _check_arrow(found: RecordColumns) -> None:
    """Check that Arrow accepts the columns, and that timestamps are those of the records within the type's range."""
    batch = to_arrow(found, "t", 0, COLUMNS_WITH_HEADERS)
    batch.validate(full=True)
    times = batch.column("timestamp").cast(pyarrow.int64()).to_pylist()
    for microseconds, milliseconds in zip(times, found.timestamps.tolist(), strict=True):
        if microseconds != max(-_LATEST, min(milliseconds, _LATEST)) * 1000:
            raise Mismatch(f"the time {milliseconds} ms is {microseconds} us")


def _chunks(log: bytes, cuts: str) -> list[Any]:
    places = sorted({min(_number(each, 0, len(log)), len(log)) for each in cuts.split(",") if each})
    pieces = [log[start:end] for start, end in itertools.pairwise([0, *places, len(log)])]
    chunks = []
    for piece in pieces:
        buffer = guarded(len(piece))
        ctypes.memmove(buffer, piece, len(piece))
        chunks.append(buffer)
    return [chunk for chunk, piece in zip(chunks, pieces, strict=True) if piece]


def _settings(chance: random.Random, log: bytes) -> bytes:
    """The first line of an input."""
    rows, room = chance.choice(_ROOMS)
    line = f"rows={rows} bytes={room}"
    if chance.random() < 0.7:
        line += " sized"
    if chance.random() < 0.4 and len(log) > 2:
        cuts = sorted({chance.randrange(len(log)) for _ in range(chance.randrange(1, 4))})
        line += f" cuts={','.join(map(str, cuts))}"
    return line.encode() + b"\n"


def _number(text: str | None, least: int, most: int) -> int:
    return max(least, min(int(text), most)) if text and text.isdecimal() and len(text) < 10 else most


def _rows_of(found: RecordColumns) -> list[Row]:
    headers = found.headers
    rows: list[Row] = []
    for at in range(found.row_count):
        of_row = range(0) if headers is None else range(headers.offsets[at], headers.offsets[at + 1])
        rows.append(
            (
                int(found.offsets[at]),
                int(found.timestamps[at]),
                int(found.timestamp_types[at]),
                _cell(found.keys, at),
                _cell(found.values, at),
                tuple((_cell(headers.names, each) or b"", _cell(headers.values, each)) for each in of_row if headers),
            )
        )
    return rows


def _cell(column: BinaryColumn | None, at: int) -> bytes | None:
    if column is None or not column.validity[at >> 3] >> (at & 7) & 1:
        return None
    return column.data[column.offsets[at] : column.offsets[at + 1]].tobytes()
