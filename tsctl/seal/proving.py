"""Writes the folder of `tsctl prove`: segments, their leaves and paths, all heads, tokens, and a verifier of its own.

::

    verify.py  README.txt  proof.json
    heads/1.json  1.sig  1.tsr  2.json ...     each head as it was signed, its signature, its timestamp token
    segments/0001.log ...                      the sealed version of each object, byte for byte

`proof.json` has, for each leaf, its text, the seal, its place in the seal and the path to the root. File names are
numbers, so that no name of the archive becomes a path. The folder gets its name once all of it is complete.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys, SegmentName
from ts_common.errors import CorruptData, ObjectNotFound
from ts_common.store.contract import ObjectStore
from tsctl.durable_files import sync_directory, write_new
from tsctl.seal import folder_verifier
from tsctl.seal.chain import CheckedSeal, read_chain, read_token, token_numbers
from tsctl.seal.inventory import Listed, opened
from tsctl.seal.leaves import Leaf, LeafKind
from tsctl.seal.merkle import path_of
from tsctl.seal.signing import AcceptedKey

_CHUNK: Final = 1 << 20
_README: Final = """\
Offsets of topic {topic} of cluster {cluster}, from {location}.

Verify it on any host with Python 3.11 and openssl, with the public key that the owner of the archive gave you:

    python3 -I -S verify.py --public-key sealer.pub

