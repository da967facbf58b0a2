"""`tsctl seal run`: what a seal has, what a later one explains, and what is in none."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import keep_last, run_in, ship
from tests.tsctl.running import Run
from tests.tsctl.seal.sealed import Keys, leaves, read_seal, seal
from ts_common.archive.commit import LogStart
from ts_common.archive.erasures import ErasureRun, erasure_run_key
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData, OutcomeUnknown, StaleStateError
from ts_common.store.contract import NO_METADATA, Body, Condition, ObjectInfo
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.seal.leaves import MOST_LEAVES, SEAL_BYTES, Leaf, LeafKind


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Ship five segments of topic t."""
    made = MadeArchive(tmp_path / "store")
    ship(made, "t", 0, 50)
    return made


def bases(found: list[Leaf], kind: LeafKind = LeafKind.LOG) -> list[int]:
    return [int(each.key.rpartition("/")[2][:20]) for each in found if each.kind is kind]


def test_a_seal_has_each_committed_segment_and_gap_record_once(archive: MadeArchive, keys: Keys) -> None:
    """With its bytes' hash and its metadata; a second run has nothing to add, the next one what is new."""
    store, partition = archive.store, archive.partition("t")
    store.put(partition.gap(50, 60), b'{"from":50}')
    log = batches((50, 60))
    archive.put_segment("t", 50, log, index=b"i", timeindex=b"t")  # not committed yet
    done = seal(archive, keys)
    found = leaves(archive, keys)
    assert bases(found) == [0, 10, 20, 30, 40]
    assert (done.objects, len(done.heads), done.problems) == (6, 1, [])
    data = store.get(partition.segment(SegmentName(10)))[0]
    assert found[1] == Leaf(
        kind=LeafKind.LOG,
        key=partition.segment(SegmentName(10)),
        size=len(data),
        sha256=sha256(data).hexdigest(),
        base=10,
        end=20,
        epochs=((0, 10),),
    )
    assert (found[5].kind, found[5].base, found[5].end) == (LeafKind.GAP, 50, 60)
    assert seal(archive, keys).heads == []
    ship(archive, "t", 50, 70)
    assert [each.seal for each in seal(archive, keys).heads] == [2]
    assert bases(leaves(archive, keys)) == [0, 10, 20, 30, 40, 50, 60]
    first, second = (json.loads(read_seal(archive, number)["head"]) for number in (1, 2))
    assert first["previous"] is None
    assert second["previous"] == sha256(read_seal(archive, 1)["head"].encode()).hexdigest()


def test_a_run_with_more_leaves_writes_several_seals(archive: MadeArchive, keys: Keys) -> None:
    """Each has at most the bound, and a run that was killed after the first continues."""
    done = seal(archive, keys, most_leaves=2)
    assert [(each.seal, each.leaves) for each in done.heads] == [(1, 2), (2, 2), (3, 1)]
    archive.store.delete([archive.keys.seal(3)])
    assert [each.leaves for each in seal(archive, keys).heads] == [1]
    assert bases(leaves(archive, keys)) == [0, 10, 20, 30, 40]


def test_the_largest_seal_is_below_what_a_reader_accepts() -> None:
    """A leaf with the longest key, sixteen epochs and the largest numbers, as often as a seal may have it."""
    most = (1 << 63) - 1
    leaf = Leaf(
        kind=LeafKind.LOG,
        key="k" * 1024,
        version="v" * 64,
        size=most,
        sha256="0" * 64,
        base=most,
        end=most,
        epochs=((2**31 - 1, most),) * 16,
    )
    assert MOST_LEAVES * 400 < 8 << 20 < SEAL_BYTES - len(leaf.encode())


def test_what_retention_deleted_is_explained_by_its_run(archive: MadeArchive, keys: Keys) -> None:
    """By its report; a third run of the sealer has nothing to add."""
    seal(archive, keys)
    size = archive.store.head(archive.partition("t").segment(SegmentName(0))).size
    for _ in range(2):
        result = run_in(archive.store, archive, keep_last(2, size), grace=0)
    done = seal(archive, keys)
    assert (done.explained, done.problems) == (3, [])
    found = [each for each in leaves(archive, keys) if each.kind is LeafKind.RETIRED]
    assert bases(found, LeafKind.RETIRED) == [0, 10, 20]
    assert {each.by for each in found} == {result.report.run}
    assert seal(archive, keys).heads == []


def test_without_its_report_a_deletion_is_explained_by_the_floor(archive: MadeArchive, keys: Keys) -> None:
    """A run that was killed has no report; the copy of `log.start` only the collector may write."""
    seal(archive, keys)
    partition = archive.partition("t")
    archive.store.delete([partition.segment(SegmentName(base)) for base in (0, 10)])
    copy = LogStart(10, floor=10, written_by="gc-20261128T020000000Z-1f2e3d4c")
    archive.store.put(archive.keys.log_start_copy(partition), copy.encode())
    done = seal(archive, keys)
    assert [each.by for each in leaves(archive, keys) if each.kind is LeafKind.RETIRED] == ["floor 10"]
    assert len(done.problems) == 1
    assert f"{partition.segment(SegmentName(10))}: it is sealed and missing" in done.problems[0]


