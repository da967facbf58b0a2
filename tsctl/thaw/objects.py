"""The frozen objects that readers of a range need: segments and their indexes, with their sizes and classes.

A listing of the partition shows them, without a request for each. No listing shows whether
objects in INTELLIGENT_TIERING are in an archive tier, so each of those has a request of its own.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectStore
from ts_common.store.lifecycle import ARCHIVE_CLASSES
from ts_common.store.retry import OPERATION_POLICY
from ts_common.store.thaw_state import ThawState
from ts_reader.query.frozen import Span, ranges_of
from ts_reader.reading.parallel import in_threads

TIERING: Final = "INTELLIGENT_TIERING"
_REQUESTS: Final = 16


@dataclass(frozen=True, slots=True)
class ColdObject:
    """An object of an archive class, of a partition; `size` in bytes."""

    store: ObjectStore
    keys: PartitionKeys
    key: str
    size: int
    state: ThawState

    @property
    def place(self) -> str:
        """The key and the store, for messages."""
        return f"{self.key} in {self.store.location}"

    @property
    def thaws_permanently(self) -> bool:
        """Whether it moves to another tier, instead of having a readable copy for some days."""
        return self.state.storage_class not in ARCHIVE_CLASSES


def cold_objects(store: ObjectStore, catalog: PartitionCatalog, span: Span) -> list[ColdObject]:
    """Return the objects of archive classes that readers of a range need, by key, each with its state.

    Raises:
        CorruptData: metadata of a segment is damaged.
        ObjectNotFound: retention removed a segment of the range meanwhile.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    needed = _needed(store, catalog, span)
    found = []
    for keys in (catalog.keys, *(place.catalog.keys for place in catalog.former)):
        for info in OPERATION_POLICY(lambda keys=keys: list(store.list(keys.prefix))):
            parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
            may_be_cold = info.is_frozen or info.storage_class in ARCHIVE_CLASSES or info.storage_class == TIERING
            if parsed is None or (keys, parsed[0].stem) not in needed or not may_be_cold:
                continue
            state = ThawState(info.storage_class, is_frozen=info.is_frozen)
            found.append(ColdObject(store, keys, info.key, info.size, state))
    return [each for each in with_states(found) if each.state.is_frozen or each.state.until is not None]


def _needed(store: ObjectStore, catalog: PartitionCatalog, span: Span) -> Set[tuple[PartitionKeys, str]]:
    """Return the segments that readers of a range need, as the keys of their directory and the stem."""
    try:
        view = open_view(store, catalog, shows_records=False)
    except ObjectFrozen:  # of a Java uploader: only its bytes have its end, so the listing decides
        return {(catalog.keys, segment.name.stem) for segment in _listed(catalog.committed, span)}
    return {(copy.keys, copy.segment.name.stem) for part in ranges_of(view, span) for copy in part.copies}


def _listed(segments: Iterable[StoredSegment], span: Span) -> list[StoredSegment]:
    """Return the segments that can have offsets of a range, by their base offsets; times select nothing."""
    below = [each for each in segments if span.end is None or each.name.base < span.end]
    first = max((each.name.base for each in below if each.name.base <= (span.start or 0)), default=0)
    return [each for each in below if each.name.base >= first]


def with_states(objects: Iterable[ColdObject]) -> list[ColdObject]:
    """Return the objects with their states now, by one request for each; without those that no longer exist.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """

    def look(one: ColdObject) -> ColdObject | None:
        try:
            return replace(one, state=OPERATION_POLICY(lambda: one.store.thaw_state(one.key)))
        except ObjectNotFound:  # retention
            return None

    return [each for each in in_threads(look, objects, most=_REQUESTS) if each is not None]