It proves that the files are unchanged since they were sealed. It proves nothing of the time before: Object Lock of the
bucket does, from the put of each segment on. By hand, for seal 1:

    openssl pkeyutl -verify -pubin -inkey sealer.pub -rawin -in heads/1.json -sigfile heads/1.sig
    openssl ts -verify -data heads/1.json -in heads/1.tsr -CAfile tsa.pem
    sha256sum segments/*

kafka-dump-log reads a segment once it is named after its base offset, such as 00000000000000000100.log.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is proven of one partition.

    Attributes:
        start: first offset.
        end: the offset after the last.
        lowest: first offset that was requested; what was deleted between is shown with its explanation.
        segments: keys of the segments that readers use for them.
    """

    keys: PartitionKeys
    start: int
    end: int
    lowest: int
    segments: frozenset[str]

    def concerns(self, leaf: Leaf) -> bool:
        """Return whether a leaf belongs to the proof: a segment of it, a gap in it, or what was there once."""
        if leaf.key in self.segments:
            return True
        if not leaf.key.startswith(self.keys.prefix):
            return False
        if leaf.kind is LeafKind.GAP:
            return (leaf.base or 0) < self.end and (leaf.end or 0) > self.lowest
        parsed = SegmentName.parse(leaf.key.removeprefix(self.keys.prefix))
        base = -1 if parsed is None else parsed[0].base
        return base < self.end and (leaf.end or base + 1) > self.lowest


@dataclass(frozen=True, slots=True)
class Placed:
    """A leaf and its place."""

    leaf: Leaf
    seal: int
    index: int
    path: tuple[bytes, ...]


@dataclass(slots=True)
class Proof:
    """What a folder will have.

    Attributes:
        seals: all of the chain, without their leaves.
        placed: the leaves, in the order of the chain.
        lacking: keys of segments that no seal has.
    """

    seals: list[CheckedSeal] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[Placed]:
        """The last leaf of each object that exists."""
        last = {each.leaf.key: each for each in self.placed}
        return [each for each in last.values() if each.leaf.kind.is_object]


def find_proof(
    store: ObjectStore, keys: ClusterKeys, wanted: Sequence[Wanted], accepted: Mapping[str, AcceptedKey]
) -> Proof:
    """Return the leaves of what is to be proven.

    Raises:
        CorruptData: the chain is broken, so it proves nothing.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    proof = Proof()
    for seal in read_chain(store, keys, accepted):
        if seal.problems:
            raise CorruptData(
                f"{store.location}/{seal.key}: {seal.problems[0]}; a folder would not verify: see tsctl verify --sealed"
            )
        chosen = [at for at, leaf in enumerate(seal.leaves) if any(each.concerns(leaf) for each in wanted)]
        hashes = [leaf.hashed for leaf in seal.leaves] if chosen else []
        proof.placed += [Placed(seal.leaves[at], seal.number, at, path_of(hashes, at)) for at in chosen]
        proof.seals.append(CheckedSeal(seal.number, seal.key, seal.head, seal.text, seal.signature, (), ()))
    sealed = {each.leaf.key for each in proof.files}
    proof.lacking = sorted(key for each in wanted for key in each.segments if key not in sealed)
    return proof


def write_folder(
    store: ObjectStore,
    keys: ClusterKeys,
    topic: str,
    wanted: Sequence[Wanted],
    proof: Proof,
    folder: Path,
    advance: Callable[[int], object],
    check: Callable[[Leaf, Path], object] = lambda *_: None,
) -> None:
    """Write the folder of a proof.

    Args:
        check: is called with each segment and its file; an error that it raises leaves no folder.

    Raises:
        CorruptData: an object has other bytes than were sealed.
        ObjectNotFound: the sealed version of an object does not exist any more.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
        OSError: a file cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        for name in ("heads", "segments"):
            (partial / name).mkdir()
        _write_heads(store, keys, proof.seals, partial / "heads")
        names = _write_segments(store, proof.files, partial, advance, check)
        content = {
            "version": 1,
            "cluster": keys.cluster,
            "location": store.location,
            "topic": topic,
            "partitions": [{"directory": each.keys.directory, "from": each.start, "to": each.end} for each in wanted],
            "leaves": [_entry(each, names) for each in proof.placed],
        }
        write_new(partial / "proof.json", json.dumps(content, indent=1).encode())
        readme = _README.format(topic=topic, cluster=keys.cluster, location=store.location)
        write_new(partial / "README.txt", readme.encode())
        shutil.copyfile(Path(folder_verifier.__file__), partial / "verify.py")
        for path in (partial / "heads", partial / "segments", partial):
            path.chmod(0o755)
            sync_directory(path)
        partial.rename(folder)
        sync_directory(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _entry(placed: Placed, names: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    return {
        "leaf": placed.leaf.encode().decode(),
        "seal": placed.seal,
        "index": placed.index,
        "path": [each.hex() for each in placed.path],
        "file": names.get((placed.leaf.key, placed.seal)),
    }


def _write_heads(store: ObjectStore, keys: ClusterKeys, seals: Iterable[CheckedSeal], directory: Path) -> None:
    tokens = token_numbers(store, keys)
    for seal in seals:
        write_new(directory / f"{seal.number}.json", seal.text.encode())
        write_new(directory / f"{seal.number}.sig", bytes.fromhex(seal.signature))
        token = read_token(store, keys, seal.number) if seal.number in tokens else None
        if token is not None:
            write_new(directory / f"{seal.number}.tsr", token)


def _write_segments(
    store: ObjectStore,
    files: Iterable[Placed],
    partial: Path,
    advance: Callable[[int], object],
    check: Callable[[Leaf, Path], object],
) -> dict[tuple[str, int], str]:
    """Write the sealed version of each object; return the file of each, by key and seal."""
    names = {}
    for number, placed in enumerate(files, 1):
        leaf = placed.leaf
        name = f"segments/{number:04d}{'.log' if leaf.kind is LeafKind.LOG else '.json'}"
        _write_object(store, leaf, partial / name, advance)
        if leaf.kind is LeafKind.LOG:
            check(leaf, partial / name)
        names[leaf.key, placed.seal] = name
    return names


def _write_object(store: ObjectStore, leaf: Leaf, path: Path, advance: Callable[[int], object]) -> None:
    digest = sha256()
    with path.open("wb") as file, opened(store, _sealed_version(store, leaf)) as stream:
        while piece := stream.read(_CHUNK):
            digest.update(piece)
            file.write(piece)
            advance(len(piece))
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != leaf.sha256:
        raise CorruptData(
            f"{leaf.key}: SHA-256 {digest.hexdigest()}; sealed was {leaf.sha256}: see tsctl verify --sealed with "
            "--depth full"
        )


def _sealed_version(store: ObjectStore, leaf: Leaf) -> Listed:
    """Return the version that was sealed, also if it is not the latest any more."""
    if leaf.version is None:
        return Listed(store.head(leaf.key))
    for version in store.versions(leaf.key) or ():
        if (version.info.key, version.id) == (leaf.key, leaf.version):
            return Listed(version.info, version)
    raise ObjectNotFound(f"{leaf.key}: version {leaf.version}, which was sealed, does not exist")
