"""The metadata of a `.log` object, which saves readers from reading the segment.

All fields can be rebuilt from the segment, except an epoch whose batches compaction removed. S3 allows 2 KB of
metadata, so the list of epochs is absent if it has more than 16 pairs. Readers then read the epochs of the batches.
They need the last pair too: if compaction removed its batches, the end of the coverage looks like a dead tail without
it. Values are ASCII.

====================  =================================================================================
`ts-end`              end of coverage: the segment covers `[base, end)`
`ts-epochs`           `epoch:first offset` wherever the epoch changes, with commas
`ts-last-epoch`       the last of these pairs, if there are more than 16; absent in older archives
`ts-records`          number of records, with control records; absent if only decompression yields it
`ts-control`          number of control records among them; absent in older archives
`ts-time-max`         greatest record timestamp, ms; absent if no record has one
`ts-time-min`         least record timestamp, ms; absent unless headers alone prove it
`ts-crc32c`           CRC-32C of the whole object, 8 hex digits
`ts-txnindex`         `<crc32c>:complete`, `:late` or `:corrupt`; absent without a `.txnindex`
`ts-timeindex`        CRC-32C of the `.timeindex`, 8 hex digits; absent unless the batch headers confirm all of it
`ts-corrupt`          number of places that are not a whole batch; absent if 0
`ts-shipped`          when the agent shipped it, ms since the epoch by its clock; absent in older archives
`ts-replaces`         name of a damaged object without `.log`, whose offsets readers read elsewhere; absent without one
`ts-erased`           number of the list of erased offsets that it obeys (`tsctl.erase`); absent without one
`ts-version`          version of these fields (see `ts_common.format_version`); absent in version 1
====================  =================================================================================
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.archive.object_keys import LOG_SUFFIX, SegmentName
from ts_common.format_version import check_version
from ts_common.json_objects import MAX_INT32, MAX_INT64, MIN_INT64, decoding, shown, whole_number

MAX_EPOCHS = 16
ERASED_FIELD: Final = "ts-erased"
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_HEX = re.compile(r"[0-9a-f]{8}")


class TxnIndexState(StrEnum):
    """Whether readers can use a `.txnindex`."""

    COMPLETE = "complete"  # every abort marker of the log has its entry
    LATE = "late"  # shipped after the log's retention for markers may have passed
    CORRUPT = "corrupt"  # a marker of the log has no entry, or the file is not an index


@dataclass(frozen=True, slots=True)
class SegmentMetadata:
    """The metadata of one `.log` object; the module's docstring has the meaning of each field.

    Attributes:
        end: end of coverage, an offset.
        epochs: (epoch, first offset) pairs; None if there are more than `MAX_EPOCHS`.
        records: count; None if unknown.
        time_max: ms since the epoch; None if no record has a timestamp.
        time_min: ms since the epoch; None if unknown.
        crc32c: CRC-32C of the whole `.log`; see `known_crc32c`.
        txnindex: CRC-32C of the `.txnindex` and its state; None without one.
        corruptions: number of places that are not a whole batch.
        timeindex: CRC-32C of the `.timeindex` that the batches confirm; None without one.
        shipped: ms since the epoch, the agent's clock; None if unknown. A copy of a bucket keeps it, unlike the time of
            an object's last modification.
        control: number of control records among `records`; None if unknown.
        last_epoch: the last pair of `epochs` that are too many; else None.
        replaces: stem of the damaged object of the same partition that this one repairs; None without one.
        rebuilt: whether a reader rebuilt the metadata from the segment; the `.txnindex` is then unchecked.
    """

    end: int
    epochs: tuple[tuple[int, int], ...] | None
    records: int | None
    time_max: int | None
    time_min: int | None
    crc32c: int
    txnindex: tuple[int, TxnIndexState] | None = None
    corruptions: int = 0
    rebuilt: bool = False
    timeindex: int | None = None
    shipped: int | None = None
    control: int | None = None
    last_epoch: tuple[int, int] | None = None
    replaces: str | None = None

    def encode(self) -> dict[str, str]:
        """Return the fields of the object's metadata, by name."""
        fields = {"ts-end": str(self.end), "ts-crc32c": f"{self.crc32c:08x}"}
        if self.epochs and len(self.epochs) <= MAX_EPOCHS:  # an empty value does not survive every store
            fields["ts-epochs"] = ",".join(f"{epoch}:{first}" for epoch, first in self.epochs)
        last = self.epochs[-1] if self.epochs and len(self.epochs) > MAX_EPOCHS else self.last_epoch
        if last is not None:
            fields["ts-last-epoch"] = f"{last[0]}:{last[1]}"
        for name, value in (
            ("ts-records", self.records),
            ("ts-control", self.control),
            ("ts-time-max", self.time_max),
            ("ts-time-min", self.time_min),
            ("ts-corrupt", self.corruptions or None),
            ("ts-shipped", self.shipped),
            ("ts-replaces", self.replaces),
        ):
            if value is not None:
                fields[name] = str(value)
        if self.txnindex is not None:
            fields["ts-txnindex"] = f"{self.txnindex[0]:08x}:{self.txnindex[1]}"
        if self.timeindex is not None:
            fields["ts-timeindex"] = f"{self.timeindex:08x}"
        return fields


