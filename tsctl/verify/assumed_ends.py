"""The ends of segments that a check has not read: a listing has base offsets only (`--depth listing`)."""

from collections.abc import Collection
from dataclasses import replace
from itertools import groupby

from ts_common.archive.catalog import StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.segment_metadata import SegmentMetadata
from tsctl.verify.segment_check import Checked


def assume_copy(
    keys: PartitionKeys, segment: StoredSegment, noted: SegmentMetadata | None, following: int
) -> SegmentCopy:
    """Return a copy by its listing and a cache object; without one, it is assumed to end at the next base offset.

    Args:
        segment: as listed.
        noted: its metadata in a cache object, or None.
        following: the next higher base offset, or the next offset.
    """
    guess = SegmentMetadata(max(segment.name.base, following), (), None, None, None, 0)
    return SegmentCopy(keys, segment, noted or guess)


def extend_to_live_bases(
    checked: dict[StoredSegment, Checked], assumed: Collection[StoredSegment], commit: Commit
) -> dict[StoredSegment, Checked]:
    """Return the results; extend each assumed copy to the next base offset that can be live.

    The next base offset can be that of a dead segment of an earlier leader. No segment ends there.

    Args:
        checked: results with a copy, by segment in the order of base offsets.
        assumed: the segments whose end is assumed.
    """
    extended: dict[StoredSegment, Checked] = {}
    following = commit.next_offset
    for base, group in groupby(reversed(checked.items()), key=lambda item: item[0].name.base):
        lives = False
        for segment, result in group:
            copy = result.copy
            if copy is not None and segment in assumed:
                copy = replace(copy, metadata=replace(copy.metadata, end=max(copy.end, following)))
                lives = True
            elif copy is not None:
                lives = lives or commit.epochs.live_end(copy.metadata.epochs or (), base, copy.end) > base
            extended[segment] = replace(result, copy=copy)
        following = base if lives else following
    return dict(reversed(extended.items()))
