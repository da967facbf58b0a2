"""Rows and JSON fields of what an archive contains: topics, partitions and segments. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.archive.catalog import PartitionCatalog
from ts_common.archive.commit import Commit, ForeignCommit
from ts_common.archive.commit_state import CommitState
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from tsctl.archive_options import (
    HeldTopic,
)
from tsctl.output import Streamed, iso, size


class SegmentState(StrEnum):
    """How much of a segment readers return."""

    LIVE = "live"
    PART = "part"  # its tail is dead or beyond the next offset, or its head is below log start
    DEAD = "dead"  # no offset is live
    UNCOMMITTED = "uncommitted"  # it begins at or beyond the next offset


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """A snapshot of a partition, and its view.

    Attributes:
        copies: what each of its segments covers, including segments that readers do not use.
    """

    catalog: PartitionCatalog
    view: PartitionView
    copies: tuple[SegmentCopy, ...]

    @property
    def holes(self) -> list[Hole]:
        """Offsets of the view that no segment contains."""
        return [part for part in self.view.plan(self.view.start, self.view.end) if isinstance(part, Hole)]

    def state(self, copy: SegmentCopy) -> tuple[SegmentState, int, int]:
        """Return the state of a segment and its live offsets `[from, to)`."""
        view = self.view
        low, live_end = view.live_range(copy)
        start, end = max(low, view.start), min(live_end, view.closed_end)
        if copy.base >= view.closed_end:
            return SegmentState.UNCOMMITTED, copy.base, copy.base
        if start >= end:
            return SegmentState.DEAD, copy.base, copy.base
        return (SegmentState.LIVE if (start, end) == (copy.base, copy.end) else SegmentState.PART), start, end


TOPIC_COLUMNS: Final = ("TOPIC", "INCARNATION", "PARTITIONS", "SEGMENTS", "SIZE", "OFFSETS", "GAPS", "LAST COMMIT")


def topic_row(entry: HeldTopic) -> tuple[str | int | None, ...]:
    """Return the row of a topic, as `TOPIC_COLUMNS`."""
    catalogs = entry.topic.partitions
    number, lives = _life(entry)
    return (
        entry.topic.name,
        f"{number} of {lives}" if lives > 1 else None,
        len(catalogs),
        sum(len(catalog.segments) for catalog in catalogs),
        size(sum(segment.size for catalog in catalogs for segment in catalog.segments)),
        _offsets(catalogs),
        sum(len(catalog.gaps) for catalog in catalogs),
        iso(_last_commit(catalogs)),
    )


def topic_fields(
    entry: HeldTopic, looks: Mapping[str, PartitionLook], states: Mapping[str, CommitState]
) -> dict[str, object]:
    """Return the JSON fields of a topic.

    Args:
        looks: its partitions by prefix; empty if they were not read.
        states: of their commits by prefix.
    """
    catalogs = entry.topic.partitions
    number, lives = _life(entry)
    life = entry.topic.incarnations.entries[number - 1] if entry.topic.incarnations.entries else None
    fields: dict[str, object] = {
        "topic": entry.topic.name,
        "location": entry.store.location,
        "incarnation": number,
        "incarnations": lives,
        "topic_id": life.topic_id if life else None,
        "first_seen": iso(life.first_seen) if life else None,
        "directory": entry.topic.directory,
        "segments": sum(len(catalog.segments) for catalog in catalogs),
        "bytes": sum(segment.size for catalog in catalogs for segment in catalog.segments),
        "offsets": _offsets(catalogs),
        "gap_records": sum(len(catalog.gaps) for catalog in catalogs),
        "last_commit": iso(_last_commit(catalogs)),
    }

    def partition(catalog: PartitionCatalog) -> dict[str, object]:
        found = looks.get(catalog.keys.prefix)
        return {**_partition_fields(catalog, found), "commit": states[catalog.keys.prefix].value}

    return {**fields, "partitions": Streamed(partition, catalogs)}


PARTITION_COLUMNS: Final = (
    *("PARTITION", "LOG START", "NEXT OFFSET", "STABLE", "EPOCH", "SEGMENTS", "SIZE", "RECORDS", "FROM", "TO"),
    *("HOLES", "ERASED", "LAST COMMIT", "END", "FRESH"),
)


def partition_row(look: PartitionLook) -> tuple[str | int | None, ...]:
    """Return the row of a partition, as `PARTITION_COLUMNS`."""
    catalog, view = look.catalog, look.view
    commit = catalog.commit if isinstance(catalog.commit, Commit) else None
    return (
        str(catalog.keys.partition),
        view.start if catalog.commit else catalog.log_start,
        view.closed_end if catalog.commit else None,
        view.last_stable_offset,
        commit.epoch if commit else None,
        len(catalog.segments),
        size(sum(segment.size for segment in catalog.segments)),
        _records(view.copies),
        iso(_earliest(view.copies)),
        iso(_latest(view.copies)),
        len(look.holes),
        view.erased.count,
        iso(commit.time) if commit else None,
        view.end if catalog.commit else None,
        iso(view.fresh),
    )


def _partition_fields(catalog: PartitionCatalog, look: PartitionLook | None) -> dict[str, object]:
    commit = catalog.commit if isinstance(catalog.commit, Commit) else None
    fields: dict[str, object] = {
        "partition": catalog.keys.partition.partition,
        "prefix": catalog.keys.prefix,
        "log_start": catalog.log_start,
        "next_offset": commit.next_offset if commit else None,
        "last_stable_offset": commit.last_stable_offset if commit else None,
        "epoch": commit.epoch if commit else None,
        "epochs": [list(pair) for pair in commit.epochs] if commit else [],
        "committed_by": _committed_by(catalog),
        "committed_at": iso(commit.time) if commit else None,
        "broker": commit.broker if commit else None,
        "segments": len(catalog.segments),
        "bytes": sum(segment.size for segment in catalog.segments),
        "gap_records": [{"from": start, "to": end} for start, end in catalog.gaps],
    }
    if look is None:
        return fields
    return {
        **fields,
        "start": look.view.start,
        "end": look.view.end,
        "fresh": iso(look.view.fresh),
        "records": _records(look.view.copies),
        "erased": look.view.erased.count,
        "time_min": iso(_earliest(look.view.copies)),
        "time_max": iso(_latest(look.view.copies)),
        "holes": [{"from": hole.start, "to": hole.end, "recorded": hole.recorded} for hole in look.holes],
        "segment_list": [_segment_fields(look, copy) for copy in look.copies],
    }


SEGMENT_COLUMNS: Final = (
    *("PARTITION", "SEGMENT", "END", "STATE", "LIVE FROM", "LIVE TO", "SIZE", "RECORDS", "FROM", "TO", "EPOCHS"),
    "INDEXES",
)


def segment_rows(look: PartitionLook) -> Iterable[tuple[str | int | None, ...]]:
    """Yield the row of each segment of a partition, as `SEGMENT_COLUMNS`."""
    for copy in look.copies:
        state, start, end = look.state(copy)
        metadata = copy.metadata
        yield (
            str(copy.keys.partition),
            copy.segment.name.stem,
            copy.end,
            state.value,
            start if start < end else None,
            end if start < end else None,
            size(copy.segment.size),
            metadata.records,
            iso(metadata.time_min),
            iso(metadata.time_max),
            ",".join(str(epoch) for epoch, _ in metadata.epochs or ()),
            ",".join(sorted(suffix.removeprefix(".") for suffix in copy.segment.suffixes)),
        )


def _segment_fields(look: PartitionLook, copy: SegmentCopy) -> dict[str, object]:
    state, start, end = look.state(copy)
    metadata, segment = copy.metadata, copy.segment
    return {
        "key": copy.key,
        "base": copy.base,
        "end": copy.end,
        "state": state.value,
        "live": [start, end] if start < end else None,
        "bytes": segment.size,
        "records": metadata.records,
        "time_min": iso(metadata.time_min),
        "time_max": iso(metadata.time_max),
        "epochs": None if metadata.epochs is None else [list(pair) for pair in metadata.epochs],
        "variant": segment.name.epoch is not None,
        "indexes": sorted(suffix.removeprefix(".") for suffix in segment.suffixes),
        "corruptions": metadata.corruptions,
        "crc32c": None if metadata.rebuilt else f"{metadata.crc32c:08x}",
        "storage_class": segment.storage_class,
        "frozen": segment.is_frozen,
    }


def _life(entry: HeldTopic) -> tuple[int, int]:
    """Return the number of the topic's incarnation, from 1, and how many there are."""
    entries = entry.topic.incarnations.entries
    found = (number for number, life in enumerate(entries, 1) if life.directory == entry.topic.directory)
    return next(found, 1), max(1, len(entries))


