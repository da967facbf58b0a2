"""Where else than in copies a run looks for records of requests: versions, live tails, indexes of keys, tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from ts_common.archive.catalog import read_snapshot
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys
from ts_common.errors import AccessDenied, StaleStateError
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_common.store.protection import Protection
from ts_common.wording import counted
from tsctl.erase.erased_copies import NOTHING_NOTED, Held, Noted
from tsctl.erase.evidence import Progress
from tsctl.erase.index_versions import remaining_index_versions
from tsctl.erase.key_indexes import remaining_in_key_indexes
from tsctl.erase.live_tails import remaining_in_tails, remaining_tail_versions
from tsctl.erase.places import keys_of_place
from tsctl.erase.remains import UNLISTED, Remains, Surface
from tsctl.erase.tables import remaining_in_tables
from tsctl.erase.versions import remaining_versions
from tsctl.gc.retention import LEAVES_OUT

_LONGEST_INDEXING: Final = 86_400.0  # seconds: a run that began before the list can put an index after it


class Surfaces:
    """What one store has of requests next to copies.

    Args:
        grace: as of `tsctl.erase.versions.remaining_versions`.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: ClusterKeys,
        grace: float,
        limit: BatchLimit = DEFAULT_LIMIT,
        noted: Noted = NOTHING_NOTED,
    ) -> None:
        self._store, self._cluster, self._grace, self._limit, self._noted = store, cluster, grace, limit, noted
        self._protection: Protection = store.protection()

    def of_partition(self, keys: PartitionKeys, held: Held, since: float = 0.0) -> list[Remains]:
        """Return the versions of a partition that can have records of its list; `since` as of `remaining_versions`."""
        look = partial(
            remaining_versions,
            self._store,
            keys,
            protection=self._protection,
            grace=self._grace,
            held=held,
            limit=self._limit,
            noted=self._noted,
            since=since,
        )
        return looked(look, Surface.VERSION, keys.prefix)

    def of_topic(self, partitions: Sequence[PartitionKeys]) -> list[Remains]:
        """Return what indexes of keys and live tails have of the lists of some partitions of one topic."""
        look = partial(remaining_in_key_indexes, self._store, partitions)
        found = looked(look, Surface.KEY_INDEX, partitions[0].incarnation)
        by_cluster = dict[ClusterKeys, list[PartitionKeys]]()
        for keys in partitions:
            by_cluster.setdefault(keys.cluster, []).append(keys)
        for cluster, several in by_cluster.items():
            found += looked(partial(self._tails, cluster, several), Surface.TAIL, cluster.tails)
        return found

    def _tails(self, cluster: ClusterKeys, partitions: Sequence[PartitionKeys]) -> Iterator[Remains]:
        erased = dict[str, ErasedOffsets]()
        for keys in partitions:
            erased[keys.directory] = read_snapshot(self._store, keys).read_erased(self._store)
        yield from remaining_in_tails(self._store, cluster, erased)

    def of_request(self, progress: Progress, places: Mapping[str, PartitionKeys]) -> list[Remains]:
        """Return what tables and earlier versions of other objects than segments can have of a request.

        Args:
            places: the partitions with objects, by their names.
        """
        wanted: Mapping[str, int] = {each.directory: each.number for each in progress.request.partitions if each.number}
        if not wanted:
            return []
        tables = partial(remaining_in_tables, self._store, self._cluster, wanted)
        before, protection = progress.searched / 1000, self._protection
        tails = partial(remaining_tail_versions, self._store, self._cluster, before, protection=protection)
        found = looked(tables, Surface.TABLE, self._cluster.cluster_prefix)
        found += looked(tails, Surface.VERSION, self._cluster.tails)
        its = (places[directory] for directory in wanted if directory in places)
        for cluster, incarnation in dict.fromkeys((keys.cluster, keys.incarnation) for keys in its):
            obeyed = before + _LONGEST_INDEXING
            index = partial(remaining_index_versions, self._store, cluster, incarnation, before=obeyed)
            found += looked(partial(index, protection=protection), Surface.VERSION, cluster.find(incarnation))
        for directory in wanted:
            if directory not in places:  # retention removed it wholly, with its list, or restored.json was lost
                found += looked(partial(self._removed, progress.request.topic, directory), Surface.COPY, directory)
        return found

    def _removed(self, topic: str, directory: str) -> Iterator[Remains]:
        """Yield a directory that is no place of its topic, if it has segments, or the bucket has versions of some."""
        keys = keys_of_place(self._cluster, topic, directory)
        prefix = f"{directory}/" if keys is None else keys.prefix
        if count := sum(info.key.endswith(LOG_SUFFIX) for info in self._store.list(prefix)):
            why = f"{counted(count, 'segment')}, and the topic has no such place any more: put restored.json back"
            yield Remains(Surface.COPY, prefix, why)
        if not self._protection.versioned:
            return
        versions = self._store.versions(prefix)
        if versions is None:
            yield Remains(Surface.VERSION, prefix, UNLISTED)
        elif count := sum(each.info.key.endswith(LOG_SUFFIX) and not each.is_delete_marker for each in versions):
            why = f"{counted(count, 'version')} of segments that retention deleted; a rule of the bucket expires these"
            yield Remains(Surface.VERSION, prefix, why)


def looked(look: Callable[[], Iterable[Remains]], surface: Surface, where: str) -> list[Remains]:
    """Return what a look found; if it failed, that something can be there."""
    found = list[Remains]()
    try:
        found += look()
    except (*LEAVES_OUT, AccessDenied, StaleStateError) as error:
        found.append(Remains(surface, where, f"what it has is unknown: {error}"))
    return found
