"""Differences between the project's decoder and Kafka's Java consumer, and those of them that are right.

An excuse is a predicate on a difference, with the class of Java that decides. Without one, a difference is a failure.
"""

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dev.local.consumed_logs import Consumed, ConsumedRecord, Header, Reading
from ts_common.errors import BatchTooLarge, CorruptData
from ts_common.log_format.framing import (
    CONTROL_MASK,
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_POSITION,
    MAGIC_POSITION,
    Trailing,
    batch_field_position,
)
from ts_reader.decode.segment_decoder import MAX_OFFSET

_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_ATTRIBUTES_AT: Final = batch_field_position("attributes") + 1  # the lower byte
_OFFSET_ERRORS: Final = ("the batches before it end at", "an offset of at least 0 is expected")
_DELTA_AT: Final = batch_field_position("last_offset_delta")

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[Header, ...]]


def _row_of(record: ConsumedRecord) -> Row:
    return (*record[:3], *record[4:])


@dataclass(frozen=True, slots=True)
class Ours:
    """What the project's decoder shows of a log.

    Attributes:
        rows: offset, timestamp, its type, key, value and headers.
        error: that ended the decoding.
        position: after the last whole batch; with an error, of the damaged batch.
        trailing: how the log ended.
        contradicted: batches whose records do not have the offsets of their headers.
    """

    rows: list[Row]
    error: CorruptData | BatchTooLarge | None
    position: int
    trailing: Trailing | None
    contradicted: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Both readings of a log.

    Attributes:
        log: its bytes.
        ours: the project's.
        consumed: the consumer's, at both isolation levels.
        is_committed: the isolation level of this difference.
    """

    log: bytes
    ours: Ours
    consumed: Consumed
    is_committed: bool

    @property
    def java(self) -> Reading:
        """The consumer's reading at this level."""
        return self.consumed.committed if self.is_committed else self.consumed.uncommitted

    @property
    def rows(self) -> list[Row]:
        """The consumer's records, as rows."""
        return [_row_of(each) for each in self.java.records]

    @property
    def ours_alone(self) -> Counter[Row]:
        """The project's rows that the consumer does not show."""
        return Counter(self.ours.rows) - Counter(self.rows)

    @property
    def is_none(self) -> bool:
        """Whether both show the same rows, and refuse the same batch or none."""
        if bool(self.ours.error) != bool(self.java.refusal) or self.java.is_cut:
            return False
        return self.ours.position == self.java.position and self.ours.rows == self.rows

    @property
    def shares_rows(self) -> bool:
        """Whether the rows of one reading are the first of the other's."""
        ours, java = self.ours.rows, self.rows
        shared = min(len(ours), len(java))
        return ours[:shared] == java[:shared]

    @property
    def text(self) -> str:
        """For a reader."""
        ours, java = self.ours, self.java
        level = "committed" if self.is_committed else "uncommitted"
        pairs = enumerate(zip(ours.rows, self.rows, strict=False))
        first = next((f"; row {at} is {one}, Java's {other}" for at, (one, other) in pairs if one != other), "")
        return (
            f"{level}: {len(ours.rows)} rows to {ours.position} and {ours.error}; "
            f"Java {len(java.records)} rows to {java.position} and {java.refusal} {java.message[:200]}{first}"
        )


@dataclass(frozen=True, slots=True)
class Excuse:
    """A difference that is right.

    Attributes:
        reason: why.
        java_class: that decides in Java.
        applies: whether a difference is of this kind.
    """

    reason: str
    java_class: str
    applies: Callable[[Difference], bool]

    @property
    def text(self) -> str:
        """For a reader."""
        return f"{self.reason} ({self.java_class})"


def _is_too_large(found: Difference) -> bool:
    """The memory of a batch is limited, and the bytes of Java's answer are."""
    return (isinstance(found.ours.error, BatchTooLarge) or found.java.is_cut) and found.shares_rows


def _is_refused_within_the_same_batch(found: Difference) -> bool:
    """Rows of the batches before are the same, because those of both are the first of the other's."""
    is_refused = isinstance(found.ours.error, CorruptData) and bool(found.java.refusal)
    return is_refused and found.ours.position == found.java.position and found.shares_rows


def _is_end_of_zeros_or_less_than_a_header(found: Difference) -> bool:
    """Java refuses it after it has shown the same."""
    rest = len(found.log) - found.ours.position
    is_end = found.ours.trailing is Trailing.ZEROS or (found.ours.trailing is Trailing.TORN and rest <= MAGIC_POSITION)
    is_refused = found.java.position == found.ours.position and "minimum record overhead" in found.java.message
    return is_end and is_refused and found.ours.rows == found.rows