def test_what_an_erasure_replaced_is_explained_by_the_other_object(archive: MadeArchive, keys: Keys) -> None:
    """By the evidence of the run; an agent can write any `ts-replaces` and `ts-erased`, which explain nothing."""
    seal(archive, keys)
    store, partition = archive.store, archive.partition("t")
    old, new = partition.segment(SegmentName(10)), partition.segment(SegmentName(10, 0, 0x1A2B3C4D))
    metadata = {**store.head(old).metadata, "ts-replaces": SegmentName(10).stem, "ts-erased": "4"}
    store.put(new, batches((10, 20), value=b"other"), metadata=metadata)
    store.delete([old])
    assert len(seal(archive, keys).problems) == 1
    line = json.dumps({"did": "removed", "partition": "t-0", "key": old, "made": new}).encode()
    evidence = erasure_run_key(archive.keys, "7", 1)
    store.put(evidence, ErasureRun("7", 1, None, None).encode() + line)
    done = seal(archive, keys)
    assert done.problems == []
    found = {each.kind: each for each in leaves(archive, keys)}
    assert found[LeafKind.REPLACED] == Leaf(kind=LeafKind.REPLACED, key=old, by=new)
    assert found[LeafKind.ERASURE].key == evidence


def test_a_broken_chain_is_not_continued_unless_that_is_requested(archive: MadeArchive, keys: Keys) -> None:
    """Then what the lost seal had is sealed again."""
    seal(archive, keys, most_leaves=2)
    archive.store.delete([archive.keys.seal(2)])
    with pytest.raises(CorruptData, match=r"seals/2.json: the seal is missing; nothing was sealed"):
        seal(archive, keys)
    done = seal(archive, keys, despite_damage=True)
    assert [(each.seal, each.leaves) for each in done.heads] == [(4, 2)]
    assert sorted(bases(leaves(archive, keys))) == [0, 10, 20, 30, 40]


def test_a_new_key_continues_the_chain_with_the_former_one_accepted(
    archive: MadeArchive, keys: Keys, tmp_path: Path
) -> None:
    """Without the former public key, nothing is sealed."""
    seal(archive, keys)
    ship(archive, "t", 50, 60)
    other = Keys(tmp_path, "other")
    with pytest.raises(CorruptData, match="which no --public-key has"):
        seal(archive, other)
    assert [each.key for each in seal(archive, other, keys).heads] == [other.signer.public.name]


class Answering(WrappedStore):
    """A store where a put of a seal has no response, or meets another run."""

    def __init__(self, archive: MadeArchive, *, writes: bytes | None) -> None:
        super().__init__(archive.store, threads=1)
        self._writes = writes

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        if self._writes is not None:
            self._inner.put(key, self._writes)
        found = self._inner.put(key, body, condition=condition)
        if self._writes is None:
            raise OutcomeUnknown("no response")
        return found


def test_a_put_without_a_response_is_read_and_another_runs_seal_is_kept(archive: MadeArchive, keys: Keys) -> None:
    """The first is success; the second ends the run, which may be repeated."""
    assert len(seal(archive, keys, store=Answering(archive, writes=None)).heads) == 1
    ship(archive, "t", 50, 60)
    with pytest.raises(StaleStateError, match="another run of tsctl seal wrote it"):
        seal(archive, keys, store=Answering(archive, writes=b"{}"))
    assert archive.store.get(archive.keys.seal(2))[0] == b"{}"


def test_a_segment_that_ends_above_the_commit_waits(archive: MadeArchive, keys: Keys) -> None:
    """A leader that lost an election can have shipped it: the next commit decides."""
    archive.commit("t", 45, highest_base=40)
    seal(archive, keys)
    assert bases(leaves(archive, keys)) == [0, 10, 20, 30]
    archive.commit("t", 50, highest_base=40)
    seal(archive, keys)
    assert bases(leaves(archive, keys)) == [0, 10, 20, 30, 40]


def test_the_command_seals_and_lists(archive: MadeArchive, keys: Keys, run: Run) -> None:
    """It prints the hash of each head, for a note elsewhere; what was left out is exit code 1."""
    named = ("--url", archive.location, "--cluster", "prod")
    first = run("seal", "run", "--key", keys.private, *named, "--json")
    assert (first.code, first.err) == (0, "")
    (written,) = first.document["stores"][0]["seals"]
    listed = run("seal", "ls", "--public-key", keys.public, *named, "--json")
    (row,) = listed.document["seals"]
    assert (listed.code, row["sha256"], row["found"]) == (0, written["sha256"], "right")
    assert run("seal", "ls", *named).code == 1  # no key is accepted
    archive.store.delete([archive.partition("t").segment(SegmentName(20))])
    second = run("seal", "run", "--key", keys.private, *named)
    assert (second.code, "left out: " in second.err, "nothing new to seal" in second.out) == (1, True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("x", "no private key"),
        ("public", "no private key"),
        ("curve", "another kind than Ed25519"),
    ],
)
def test_a_file_that_is_no_key_is_one_error(
    archive: MadeArchive, keys: Keys, run: Run, tmp_path: Path, text: str | None, said: str
) -> None:
    """With the command that makes one."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path = tmp_path / "a.pem"
    if text == "public":
        path.write_bytes(keys.public.read_bytes())
    elif text == "curve":
        other = ec.generate_private_key(ec.SECP256R1())
        path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    elif text is not None:
        path.write_text(text)
    ended = run("seal", "run", "--key", path, "--url", archive.location, "--cluster", "prod")
    assert (ended.code, said in ended.err) == (2, True), ended.err
    refused = run("seal", "ls", "--public-key", keys.private, "--url", archive.location, "--cluster", "prod")
    assert (refused.code, "no public key" in refused.err) == (2, True)


def test_a_damaged_commit_and_a_changed_segment_are_left_out(archive: MadeArchive, keys: Keys) -> None:
    """The run names both, and seals the rest."""
    ship(archive, "other", 0, 10)
    seal(archive, keys)
    archive.store.put(archive.partition("other").commit, b"x")
    ship(archive, "t", 50, 60)
    done = seal(archive, keys)
    assert [each.leaves for each in done.heads] == [1]
    assert [archive.partition("other").commit in each for each in done.problems] == [True]
