"""Finds when the present archive of a partition began, by the versions of its objects.

An archive can be deleted as a whole and begun again under the same directory: its earlier versions can be of another
log with the same offsets and leader epochs. A bucket with versions shows it. A delete marker of `offset.wm` or
`log.start` has a newer version of the same object. No segment from before the marker was left when that was written.

One such object alone can be deleted by a lifecycle rule or by hand, and an agent writes it again. Then segments from
before the marker are left, so the archive is the same. Times of a store have whole seconds. Where two are equal, the
archive counts as begun again: a request to the agents repairs what the versions are not used for.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from ts_common.archive.object_keys import LOG_SUFFIX, PartitionKeys
from ts_common.store.contract import ObjectVersion


class _Break(NamedTuple):
    """A deletion of a mark, and the next write of it; seconds since the epoch."""

    deleted: float
    written: float


def find_beginning(versions: Callable[[str], Iterable[ObjectVersion]], keys: PartitionKeys) -> float | None:
    """Return when the archive before the present one was deleted; None if there is no sign of an earlier one.

    Versions that were written at that time or before are not of the present archive.

    Args:
        versions: lists the versions of all keys with a prefix, those of one key together, the newest first.

    Returns:
        Seconds since the epoch, by the store's clock.
    """
    breaks = {found for key in (keys.commit, keys.log_start) for found in _breaks(versions(key), key)}
    if not breaks:
        return None
    for written, replaced in _lives(versions(keys.prefix)):
        breaks = {each for each in breaks if not (written < each.deleted and each.written < replaced)}
        if not breaks:
            return None
    return max(each.deleted for each in breaks)


def _breaks(versions: Iterable[ObjectVersion], key: str) -> Iterator[_Break]:
    newer: ObjectVersion | None = None
    for version in versions:
        if version.info.key != key:
            continue
        if version.is_delete_marker and newer is not None and not newer.is_delete_marker:
            yield _Break(version.info.modified, newer.info.modified)
        newer = version


def _lives(versions: Iterable[ObjectVersion]) -> Iterator[tuple[float, float]]:
    """Yield when each version of a `.log` was written, and when it was deleted or overwritten; infinity if not yet."""
    newer: ObjectVersion | None = None
    for version in versions:
        if version.info.key.endswith(LOG_SUFFIX) and not version.is_delete_marker:
            is_older = newer is not None and newer.info.key == version.info.key
            yield version.info.modified, newer.info.modified if is_older and newer is not None else inf
        newer = version
