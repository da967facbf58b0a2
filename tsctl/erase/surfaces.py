"""Where else than in copies a run looks for records of requests: versions, live tails, indexes of keys, tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from ts_common.archive.catalog import read_snapshot
from ts_common.archive.commit import Commit
from ts_common.archive.erased_offsets import ALL_ERASED, ErasedOffsets
from ts_common.archive.erasures import Erasure, ErasureState, read_erasure
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys
from ts_common.errors import AccessDenied, StaleStateError
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_common.store.protection import Protection
from ts_common.wording import counted
from tsctl.erase.adding import terms_of
from tsctl.erase.erased_copies import NOTHING_NOTED, Held, Noted
from tsctl.erase.evidence import Progress, progress_of
from tsctl.erase.index_versions import remaining_index_versions
from tsctl.erase.key_indexes import remaining_in_key_indexes
from tsctl.erase.live_tails import remaining_in_tails, remaining_tail_versions
from tsctl.erase.places import Places, keys_of_place
from tsctl.erase.remains import UNLISTED, Remains, Surface
from tsctl.erase.tables import remaining_in_tables
from tsctl.erase.versions import remaining_versions
from tsctl.gc.retention import LEAVES_OUT

NO_STORES: Final[Mapping[str, ObjectStore]] = MappingProxyType({})
_LONGEST_INDEXING: Final = 86_400.0  # seconds: a run that began before the list can put an index after it


class Surfaces:
    """What one store has of requests next to copies.

    Args:
        grace: as of `tsctl.erase.versions.remaining_versions`.
        noted: as of `tsctl.erase.erased_copies.ErasedCopies`.
        others: further stores that are open, by location.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: ClusterKeys,
        grace: float,
        limit: BatchLimit = DEFAULT_LIMIT,
        noted: Noted = NOTHING_NOTED,
        others: Mapping[str, ObjectStore] = NO_STORES,
    ) -> None:
        self._store, self._cluster, self._grace, self._limit, self._noted = store, cluster, grace, limit, noted
        self._protection: Protection = store.protection()
        self._others = others

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

    def of_topic(self, partitions: Mapping[PartitionKeys, bool]) -> list[Remains]:
        """Return what indexes of keys and live tails have of the lists of some partitions of one topic.

        Args:
            partitions: each with whether it has objects; of one that retention removed, all records count.
        """
        with_objects, removed = ([keys for keys, has in partitions.items() if has is each] for each in (True, False))
        look = partial(remaining_in_key_indexes, self._store, with_objects, removed)
        found = looked(look, Surface.KEY_INDEX, next(iter(partitions)).incarnation)
        by_cluster = dict[ClusterKeys, dict[PartitionKeys, bool]]()
        for keys, has_objects in partitions.items():
            by_cluster.setdefault(keys.cluster, {})[keys] = has_objects
        for cluster, several in by_cluster.items():
            found += looked(partial(self._tails, cluster, several), Surface.TAIL, cluster.tails)
        return found

    def _tails(self, cluster: ClusterKeys, partitions: Mapping[PartitionKeys, bool]) -> Iterator[Remains]:
        erased, commits = dict[str, ErasedOffsets](), dict[str, Commit]()
        for keys, has_objects in partitions.items():
            if not has_objects:
                erased[keys.directory] = ALL_ERASED
                continue
            snapshot = read_snapshot(self._store, keys)
            erased[keys.directory] = snapshot.read_erased(self._store)
            if isinstance(snapshot.commit, Commit):
                commits[keys.directory] = snapshot.commit
        yield from remaining_in_tails(self._store, cluster, erased, commits)

    def of_request(
        self, progress: Progress, places: Mapping[str, PartitionKeys], removed: Mapping[str, PartitionKeys]
    ) -> list[Remains]:
        """Return what tables and earlier versions of other objects than segments can have of a request.

        Args:
            places: the partitions with objects, by their names.
            removed: those without any.
        """
        wanted: Mapping[str, int] = {each.directory: each.number for each in progress.request.partitions if each.number}
        if not wanted:
            return []
        tables = partial(remaining_in_tables, self._store, self._cluster, wanted, progress.searched)
        before, protection = progress.searched / 1000, self._protection
        found = looked(tables, Surface.TABLE, self._cluster.cluster_prefix)
        its = [keys for name, keys in {**removed, **places}.items() if name in wanted]
        for cluster in dict.fromkeys((self._cluster, *(keys.cluster for keys in its))):
            tails = partial(remaining_tail_versions, self._store, cluster, before, protection=protection)
            found += looked(tails, Surface.VERSION, cluster.tails)
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
        prefix = keys_of_place(self._cluster, topic, directory).prefix
        if count := _count_of_segments(self._store, prefix):
            why = f"{counted(count, 'segment')}, and the topic has no such place any more: put restored.json back"
            yield Remains(Surface.COPY, prefix, why)
        kept = _count_of_versions(self._store, prefix, self._protection)
        if kept is None:
            yield Remains(Surface.VERSION, prefix, UNLISTED)
        elif kept:
            why = f"{counted(kept, 'version')} of segments that retention deleted; a rule of the bucket expires these"
            yield Remains(Surface.VERSION, prefix, why)

    def of_former_stores(self, progress: Progress, places_of_topic: Callable[[str], Places]) -> list[Remains]:
        """Return the former places of a request's topic in other stores, unless a request of its terms erased them.

        No store is opened because an object names it: that object could send credentials anywhere.
        """
        return looked(partial(self._former_stores, progress, places_of_topic), Surface.COPY, self._cluster.restored)

    def _former_stores(self, progress: Progress, places_of_topic: Callable[[str], Places]) -> Iterator[Remains]:
        request = progress.request
        for url, places in sorted(places_of_topic(request.topic).elsewhere.items()):
            store, removed = self._others.get(url.rstrip("/")), list[PartitionKeys]()
            for keys in places:
                if store is not None and _is_erased_there(store, keys, request):
                    continue
                if store is None or _has_segments(store, keys):
                    where = f"{url.rstrip('/')}/{keys.prefix}"
                    todo = "" if store is not None else f", then give each run --former-store {url}"
                    reason = (
                        f"a former place in another store, where no request {request.name} has erased it: erase there "
                        f"with the same id, topic, --reference and --due (--url {url} --cluster "
                        f"{keys.cluster.cluster}){todo}"
                    )
                    yield Remains(Surface.COPY, where, reason)
                else:
                    removed.append(keys)
            if store is not None:  # no request there can name these partitions
                for each in _next_to_copies(store, removed):
                    yield replace(each, where=f"{url.rstrip('/')}/{each.where}", obeys=None)


