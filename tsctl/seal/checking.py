"""Compares a store with its seals, for `tsctl verify --sealed`: the chain, each sealed object, and what no seal has.

An object is compared by its version, which a store with versions never changes, and by its size. With `hashes`, or in a
store without versions, every byte is read and hashed too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, ObjectNotFound
from ts_common.store.contract import ObjectStore, ObjectVersion
from ts_common.wording import counted
from ts_reader.reading.parallel import stream_in_threads
from tsctl.seal.chain import read_chain
from tsctl.seal.inventory import Listed, candidates, committed_below, hash_of, list_latest, opened
from tsctl.seal.leaves import Leaf, LeafKind
from tsctl.seal.signing import AcceptedKey
from tsctl.verify.finding_kinds import (
    ADDED_LATER,
    FROZEN,
    OVERWRITTEN,
    SEAL_BROKEN,
    SEALED_MISSING,
    UNSEALED,
    FindingKind,
)
from tsctl.verify.findings import Finding
from tsctl.verify.inventory import find_partitions

_AT_ONCE: Final = 4
_SEALS: Final = "seals"


@dataclass(frozen=True, slots=True)
class SealedScope:
    """What to compare.

    Attributes:
        accepted: public keys by their names.
        known: SHA-256 of heads, kept elsewhere, by number.
        wants: returns whether a partition of a topic is in scope.
        hashes: whether every byte is read.
        before: seconds since the epoch, by the store's clock: a younger segment need not be sealed.
    """

    accepted: Mapping[str, AcceptedKey]
    known: Mapping[int, str]
    wants: Callable[[str, int | None], bool]
    hashes: bool
    before: float


def check_sealed(store: ObjectStore, keys: ClusterKeys, scope: SealedScope) -> Iterator[Finding]:
    """Yield a finding for each difference between a store and its seals.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    state: dict[str, Leaf] = {}
    first: dict[str, int] = {}  # by key: the seal that has the object first
    for seal in read_chain(store, keys, scope.accepted, scope.known):
        yield from (Finding(SEAL_BROKEN, f"seal {seal.number}", each, seal.key) for each in seal.problems)
        state |= {leaf.key: leaf for leaf in seal.leaves}
        first = dict.fromkeys((leaf.key for leaf in seal.leaves), seal.number) | first
    by_directory: dict[str, list[Leaf]] = {}
    for leaf in state.values():
        if leaf.kind.is_object:
            by_directory.setdefault(_directory(leaf, keys), []).append(leaf)
    for partitions in find_partitions(store, keys).partitions.values():
        for partition in partitions:
            known = by_directory.pop(partition.prefix, [])
            if scope.wants(partition.partition.topic, partition.partition.partition):
                objects = list_latest(store, partition.prefix)
                yield from _compared(store, partition.directory, known, objects, scope)
                yield from _added_later(partition.directory, known, first)
                yield from _unsealed(store, partition, state, objects, scope)
    for prefix, leaves in by_directory.items():
        where = prefix.rstrip("/").rpartition("/")[2]
        yield from _compared(store, where, leaves, list_latest(store, prefix), scope)


def _directory(leaf: Leaf, keys: ClusterKeys) -> str:
    if leaf.kind is LeafKind.ERASURE:
        return keys.erasures
    return leaf.key.rsplit("/", 2 if leaf.kind is LeafKind.GAP else 1)[0] + "/"


def _compared(
    store: ObjectStore, where: str, leaves: Iterable[Leaf], objects: Mapping[str, Listed], scope: SealedScope
) -> Iterator[Finding]:
    def compare(leaf: Leaf) -> Finding | None:
        return _difference(store, where, leaf, objects.get(leaf.key), hashes=scope.hashes)

    for finding in stream_in_threads(compare, leaves, most=_AT_ONCE):
        if finding is not None:
            yield finding


def _difference(store: ObjectStore, where: str, leaf: Leaf, listed: Listed | None, *, hashes: bool) -> Finding | None:
    def found(kind: FindingKind, detail: str) -> Finding:
        return Finding(kind, where, detail, leaf.key, leaf.base, leaf.end)

    if listed is None:
        return found(SEALED_MISSING, f"sealed, and missing; {_way_back(store, leaf)}")
    same_version = leaf.version is not None and leaf.version == listed.version_id
    if listed.info.size != leaf.size:
        detail = f"{counted(listed.info.size, 'byte')}; sealed were {leaf.size}; {_way_back(store, leaf)}"
        return found(OVERWRITTEN, detail)
    if same_version and not hashes:
        return None
    try:
        with opened(store, listed) as stream:
            digest = hash_of(stream)[1]
    except ObjectNotFound:
        return found(SEALED_MISSING, f"sealed, and removed during the check; {_way_back(store, leaf)}")
    except ObjectFrozen as error:
        return found(FROZEN, str(error))
    if digest == leaf.sha256:
        return None  # also of a later version, as a repair writes it
    detail = f"SHA-256 {digest}; sealed was {leaf.sha256}"
    return found(OVERWRITTEN, detail if same_version else f"{detail}; {_way_back(store, leaf)}")


def _way_back(store: ObjectStore, leaf: Leaf) -> str:
    """Return which version to put back, if the store has it."""
    versions: Iterable[ObjectVersion] = store.versions(leaf.key) or ()
    if leaf.version is not None and any((v.info.key, v.id) == (leaf.key, leaf.version) for v in versions):
        return f"put back version {leaf.version}"
    return "the store does not list the sealed version"


def _added_later(where: str, leaves: Iterable[Leaf], first: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding for each segment that a later seal has than another one with offsets of it."""
    logs = [leaf for leaf in leaves if leaf.kind is LeafKind.LOG and leaf.base is not None and leaf.end is not None]
    furthest: Leaf | None = None
    for leaf in sorted(logs, key=lambda leaf: (leaf.base or 0, leaf.end or 0)):
        if furthest is not None and (leaf.base or 0) < (furthest.end or 0) and first[leaf.key] != first[furthest.key]:
            earlier, later = sorted((leaf, furthest), key=lambda each: first[each.key])
            detail = f"first in seal {first[later.key]}; {earlier.key} is in seal {first[earlier.key]}"
            yield Finding(ADDED_LATER, where, detail, later.key, later.base, later.end)
        if furthest is None or (leaf.end or 0) > (furthest.end or 0):
            furthest = leaf


def _unsealed(
    store: ObjectStore,
    keys: PartitionKeys,
    state: Mapping[str, Leaf],
    objects: Mapping[str, Listed],
    scope: SealedScope,
) -> Iterator[Finding]:
    """Yield one finding for the committed segments of a partition that no seal has."""
    try:
        below = committed_below(store, keys)
    except (CorruptData, NewerFormat):
        return  # `verify` reports the commit
    lacking = [
        each
        for each in candidates(keys, objects, below)
        if each.listed.info.modified < scope.before
        and ((leaf := state.get(each.listed.info.key)) is None or not leaf.kind.is_object)
    ]
    if lacking:
        first = lacking[0]
        detail = f"{counted(len(lacking), 'object')} in no seal, from offset {first.base} on"
        yield replace(Finding(UNSEALED, keys.directory, detail, first.listed.info.key), start=first.base)
