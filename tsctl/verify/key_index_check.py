"""Check the indexes of keys of a cluster in a store: their runs, the files of these, and the segments that they name.

An index is a cache (find rule 1): each finding costs look-ups time, and no row.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, PartitionKeys, SegmentName
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.retry import OPERATION_POLICY
from ts_common.wording import counted
from ts_reader.find.merging import GRACE_SECONDS, by_run, is_whole
from ts_reader.find.rules import Identity
from ts_reader.find.runs import OBJECTS_NAME, Run, period_of, read_pairs, read_run
from tsctl.verify.finding_kinds import (
    FOREIGN_OBJECT,
    KEY_INDEX_DAMAGED,
    KEY_INDEX_LEFT,
    KEY_INDEX_OLD,
    NEWER_FORMAT,
    UNREADABLE,
    FindingKind,
)
from tsctl.verify.findings import Finding
from tsctl.verify.segment_check import Depth


def key_index_findings(
    store: ObjectStore,
    keys: ClusterKeys,
    names: Iterable[str],
    held: Iterable[PartitionKeys],
    depth: Depth,
    now: float,
) -> Iterator[Finding]:
    """Yield the findings on the indexes of one store.

    Args:
        names: of the directories with an index, as the store lists them.
        held: the partitions with objects, in all incarnations.
        depth: with `LISTING` only names are read, with `FULL` each file of each run.
        now: seconds since the epoch.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    partitions: dict[str, list[PartitionKeys]] = {}
    for each in held:
        partitions.setdefault(each.incarnation, []).append(each)
    for directory in names:
        incarnation = directory.rstrip("/")
        yield from _Index(store, keys.find(incarnation), depth, now).findings(partitions.get(incarnation, ()))


class _Index:
    """The index of one incarnation."""

    def __init__(self, store: ObjectStore, prefix: str, depth: Depth, now: float) -> None:
        self._store = store
        self._prefix = prefix
        self._depth = depth
        self._now = now

    def findings(self, held: Sequence[PartitionKeys]) -> Iterator[Finding]:
        """Yield the findings.

        Args:
            held: the partitions of the incarnation with objects.
        """
        listed = OPERATION_POLICY(lambda: [*self._store.list(self._prefix)])
        objects = by_run(self._prefix, listed)
        for info in listed:
            name, slash, _ = info.key.removeprefix(self._prefix).partition("/")
            if not slash or period_of(name) is None:
                yield Finding(FOREIGN_OBJECT, self._prefix, "the name is not of a run of an index", info.key)
        if not held:
            yield from self._left(objects, "the archive has no object of the incarnation")
            return
        finished = {name for name, infos in objects.items() if any(map(_is_list, infos))}
        yield from self._left(_only(objects, objects.keys() - finished), f"it has no {OBJECTS_NAME}")
        if self._depth is Depth.LISTING:
            return
        runs: list[Run] = []
        for name in sorted(finished):
            try:
                run = OPERATION_POLICY(lambda name=name: read_run(self._store, self._prefix, name))
                runs.append(run)
                self._check(run, objects[name])
            except ObjectNotFound:  # a builder removed it meanwhile
                continue
            except (CorruptData, NewerFormat, ObjectFrozen, AccessDenied) as error:
                yield Finding(_kind_of(error), self._prefix, str(error), f"{self._prefix}{name}/")
        merged = {name for run in runs if run.modified + GRACE_SECONDS < self._now for name in run.replaces}
        yield from self._left(_only(objects, merged), "another run replaces it")
        yield from self._old([run for run in runs if run.name not in merged], held)

    def _check(self, run: Run, objects: Iterable[ObjectInfo]) -> None:
        """Check the files of a run.

        Raises:
            CorruptData: one is missing, or is another one; or, with the full depth, cannot be read.
        """
        if not is_whole(run, objects):
            raise CorruptData(f"{run.prefix}: it lacks a file, or has another one than {OBJECTS_NAME} names")
        for digits in run.files if self._depth is Depth.FULL else ():
            OPERATION_POLICY(lambda digits=digits: read_pairs(self._store, run, digits))

    def _left(self, objects: Mapping[str, Sequence[ObjectInfo]], why: str) -> Iterator[Finding]:
        """Yield a finding for each run without a young object."""
        for name, infos in sorted(objects.items()):
            if all(info.modified + GRACE_SECONDS < self._now for info in infos):
                size = counted(sum(info.size for info in infos), "byte")
                detail = f"{why}; {counted(len(infos), 'object')}, {size}"
                yield Finding(KEY_INDEX_LEFT, self._prefix, detail, f"{self._prefix}{name}/")

    def _old(self, runs: Sequence[Run], held: Sequence[PartitionKeys]) -> Iterator[Finding]:
        """Yield a finding for each run that names segments that do not exist."""
        stored = {identity for keys in held for identity in self._segments(keys)} if runs else set[Identity]()
        for run in runs:
            missing = [identity for identity in run.entries if identity not in stored]
            if missing:
                directory, stem, *_ = missing[0]
                detail = f"{len(missing):,} of {counted(len(run.entries), 'segment')}; the first: {directory}/{stem}"
                yield Finding(KEY_INDEX_OLD, self._prefix, detail, run.prefix)

    def _segments(self, keys: PartitionKeys) -> Iterator[Identity]:
        for info in OPERATION_POLICY(lambda: [*self._store.list(keys.prefix)]):
            found = SegmentName.parse(info.key.removeprefix(keys.prefix))
            if found is not None and found[1] == LOG_SUFFIX:
                yield keys.directory, found[0].stem, info.size, info.etag


def _is_list(info: ObjectInfo) -> bool:
    return info.key.endswith(f"/{OBJECTS_NAME}")


def _only(objects: Mapping[str, Sequence[ObjectInfo]], names: Collection[str]) -> dict[str, Sequence[ObjectInfo]]:
    return {name: infos for name, infos in objects.items() if name in names}


def _kind_of(error: Exception) -> FindingKind:
    match error:
        case NewerFormat():
            return NEWER_FORMAT
        case CorruptData():
            return KEY_INDEX_DAMAGED
    return UNREADABLE