def decode_metadata(fields: Mapping[str, str], key: str) -> SegmentMetadata | None:
    """Parse the metadata of a `.log` object; None if it has no `ts-end` (a Java uploader wrote it, or a copy lost it).

    Raises:
        CorruptData: the metadata is damaged.
        NewerFormat: a later release wrote it.
    """
    if "ts-end" not in fields and "ts-version" not in fields:
        return None
    with decoding(key, "an object with metadata that can be read"):
        if "ts-version" in fields:
            check_version({"version": _number(fields["ts-version"])}, key)
        txnindex = None
        if (text := fields.get("ts-txnindex")) is not None:
            crc, _, state = text.partition(":")
            txnindex = (_crc32c(crc), TxnIndexState(state))
        return SegmentMetadata(
            end=_number(fields["ts-end"]),
            epochs=_decode_epochs(fields.get("ts-epochs")),
            records=_optional(fields, "ts-records"),
            time_max=_optional(fields, "ts-time-max", MIN_INT64),
            time_min=_optional(fields, "ts-time-min", MIN_INT64),
            crc32c=_crc32c(fields["ts-crc32c"]),
            txnindex=txnindex,
            corruptions=_optional(fields, "ts-corrupt") or 0,
            timeindex=_crc32c(fields["ts-timeindex"]) if "ts-timeindex" in fields else None,
            shipped=_optional(fields, "ts-shipped"),
            control=_optional(fields, "ts-control"),
            last_epoch=_epoch(fields["ts-last-epoch"]) if "ts-last-epoch" in fields else None,
            replaces=segment_stem(fields["ts-replaces"]) if "ts-replaces" in fields else None,
        )


def erased_number(fields: Mapping[str, str]) -> int:
    """Return the number of the list that a `.log` obeys, by its metadata; 0 if no eraser put it."""
    text = fields.get(ERASED_FIELD, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def segment_stem(text: str) -> str:
    """Return the name of a segment without a suffix.

    Raises:
        ValueError: no segment can have this name.
    """
    parsed = SegmentName.parse(text + LOG_SUFFIX)
    if parsed is None or parsed[0].stem != text:
        raise ValueError(f"{shown(text)} is no segment's name")
    return text


def known_crc32c(metadata: SegmentMetadata) -> int | None:
    """Return the object's CRC-32C; None if `segment_inspection` read both ends of the segment only."""
    unknown = metadata.crc32c == 0 and metadata.records is None
    return None if unknown else metadata.crc32c


def _decode_epochs(text: str | None) -> tuple[tuple[int, int], ...] | None:
    if text is None:
        return None
    return tuple(_epoch(pair) for pair in text.split(",") if pair)


def _epoch(pair: str) -> tuple[int, int]:
    epoch, first = pair.split(":")
    return _number(epoch, -1, MAX_INT32), _number(first)


def _optional(fields: Mapping[str, str], name: str, least: int = 0) -> int | None:
    return _number(fields[name], least) if name in fields else None


def _number(text: str, least: int = 0, most: int = MAX_INT64) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number")
    return whole_number(int(text), least, most)


def _crc32c(text: str) -> int:
    if not _HEX.fullmatch(text):
        raise ValueError(f"{shown(text)} is not 8 hex digits")
    return int(text, 16)
