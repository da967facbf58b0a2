"""What finds the records of a request: keys, or given offsets. `tsctl.erase.condition` has conditions of SQL."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ts_common.archive.copies import SegmentCopy
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.store.contract import ObjectStore
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.columns import Projection, RecordColumns
from ts_reader.decode.kernel_source import Int64s
from ts_reader.find.lookup import KeyLookup

Flags = npt.NDArray[np.bool_]
Named = Mapping[int, int | None]
"""Offsets, each with the greatest leader epoch that is erased; None: the greatest of its record's batches."""
_NONE_NAMED: Final[Named] = MappingProxyType({})


class Criterion(ABC):
    """Decides which records a request erases.

    Attributes:
        projection: what `matches` needs.
    """

    def __init__(self, projection: Projection) -> None:
        self.projection = projection

    @abstractmethod
    def matches(self, keys: PartitionKeys, columns: RecordColumns) -> Flags:
        """Return which rows of a partition are wanted: bool[rows].

        Raises:
            QueryError: SQL cannot evaluate the condition for a row.
            StoreUnavailable, AccessDenied, CorruptData: from the source of schemas.
        """

    def that_can_have(self, store: ObjectStore, copies: Sequence[SegmentCopy]) -> Sequence[SegmentCopy]:
        """Return the copies that can have wanted records, of copies of one partition.

        Raises:
            StoreUnavailable, BucketMissing: from the store.
        """
        del store
        return copies

    def doubt(self) -> str | None:
        """Return a sentence about rows since the last call that could not be decided; None without any."""
        return None

    def named(self, keys: PartitionKeys) -> Named:
        """Return the offsets of a partition that are erased whether or not a copy has them."""
        del keys
        return _NONE_NAMED


class WithKeys(Criterion):
    """Records with one of some keys. An index of keys leaves out copies without any."""

    def __init__(self, keys: frozenset[bytes]) -> None:
        super().__init__(Projection(value=False, headers=False))
        self._keys = keys
        self._wanted = pa.array(sorted(keys), pa.binary())
        self._lookups: dict[tuple[str, ClusterKeys, str], KeyLookup] = {}

    def matches(self, keys: PartitionKeys, columns: RecordColumns) -> Flags:
        """Return which rows have one of the keys."""
        del keys
        found = to_arrow(columns, "", 0, ["key"]).column("key")
        flags: Flags = pc.fill_null(pc.is_in(found, value_set=self._wanted), False).to_numpy(zero_copy_only=False)
        return flags

    def that_can_have(self, store: ObjectStore, copies: Sequence[SegmentCopy]) -> Sequence[SegmentCopy]:
        """Return the copies that can have one of the keys, as `KeyLookup.that_can_have`."""
        if not copies:
            return copies
        keys = copies[0].keys
        place = store.location, keys.cluster, keys.incarnation
        if place not in self._lookups:
            self._lookups[place] = KeyLookup(store, [keys], self._keys)
        return self._lookups[place].that_can_have(copies)


class AtOffsets(Criterion):
    """Records at given offsets.

    Args:
        offsets: by the prefix of the partition's keys.
    """

    def __init__(self, offsets: Mapping[str, Named]) -> None:
        super().__init__(Projection(key=False, value=False, headers=False))
        self._offsets = offsets
        self._unknown = {
            prefix: np.array(sorted(offset for offset, epoch in named.items() if epoch is None), np.int64)
            for prefix, named in offsets.items()
        }

    def named(self, keys: PartitionKeys) -> Named:
        """Return the given offsets of a partition."""
        return self._offsets.get(keys.prefix, _NONE_NAMED)

    def matches(self, keys: PartitionKeys, columns: RecordColumns) -> Flags:
        """Return which rows have an offset that was given without an epoch."""
        flags: Flags = np.isin(columns.offsets, self._unknown_of(keys))
        return flags

    def that_can_have(self, store: ObjectStore, copies: Sequence[SegmentCopy]) -> Sequence[SegmentCopy]:
        """Return the copies that cover an offset that was given without an epoch."""
        del store
        return [copy for copy in copies if self._is_covered(copy)]

    def _is_covered(self, copy: SegmentCopy) -> bool:
        unknown = self._unknown_of(copy.keys)
        if copy.contradicted:  # its records can have other offsets than it covers
            return bool(len(unknown))
        first, after = np.searchsorted(unknown, [copy.base, copy.end])
        return bool(first < after)

    def _unknown_of(self, keys: PartitionKeys) -> Int64s:
        return self._unknown.get(keys.prefix, np.empty(0, np.int64))