def _is_part_of_a_batch(found: Difference) -> bool:
    """Both end at the same batch, whose last bytes are missing."""
    at = found.ours.position
    if len(found.log) - at < LENGTH_END:
        return False
    size = LENGTH_END + _LENGTH.unpack_from(found.log, at + LENGTH_POSITION)[0]
    is_part = at + size > len(found.log)
    is_end = not found.java.refusal or "newLimit < 0" in found.java.message  # Java's sum of the size overflows
    return is_part and is_end and found.java.position == at and found.ours.rows == found.rows


def _is_offset_again(found: Difference) -> bool:
    """No CRC covers the offset of a batch, so one that does not ascend is damage; Java skips such records."""
    at = found.ours.position
    is_again = any(each in str(found.ours.error) for each in _OFFSET_ERRORS) and at <= found.java.position
    # The offsets of aborted transactions have no meaning in such a log.
    return is_again and (found.is_committed or found.ours.rows == found.rows[: len(found.ours.rows)])


def _is_message_that_java_does_not_check(found: Difference) -> bool:
    """Java checks the messages that it shows, but neither the CRC of a wrapper nor messages that it skips."""
    errors = (": CRC ", "lengths of its key and value do not fit", "by its length field; at least 34 are expected")
    is_damage = any(each in str(found.ours.error) for each in errors)
    if not is_damage or found.ours.position >= found.java.position:
        return False
    return found.log[found.ours.position + MAGIC_POSITION] < 2 and found.ours.rows == found.rows[: len(found.ours.rows)]


def _is_beyond_the_last_offset(found: Difference) -> bool:
    """Offsets have 63 bits; a log cannot contain the last of them, which is the project's open end of a range."""
    at, log = 0, found.log + bytes(HEADER_SIZE)
    while at < len(found.log) and at <= found.ours.position:
        delta = _LENGTH.unpack_from(log, at + _DELTA_AT)[0] if log[at + MAGIC_POSITION] == 2 else 0
        base = _OFFSET.unpack_from(log, at)[0]
        if base + delta >= MAX_OFFSET - 1:
            below = [[row for row in rows if row[0] < base] for rows in (found.rows, found.ours.rows)]
            return found.shares_rows or below[0] == below[1]
        size = LENGTH_END + _LENGTH.unpack_from(log, at + LENGTH_POSITION)[0]
        if size < LENGTH_END:
            break
        at += size
    return False


def _is_out_of_memory(found: Difference) -> bool:
    """A length that lies makes Java allocate; how much it can, its heap decides."""
    is_out = found.java.refusal == "java.lang.OutOfMemoryError" and found.java.position <= found.ours.position
    return is_out and found.rows == found.ours.rows[: len(found.rows)]


def _is_below_its_marker(found: Difference) -> bool:
    """The rows that only the project shows are above the marker of an aborted transaction."""
    last = min((each[2] for each in found.consumed.aborted), default=MAX_OFFSET)
    return bool(found.ours_alone) and all(row[0] > last for row in found.ours_alone)


def _is_position_that_goes_back(found: Difference) -> bool:
    """An aborted batch that ends below offsets shown before makes Java's position go back, in one poll alone."""
    again = Counter(found.java.records) - Counter(found.consumed.uncommitted.records)
    more = Counter(found.rows) - Counter(found.ours.rows)
    is_again = bool(again) and not more - Counter(map(_row_of, again.elements()))
    return found.is_committed and is_again and (not found.ours_alone or _is_below_its_marker(found))


def _is_marker_below_its_transaction(found: Difference) -> bool:
    """Java leaves out a producer's batches up to its marker in the log; the project those of the index's offsets."""
    is_same_end = found.ours.position == found.java.position and not Counter(found.rows) - Counter(found.ours.rows)
    return found.is_committed and is_same_end and _is_below_its_marker(found)


def _is_damage_that_only_an_aborted_batch_hides(found: Difference) -> bool:
    """Java's committed reading skips such a batch before it reads the count, and also above its marker's offset."""
    at, uncommitted = found.ours.position, found.consumed.uncommitted
    is_above = any(marker < first for _, first, marker in found.consumed.aborted)
    is_unread = "record count -" in str(found.ours.error) or is_above
    is_refused = bool(found.ours.error) and bool(uncommitted.refusal) and uncommitted.position == at
    is_skipped = found.is_committed and bool(found.consumed.aborted) and at < found.java.position
    return is_unread and is_refused and is_skipped and found.ours.rows == found.rows[: len(found.ours.rows)]