def _is_erased_there(store: ObjectStore, keys: PartitionKeys, request: Erasure) -> bool:
    """Return whether a request of the same terms has erased a former place in another store."""
    its = read_erasure(store, keys.cluster, request.name)
    if its is None or terms_of(its) != terms_of(request):
        return False
    progress = progress_of(store, keys.cluster, its)
    named = {each.directory for each in progress.request.partitions}
    return progress.state is ErasureState.ERASED and keys.directory in named


def _next_to_copies(store: ObjectStore, removed: Sequence[PartitionKeys]) -> Iterator[Remains]:
    """Yield what indexes of keys and live tails have of partitions whose segments retention removed."""
    yield from remaining_in_key_indexes(store, (), removed)
    for cluster in dict.fromkeys(keys.cluster for keys in removed):
        erased = {keys.directory: ALL_ERASED for keys in removed if keys.cluster == cluster}
        yield from remaining_in_tails(store, cluster, erased)


def _has_segments(store: ObjectStore, keys: PartitionKeys) -> bool:
    return bool(_count_of_segments(store, keys.prefix)) or _count_of_versions(store, keys.prefix) != 0


def _count_of_segments(store: ObjectStore, prefix: str) -> int:
    return sum(info.key.endswith(LOG_SUFFIX) for info in store.list(prefix))


def _count_of_versions(store: ObjectStore, prefix: str, protection: Protection | None = None) -> int | None:
    """Return the number of versions of segments in a bucket that keeps them; None if it does not list them."""
    if not (protection or store.protection()).versioned:
        return 0
    versions = store.versions(prefix)
    return (
        None
        if versions is None
        else sum(each.info.key.endswith(LOG_SUFFIX) and not each.is_delete_marker for each in versions)
    )


def looked(look: Callable[[], Iterable[Remains]], surface: Surface, where: str) -> list[Remains]:
    """Return what a look found; if it failed, that something can be there."""
    found = list[Remains]()
    try:
        found += look()
    except (*LEAVES_OUT, AccessDenied, StaleStateError) as error:
        found.append(Remains(surface, where, f"what it has is unknown: {error}"))
    return found
