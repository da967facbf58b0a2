"""One run of `tsctl seal run` on one store: reads what is new, and writes the next seals of the chain.

A segment is read once, by the version that the listing showed. The listing follows the commit, so what is new has been
committed. What a run killed after some seals has written is complete; the next run continues.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import (
    CorruptData,
    NewerFormat,
    ObjectFrozen,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    StaleStateError,
)
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.wording import counted
from ts_reader.reading.parallel import stream_in_threads
from tsctl.seal.chain import CheckedSeal, read_chain
from tsctl.seal.explanations import Explanations
from tsctl.seal.inventory import Candidate, Listed, candidates, committed_below, leaf_of, list_latest
from tsctl.seal.leaves import MOST_LEAVES, SEAL_BYTES, Head, Leaf, LeafKind, Seal
from tsctl.seal.merkle import root_of
from tsctl.seal.signing import AcceptedKey, Signer
from tsctl.verify.inventory import find_partitions

_AT_ONCE: Final = 4  # objects that are read
_FULL_BYTES: Final = 8 << 20  # of the leaves of a seal


@dataclass(slots=True)
class Sealed:
    """What a run did in one store.

    Attributes:
        heads: of the seals that it wrote.
        objects: number of objects that it read.
        bytes: of these.
        explained: number of objects whose absence it explained.
        problems: what the operator must look at, one sentence each; these objects are in no seal of this run.
    """

    heads: list[Head] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0
    explained: int = 0
    problems: list[str] = field(default_factory=list)


def seal_store(
    store: ObjectStore,
    keys: ClusterKeys,
    signer: Signer,
    accepted: Mapping[str, AcceptedKey],
    read: Callable[[int], object] = lambda _: None,
    *,
    despite_damage: bool = False,
    most_leaves: int = MOST_LEAVES,
) -> Sealed:
    """Seal what is new in a store.

    Args:
        accepted: the keys of all seals of the chain, the signer's among them.
        read: is called with the bytes of each object that was read.
        despite_damage: whether a broken chain is continued. What its broken seals had is sealed again, and stays a
            finding of `tsctl verify --sealed`.
        most_leaves: of one seal.

    Raises:
        CorruptData: the chain is broken, and nothing was sealed.
        StaleStateError: another run sealed meanwhile.
        OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: a request failed; the next run continues.
    """
    chain = list(read_chain(store, keys, accepted))
    broken = [each for each in chain if each.problems]
    if broken and not despite_damage:
        raise CorruptData(
            f"{store.location}/{broken[0].key}: {broken[0].problems[0]}; nothing was sealed. Give the public keys of "
            "former seals with --public-key; put a lost or damaged seal back from its versions; without one, "
            "--despite-damage continues behind it"
        )
    done = Sealed()
    writer = _Writer(store, keys, signer, chain, done, most_leaves)
    state = {leaf.key: leaf for each in chain for leaf in each.leaves}
    for leaf in _new_leaves(store, keys, state, chain, done):
        if leaf.kind.is_object:
            done.objects, done.bytes = done.objects + 1, done.bytes + (leaf.size or 0)
            read(leaf.size or 0)
        else:
            done.explained += 1
        writer.add(leaf)
    writer.flush()
    return done


def _new_leaves(
    store: ObjectStore, keys: ClusterKeys, state: Mapping[str, Leaf], chain: list[CheckedSeal], done: Sealed
) -> Iterator[Leaf]:
    last = chain[-1].head if chain else None
    explanations = Explanations(store, keys, 0.0 if last is None else last.time / 1000)
    by_directory: dict[str, list[Leaf]] = {}
    for leaf in state.values():
        if leaf.kind.is_object:
            directory = keys.erasures if leaf.kind is LeafKind.ERASURE else _directory(leaf)
            by_directory.setdefault(directory, []).append(leaf)
    for partitions in find_partitions(store, keys).partitions.values():
        for partition in partitions:
            known = by_directory.pop(partition.prefix, [])
            yield from _of_partition(store, partition, state, known, explanations, done)
    erasures = list_latest(store, keys.erasures)
    found = (Candidate(LeafKind.ERASURE, each, 0, None) for each in erasures.values())
    yield from _read(store, found, state, 0, done)
    by_directory.pop(keys.erasures, None)  # no command deletes one: `verify` reports it
    for leaves in by_directory.values():  # the whole directory is missing
        yield from _explained(leaves, explanations, done)


def _of_partition(
    store: ObjectStore,
    keys: PartitionKeys,
    state: Mapping[str, Leaf],
    known: Iterable[Leaf],
    explanations: Explanations,
    done: Sealed,
) -> Iterator[Leaf]:
    below = 0
    try:
        below = committed_below(store, keys)  # before the listing
    except (CorruptData, NewerFormat) as error:
        done.problems.append(str(error))
    objects = list_latest(store, keys.prefix)
    yield from _read(store, candidates(keys, objects, below), state, below, done)
    yield from _explained((leaf for leaf in known if leaf.key not in objects), explanations, done)


def _read(
    store: ObjectStore, found: Iterable[Candidate], state: Mapping[str, Leaf], below: int, done: Sealed
) -> Iterator[Leaf]:
    """Yield a leaf of each object that no seal has, or only as another version with the same bytes."""

    def read(candidate: Candidate) -> Leaf | str | None:
        try:
            return leaf_of(store, candidate, below)
        except ObjectNotFound:
            return None
        except ObjectFrozen as error:
            return str(error)

    wanted = (each for each in found if not _is_sealed(each.listed, state.get(each.listed.info.key)))
    for leaf in stream_in_threads(read, wanted, most=_AT_ONCE):
        if isinstance(leaf, str):
            done.problems.append(leaf)
        elif leaf is not None:
            former = state.get(leaf.key)
            if former is not None and former.kind.is_object and former.sha256 != leaf.sha256:
                done.problems.append(
                    f"{leaf.key}: it has other bytes than when it was sealed: SHA-256 {leaf.sha256}, and sealed was "
                    f"{former.sha256}; see tsctl verify --sealed"
                )
            else:
                yield leaf


def _is_sealed(listed: Listed, leaf: Leaf | None) -> bool:
    return leaf is not None and leaf.kind.is_object and leaf.version == listed.version_id


def _explained(missing: Iterable[Leaf], explanations: Explanations, done: Sealed) -> Iterator[Leaf]:
    for leaf in missing:
        found = explanations.of(leaf)
        if found is None:
            done.problems.append(
                f"{leaf.key}: it is sealed and missing, and neither retention nor an erasure removed it"
            )
        else:
            yield found


def _directory(leaf: Leaf) -> str:
    return leaf.key.rsplit("/", 2 if leaf.kind is LeafKind.GAP else 1)[0] + "/"


class _Writer:
    """Writes seals to the end of a chain."""

    def __init__(
        self,
        store: ObjectStore,
        keys: ClusterKeys,
        signer: Signer,
        chain: list[CheckedSeal],
        done: Sealed,
        most_leaves: int,
    ) -> None:
        self._store, self._keys, self._signer, self._done = store, keys, signer, done
        self._most = most_leaves
        self._last = chain[-1].head if chain else None
        self._number = len(chain)  # of the last seal, readable or not
        self._leaves: list[Leaf] = []
        self._bytes = 0

    def add(self, leaf: Leaf) -> None:
        """Add a leaf; a full seal is written."""
        self._leaves.append(leaf)
        self._bytes += len(leaf.encode())
        if len(self._leaves) >= self._most or self._bytes >= _FULL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write a seal of the leaves that were added; none without any.

        Raises:
            StaleStateError: another run wrote it.
            OutcomeUnknown, StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        """
        if not self._leaves:
            return
        last, store = self._last, self._store
        head = Head(
            seal=self._number + 1,
            cluster=self._keys.cluster,
            location=store.location,
            time=max(int(store.current_time() * 1000), 0 if last is None else last.time),
            leaves=len(self._leaves),
            root=root_of([leaf.hashed for leaf in self._leaves]).hex(),
            previous=None if last is None else last.sha256,
            key=self._signer.public.name,
        )
        text = head.encode()
        seal = Seal(head=text.decode(), signature=self._signer.sign(text).hex(), leaves=tuple(self._leaves))
        self._put(self._keys.seal(head.seal), seal.encode())
        self._done.heads.append(head)
        self._last, self._number, self._leaves, self._bytes = head, head.seal, [], 0

    def _put(self, key: str, data: bytes) -> None:
        try:
            self._store.put(key, data, condition=IfAbsent())
        except (PreconditionFailed, OutcomeUnknown) as error:
            try:
                if get_small(self._store, key, SEAL_BYTES)[0] == data:
                    return
            except ObjectNotFound:
                raise error from None
            raise StaleStateError(
                f"{self._store.location}/{key}: another run of tsctl seal wrote it; run this one again"
            ) from error


def describe(done: Sealed) -> str:
    """Return what a run did in one line."""
    if not done.heads:
        return "nothing new to seal"
    read = f"{counted(done.objects, 'object')} of {done.bytes:,} bytes read"
    return f"{read}, {counted(done.explained, 'object')} explained; {counted(len(done.heads), 'seal')} written"