def _offsets(catalogs: Iterable[PartitionCatalog]) -> int | None:
    """Return how many offsets readers see; None if a commit does not contain its end."""
    count = 0
    for catalog in catalogs:
        match catalog.commit:
            case Commit(next_offset=end):
                count += max(0, end - (catalog.start or 0))
            case ForeignCommit():
                return None
            case None:
                pass
    return count


def _last_commit(catalogs: Iterable[PartitionCatalog]) -> int | None:
    return max((catalog.commit.time for catalog in catalogs if isinstance(catalog.commit, Commit)), default=None)


def _committed_by(catalog: PartitionCatalog) -> str | None:
    match catalog.commit:
        case Commit():
            return "agent"
        case ForeignCommit():
            return "java"
        case None:
            return None


def _records(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the sum of the segments' records, with control records and overlaps; None if a segment has no count."""
    return _all_known(sum, [copy.metadata.records for copy in copies])


def _earliest(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the least timestamp; None unless all segments have theirs."""
    return _all_known(min, [copy.metadata.time_min for copy in copies])


def _latest(copies: Sequence[SegmentCopy]) -> int | None:
    """Return the greatest timestamp in the segments' metadata."""
    return max((copy.metadata.time_max for copy in copies if copy.metadata.time_max is not None), default=None)


def _all_known(function: Callable[[Iterable[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return function(known) if known and len(known) == len(values) else None
