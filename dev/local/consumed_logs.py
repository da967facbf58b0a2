"""What Kafka's Java consumer shows of the bytes of a log: the command `consume` of the resident JVM.

The consumer of kafka-clients 4.1 reads each log as if it were the one answer to a fetch from the first offset
(`org.apache.kafka.clients.consumer.internals.CompletedFetch`), uncommitted and committed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dev.local.resident_jvm import ResidentJvm

Header = tuple[bytes, bytes | None]

_START: Final = struct.Struct(">qbii")
_INT: Final = struct.Struct(">i")
_GIVEN: Final = struct.Struct(">qq")
_TRANSACTION: Final = struct.Struct(">qqq")
_READING: Final = struct.Struct(">bi")
_RECORD: Final = struct.Struct(">qqbi")
_MOST_BYTES: Final = 64 << 20


class ConsumedRecord(NamedTuple):
    """A record as the consumer returns it.

    Attributes:
        offset: in the partition.
        timestamp: ms since 1970; -1 for no timestamp.
        timestamp_type: Kafka's id: 0 CreateTime, 1 LogAppendTime, -1 no timestamp.
        leader_epoch: of the batch; -1 for none.
        key: None for null.
        value: None for null.
        headers: names as UTF-8, values None for null.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a log.

    Attributes:
        records: that the consumer returned, in its order.
        refusal: class of the exception that ended the reading; empty if it reached the end of the whole batches.
        position: of the batch that the consumer worked on at the end; without a refusal, the end of the last batch.
        is_cut: whether the records exceeded the most bytes, so that the reading ended before both.
    """

    records: list[ConsumedRecord]
    refusal: str
    message: str
    position: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Consumed:
    """Both readings of a log.

    Attributes:
        uncommitted: with `read_uncommitted`.
        committed: with `read_committed`.
        aborted: producer id, first offset, and offset of the marker (-1 if given) of each aborted transaction.
    """

    uncommitted: Reading
    committed: Reading
    aborted: tuple[tuple[int, int, int], ...]


def consume(
    jvm: ResidentJvm,
    logs: Sequence[bytes],
    *,
    start: int = 0,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] | None = None,
    most_bytes: int = _MOST_BYTES,
    seconds: float = 60.0,
) -> list[Consumed]:
    """Return what the consumer shows of each log.

    Args:
        logs: bytes of each.
        start: first offset.
        check_crcs: the consumer's `check.crcs`.
        aborted: producer id and first offset of aborted transactions in each log; None: those that a broker would list,
            because the log has their first batch and their marker.
        most_bytes: of the records of a reading, before it is cut.
        seconds: of all.

    Raises:
        CommandFailedError, JvmLostError: as `ResidentJvm.call`.
    """
    given = _INT.pack(-1 if aborted is None else len(aborted)) + b"".join(_GIVEN.pack(*each) for each in aborted or ())
    pieces = [_START.pack(start, check_crcs, most_bytes, len(logs))]
    for log in logs:
        pieces += [given, _INT.pack(len(log)), log]
    fields = _Fields(jvm.call("consume", b"".join(pieces), seconds=seconds))
    return [fields.consumed() for _ in logs]


class _Fields:
    """Decodes the result, one field after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def consumed(self) -> Consumed:
        aborted: list[tuple[int, int, int]] = [self._unpack(_TRANSACTION) for _ in range(self._int())]
        return Consumed(self._reading(), self._reading(), tuple(aborted))

    def _reading(self) -> Reading:
        is_cut, position = self._unpack(_READING)
        refusal, message = ((self._sized() or b"").decode() for _ in range(2))
        records = [self._record() for _ in range(self._int())]
        return Reading(records, refusal, message, position, bool(is_cut))

    def _record(self) -> ConsumedRecord:
        offset, timestamp, timestamp_type, epoch = self._unpack(_RECORD)
        key, value = self._sized(), self._sized()
        headers = tuple((self._sized() or b"", self._sized()) for _ in range(self._int()))
        return ConsumedRecord(offset, timestamp, timestamp_type, epoch, key, value, headers)

    def _sized(self) -> bytes | None:
        size = self._int()
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at]

    def _int(self) -> int:
        return int(self._unpack(_INT)[0])

    def _unpack(self, what: struct.Struct) -> Any:
        found = what.unpack_from(self._data, self._at)
        self._at += what.size
        return found
