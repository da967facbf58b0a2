"""Compares what is deleted with the copies that stay: from then on their bytes are the only ones (erase rules 7, 9)."""

from collections.abc import Iterable

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.copies import SegmentCopy
from ts_common.errors import BatchTooLarge, CorruptData, ObjectFrozen
from ts_common.log_format.limits import BatchLimit
from ts_common.store.contract import ObjectStore
from tsctl.erase.erased_copies import Did, ErasedCopies
from tsctl.erase.rewriting import HiddenOnly, first_difference, rewritten
from tsctl.gc.retention import LeftOut, Why


class Comparison:
    """The comparisons of one run over a partition; each copy that stays is checked once."""

    def __init__(self, store: ObjectStore, found: ErasedCopies, limit: BatchLimit) -> None:
        self._store = store
        self._found = found
        self._limit = limit
        self._unfit: dict[str, tuple[Did, str] | None] = {}

    def why_unfit(self, stays: SegmentCopy) -> tuple[Did, str] | None:
        """Return why nothing can be deleted because of a copy: it is not whole, or has records of the list.

        Raises:
            ObjectNotFound: it was removed meanwhile.
            OperatorError: no temporary file can be written.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        if stays.key not in self._unfit:
            self._unfit[stays.key] = self._why_unfit(stays)
        return self._unfit[stays.key]

    def _why_unfit(self, stays: SegmentCopy) -> tuple[Did, str] | None:
        try:
            with rewritten(self._store, stays, self._found.erased, limit=self._limit) as again:
                if again is not None:
                    return Did.WAITS, f"{stays.key}: rewrite it; it has records of the list"
        except (HiddenOnly, BatchTooLarge) as error:
            return Did.HIDDEN, f"{stays.key}: {error}"
        return None

    def differing(
        self, copy: SegmentCopy, stays: SegmentCopy, end: int, of_copy: ObjectStore | None = None
    ) -> int | None:
        """Return the first offset where a copy that stays has another row; None also if the deleted one is damaged.

        Args:
            stays: a copy for which `why_unfit` has no reason.
            end: the offset after the last to compare.
            of_copy: where the deleted copy is read, if that is an earlier version.

        Raises:
            HiddenOnly: the deleted one cannot be read, and is not damaged.
            ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: as `why_unfit`.
        """
        try:
            return first_difference(
                self._store, copy, stays, end, self._found.erased, of_one=of_copy, limit=self._limit
            )
        except CorruptData:
            return None
        except (BatchTooLarge, ObjectFrozen) as error:
            raise HiddenOnly(str(error)) from error

    def check_unchanged(self, staying: Iterable[SegmentCopy]) -> None:
        """Check that the partition is as it was compared: comparing can take minutes.

        Raises:
            LeftOut: the commit went back, or a copy that stays was written again.
            ObjectNotFound: one was removed.
            CorruptData, NewerFormat: the commit is damaged, or of a later release.
            StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        commit, _ = read_commit(self._store, self._found.keys)
        if not isinstance(commit, Commit) or commit.lineage != self._found.commit.lineage:
            raise LeftOut(f"{self._found.keys.commit}: it went back meanwhile", Why.CHANGED)
        for each in staying:
            if self._store.head(each.key).etag != each.segment.etag:
                raise LeftOut(f"{each.key}: it was written again meanwhile", Why.CHANGED)
