"""Which parts of a plan can have rows that match a filter, by Arrow's own simplification of it.

For each part there is a fragment with an expression of what is certain of its rows: topic, partition, offsets, the
greatest timestamp, and the least one where it is known. Arrow simplifies the filter by it, and leaves out a fragment if
the filter is then false. No expression is analysed here.

The parts that are left get smaller at their ends by the same question about ranges of their offsets. A `.timeindex`
has the greatest timestamp up to some offsets of a segment, so the beginning of a segment can be too early. It has no
least timestamps: what follows an offset can have any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.plan import ReadRange
from ts_common.log_format.framing import NO_TIMESTAMP
from ts_common.log_format.index_files import Claims, greatest_below
from ts_common.store.shared_stores import shared_store
from ts_reader.decode.arrow_schema import LATEST_MILLISECONDS
from ts_reader.query.query import CorruptionMode, View
from ts_reader.query.splits import Split, bytes_of
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.time_index import claims_of

_LEAST_OFFSETS: Final = 1 << 12  # narrower ranges save nothing ...
_LEAST_BYTES: Final = 256 << 10  # ... unless records are large
_MOST_NARROWED: Final = 32  # parts: with more, a filter is not a narrow one
_NO_CLAIMS: Final[Mapping[str, Claims]] = {}

_Part = tuple[int, ReadRange]  # with the place of its split


def binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    """Return whether an expression needs only the fields of a schema."""
    try:
        ds.Scanner.from_batches(pa.RecordBatchReader.from_batches(schema, []), columns={"bound": expression})
    except pa.ArrowInvalid:
        return False
    return True


def matching_splits(splits: Sequence[Split], filter: pc.Expression, schema: pa.Schema) -> tuple[Split, ...]:
    """Return the parts of splits that may have rows which match a filter.

    Raises:
        StoreUnavailable, AccessDenied: from reading a `.timeindex`.
    """
    return _Pruning(splits, filter, schema).splits()


class _Pruning:
    """The parts of some splits under one filter."""

    def __init__(self, splits: Sequence[Split], filter: pc.Expression, schema: pa.Schema) -> None:
        self._splits = splits
        self._filter = filter
        self._schema = schema
        self._claims: Mapping[str, Claims] = _NO_CLAIMS

    def splits(self) -> tuple[Split, ...]:
        parts = [(place, part) for place, split in enumerate(self._splits) for part in split.ranges]
        kept = self._matching(parts)
        timed = self._timed([parts[at] for at in _beginnings(parts, kept)])
        self._claims = self._read_claims(timed)
        is_narrow = len(kept) <= _MOST_NARROWED
        by_split: dict[int, list[ReadRange]] = {}
        for place, part in (parts[at] for at in kept):
            proven = any(copy.key in self._claims for copy in part.copies)
            left = self._narrowed(place, part) if is_narrow or proven else part
            if left is not None:
                by_split.setdefault(place, []).append(left)
        return tuple(replace(self._splits[place], ranges=tuple(ranges)) for place, ranges in sorted(by_split.items()))

    def _matching(self, parts: Sequence[_Part], greatest: int | None = None) -> list[int]:
        """Return the places of the parts that may match, by Arrow's own simplification.

        Args:
            parts: of the plan, or ranges of them.
            greatest: a timestamp in ms that their records are assumed not to exceed; None without an assumption.
        """
        nowhere, form = pyarrow.fs.LocalFileSystem(), ds.IpcFileFormat()
        fragments = []
        for at, (place, part) in enumerate(parts):
            certain = _certain(self._splits[place], part, self._schema, self._claims)
            if greatest is not None:
                certain &= pc.field("timestamp") <= _moment(greatest)
            fragments.append(form.make_fragment(str(at), nowhere, partition_expression=certain))
        dataset = ds.FileSystemDataset(fragments, self._schema, form, nowhere)
        return sorted(int(fragment.path) for fragment in dataset.get_fragments(self._filter))

    def _timed(self, parts: Sequence[_Part]) -> list[_Part]:
        """Return the parts that match less if their records are earlier: only their `.timeindex` is worth a request."""
        timed = [(place, part) for place, part in parts if _are_known(self._splits[place], part)]
        if not timed or "timestamp" not in self._schema.names:
            return []
        early = set(self._matching(timed, greatest=NO_TIMESTAMP))
        return [each for at, each in enumerate(timed) if at not in early]

    def _read_claims(self, parts: Sequence[_Part]) -> Mapping[str, Claims]:
        """Return what the `.timeindex` of each copy proves, by key; nothing if there are many."""
        split_of = {copy.key: (self._splits[place], copy) for place, part in parts for copy in part.copies}
        if len(split_of) > _MOST_NARROWED:
            return _NO_CLAIMS

        def read(found: tuple[Split, SegmentCopy]) -> Claims:
            split, copy = found
            return claims_of(shared_store(split.location, split.connection), copy)

        claims = in_threads(read, split_of.values())
        return {key: each for key, each in zip(split_of, claims, strict=True) if each}

    def _narrowed(self, place: int, part: ReadRange) -> ReadRange | None:
        """Return the part without offsets at its ends that cannot match, by halving it; None if nothing is left."""
        if self._splits[place].tolerance.mode is CorruptionMode.PERMISSIVE:
            return part  # the row of a corrupt place has the first offset of the part

        def may_match(start: int, end: int) -> bool:
            return bool(self._matching([(place, replace(part, start=start, end=end))]))

        if self._claims and not may_match(part.start, part.end):
            return None
        length = part.end - part.start
        least = max(min(_LEAST_OFFSETS, length * _LEAST_BYTES // max(bytes_of(part), 1)), 1)
        start, step = part.start, length
        while step > least:  # the first offsets
            step //= 2
            while start + step < part.end and not may_match(start, start + step):
                start += step
        end, step = part.end, part.end - start
        while step > least:  # the last ones
            step //= 2
            while end - step > start and not may_match(end - step, end):
                end -= step
        return replace(part, start=start, end=end)


def _beginnings(parts: Sequence[_Part], kept: Sequence[int]) -> list[int]:
    """Return the places of the kept parts where matches can begin: the first of a partition or after one left out.

    Later segments of a partition begin after it, and rarely earlier in time. Other pieces of its segment have the same
    `.timeindex`.
    """
    left = set(kept)
    return [
        at
        for at in kept
        if at == 0 or at - 1 not in left or parts[at - 1][1].copies[0].keys != parts[at][1].copies[0].keys
    ]


def _certain(split: Split, part: ReadRange, schema: pa.Schema, claims: Mapping[str, Claims]) -> pc.Expression:
    """Return an expression that is true of every row of a part of the plan."""
    partition = part.copies[0].keys.partition
    facts = {
        "topic": [pc.field("topic") == partition.topic],
        "partition": [pc.field("partition") == pa.scalar(partition.partition, pa.int32())],
        "offset": [pc.field("offset") >= part.start, pc.field("offset") < part.end],
        "timestamp": _times(split, part, claims),
    }
    # The newest record of a key can be in any part, so only a filter of the whole partition leaves parts out.
    known = ("topic", "partition") if split.view is View.LATEST else tuple(facts)
    certain = pc.scalar(True)
    for name in schema.names:
        for fact in facts[name] if name in known else ():
            certain = certain & fact
    return certain


def _are_known(split: Split, part: ReadRange) -> bool:
    """Return whether the agent's metadata of all copies has the timestamps of every record that is read."""
    if part.before is not None:
        return False
    metadata = [copy.metadata for copy in part.copies]
    tolerant = split.tolerance.mode is not CorruptionMode.FAILFAST
    if tolerant or split.view is View.LATEST or any(each.records is None or each.corruptions for each in metadata):
        return False
    return all(each.time_max is None or each.time_max < LATEST_MILLISECONDS for each in metadata)


def _times(split: Split, part: ReadRange, claims: Mapping[str, Claims]) -> list[pc.Expression]:
    """Return what is certain of the timestamps of a part; nothing if a copy could not be scanned."""
    if not _are_known(split, part):
        return []
    latest = []
    for copy in part.copies:
        greatest = NO_TIMESTAMP if copy.metadata.time_max is None else copy.metadata.time_max
        proven = greatest_below(claims.get(copy.key, ()), part.end)
        latest.append(greatest if proven is None else min(proven, greatest))
    facts = [pc.field("timestamp") <= _moment(max(latest))]
    earliest = [copy.metadata.time_min for copy in part.copies]
    if all(each is not None for each in earliest):
        facts.append(pc.field("timestamp") >= _moment(min(each for each in earliest if each is not None)))
    return facts


def _moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