def _is_batch_below_the_first_offset(found: Difference) -> bool:
    """The project opens no batch that ends below the first wanted offset, which is 0 here."""
    at = found.java.position
    header = found.log[at : at + HEADER_SIZE]
    if not found.java.refusal or len(header) < HEADER_SIZE or header[MAGIC_POSITION] != 2:
        return False
    last = _OFFSET.unpack_from(header)[0] + _LENGTH.unpack_from(header, _DELTA_AT)[0]
    return last < 0 and found.rows == found.ours.rows[: len(found.rows)]


def _is_marker_that_is_none(found: Difference) -> bool:
    """Only Java's committed reading parses markers; the project reads aborted transactions from their index."""
    at = found.java.position
    is_parsed = found.is_committed and bool(found.java.refusal) and at < found.ours.position
    header = found.log[at : at + HEADER_SIZE]
    is_control = (
        len(header) == HEADER_SIZE and header[MAGIC_POSITION] == 2 and bool(header[_ATTRIBUTES_AT] & CONTROL_MASK)
    )
    return is_parsed and is_control and found.ours.rows[: len(found.rows)] == found.rows


EXCUSES: Final = (
    Excuse(
        "a batch above the reader's limit of memory, which Java does not have",
        "java.lang.OutOfMemoryError",
        _is_too_large,
    ),
    Excuse(
        "both refuse the same batch, after a different number of its records",
        "org.apache.kafka.common.record.DefaultRecordBatch.RecordIterator",
        _is_refused_within_the_same_batch,
    ),
    Excuse(
        "zero bytes at the end, as in a file that a broker preallocates, or a few bytes of a header",
        "org.apache.kafka.common.record.ByteBufferLogInputStream",
        _is_end_of_zeros_or_less_than_a_header,
    ),
    Excuse(
        "a part of a batch at the end, whose header is wrong already",
        "org.apache.kafka.common.record.ByteBufferLogInputStream",
        _is_part_of_a_batch,
    ),
    Excuse(
        "a batch whose offset does not ascend: damage, because no CRC covers it; Java skips its records in silence",
        "org.apache.kafka.clients.consumer.internals.CompletedFetch",
        _is_offset_again,
    ),
    Excuse(
        "a message of magic 0 or 1 with a wrong CRC or length that Java does not check: it wraps others, or is skipped",
        "org.apache.kafka.clients.consumer.internals.CompletedFetch",
        _is_message_that_java_does_not_check,
    ),
    Excuse(
        "a batch that reaches the last offset of 63 bits",
        "org.apache.kafka.common.record.DefaultRecordBatch",
        _is_beyond_the_last_offset,
    ),
    Excuse(
        "a length that lies, for which Java's heap of this test is too small",
        "java.lang.OutOfMemoryError",
        _is_out_of_memory,
    ),
    Excuse(
        "an aborted batch that makes Java show records that its uncommitted reading skips",
        "org.apache.kafka.clients.consumer.internals.CompletedFetch",
        _is_position_that_goes_back,
    ),
    Excuse(
        "an aborted transaction whose marker has a lower offset than its records, in a log whose offsets go back",
        "org.apache.kafka.clients.consumer.internals.CompletedFetch",
        _is_marker_below_its_transaction,
    ),
    Excuse(
        "damage in an aborted batch that Java's committed reading skips: a count below 0, or above the marker's offset",
        "org.apache.kafka.clients.consumer.internals.CompletedFetch",
        _is_damage_that_only_an_aborted_batch_hides,
    ),
    Excuse(
        "a batch that ends below the first wanted offset, which Java opens and refuses",
        "org.apache.kafka.common.record.DefaultRecordBatch",
        _is_batch_below_the_first_offset,
    ),
    Excuse(
        "a control batch without a marker's key, which only Java's committed reading parses",
        "org.apache.kafka.common.record.ControlRecordType",
        _is_marker_that_is_none,
    ),
)

COUNT_BY_HEADER: Final = (
    "a compressed batch counted by a header that contradicts its records, which every broker refuses "
    "(org.apache.kafka.storage.internals.log.LogValidator)"
)


def excuse_of(found: Difference) -> str | None:
    """Return the first excuse that applies, as text; None without one."""
    for excuse in EXCUSES:
        if excuse.applies(found):
            return excuse.text
    return None
