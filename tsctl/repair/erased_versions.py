"""Versions of a partition with a list of erased offsets: what is put back has no listed record (erase rule 6).

A version with such a record is rewritten as a run of `tsctl erase` rewrites copies, or it is not used. The list hides
the same records before and after, so a list that is put meanwhile is obeyed by readers, and by the next such run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ts_common.archive.catalog import PartitionCatalog, StoredSegment
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import ERASED_FIELD, SegmentMetadata, erased_number
from ts_common.errors import BatchTooLarge
from ts_common.store.contract import ObjectVersion
from tsctl.erase.erased_copies import NOTHING_NOTED, ErasedCopies
from tsctl.erase.rewriting import HiddenOnly, SegmentFile, rewritten_file
from tsctl.repair.version_reading import Good

_REFUSED = (
    "{key}: an earlier version has erased records, and is not put back: {why}; "
    "an agent can ship the segment again, and the list hides its records"
)


class ErasedVersions:
    """Rewrites the versions of one partition.

    Args:
        catalog: a snapshot of the partition.
        txnindex: returns the `.txnindex` of a version; None without one.
        dry_run: whether the bytes of versions were not read, and nothing is rewritten.
        refused: called with a sentence for each version that cannot be used.
    """

    def __init__(
        self,
        catalog: PartitionCatalog,
        commit: Commit,
        erased: ErasedOffsets,
        *,
        txnindex: Callable[[SegmentName, SegmentMetadata], bytes | None],
        dry_run: bool,
        refused: Callable[[str], None],
    ) -> None:
        self._copies = ErasedCopies(catalog.keys, commit, (), {}, erased, catalog.erased_number, 0, (), NOTHING_NOTED)
        self._txnindex = txnindex
        self._dry_run = dry_run
        self._refused = refused

    @contextmanager
    def without_erased(self, name: SegmentName, version: ObjectVersion, good: Good) -> Iterator[Good | None]:
        """Yield a good version without its erased records; itself if it has none, None if it cannot be rewritten.

        In a dry run a version that can have some is yielded with `indexes`, and without other bytes.

        Raises:
            OperatorError: a temporary file cannot be written.
        """
        copy = SegmentCopy(
            self._copies.keys,
            StoredSegment(name, good.size, frozenset(), modified=int(version.info.modified * 1000)),
            good.metadata,
        )
        if not self._copies.can_have(copy):
            yield good
            return
        claims = erased_number(good.fields) >= self._copies.number  # agents can write that too
        why = self._copies.why_kept(copy)
        if why is not None and not claims:
            self._refused(_REFUSED.format(key=copy.key, why=why))
            yield None
            return
        if self._dry_run:
            yield good if claims else replace(good, indexes={})
            return
        old = SegmentFile(copy.key, name, good.file, good.size, good.metadata, self._txnindex(name, good.metadata))
        try:
            with rewritten_file(old, self._copies.erased) as new:
                if new is None:
                    yield good
                    return
                if why is not None:
                    raise HiddenOnly(why)
                fields = new.metadata.encode() | {ERASED_FIELD: str(self._copies.number)}
                yield Good(new.file, new.size, fields, new.metadata, good.epochs, new.indexes)
        except (HiddenOnly, BatchTooLarge) as error:
            self._refused(_REFUSED.format(key=copy.key, why=error))
            yield None
