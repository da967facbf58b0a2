"""`tsctl verify --sealed`: each place of a segment, a seal and the chain that is tampered with is named."""

import json
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive, batches
from tests.matrix import cases
from tests.tsctl.gc.archives import keep_last, run_in, ship
from tests.tsctl.running import Run
from tests.tsctl.seal.sealed import Keys, read_seal, root_of, seal, signed_again, write_seal
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import CorruptData
from tsctl.seal.chain import read_chain
from tsctl.seal.leaves import MOST_LEAVES, SEAL_BYTES

Fields = dict[str, Any]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Ship six segments of topic t."""
    made = MadeArchive(tmp_path / "store")
    ship(made, "t", 0, 60)
    return made


class Check:
    """Runs of `tsctl verify --sealed`."""

    def __init__(self, run: Run, archive: MadeArchive, keys: Keys) -> None:
        self._run, self._archive, self._keys = run, archive, keys

    def __call__(self, *arguments: object, keys: Keys | None = None) -> list[tuple[str, str]]:
        """Return the code and the name of the object of each finding on seals."""
        named = ("--url", self._archive.location, "--cluster", "prod", "--json", "--in-flight-hours", "0")
        given = ("--sealed", "--public-key", (keys or self._keys).public, *arguments)
        document = self._run("verify", *given, *named).document
        self.details = [each["detail"] for each in document["findings"]]
        codes = {"seal-broken", "overwritten", "sealed-missing", "unsealed", "added-later"}
        found = [each for each in document["findings"] if each["code"] in codes]
        return sorted((each["code"], (each["key"] or "").rpartition("/")[2]) for each in found)


@pytest.fixture
def check(run: Run, archive: MadeArchive, keys: Keys) -> Check:
    return Check(run, archive, keys)


def log(base: int) -> str:
    return f"{base:020d}.log"


@pytest.mark.parametrize("place", cases(["first", "middle", "last"], quick=["middle"]))
def test_a_changed_byte_of_a_segment_is_named(check: Check, archive: MadeArchive, keys: Keys, place: str) -> None:
    """At each place, by its hash: the size is the same, and a directory has no versions."""
    seal(archive, keys)
    assert check() == []
    key = archive.partition("t").segment(SegmentName(20))
    data, info = archive.store.get(key)
    at = {"first": 0, "middle": len(data) // 2, "last": len(data) - 1}[place]
    changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    archive.store.put(key, changed, metadata=info.metadata)
    assert check() == [("overwritten", log(20))]
    archive.store.put(key, data + b"x", metadata=info.metadata)
    assert check() == [("overwritten", log(20))]
    archive.store.put(key, data, metadata=info.metadata)
    assert check() == []


def test_a_sealed_object_that_is_missing_is_named_unless_a_later_seal_explains_it(
    check: Check, archive: MadeArchive, keys: Keys
) -> None:
    """Before the next seal a deletion by retention is a finding too; gap records as well as segments."""
    archive.store.put(archive.partition("t").gap(60, 70), b"{}")
    size = archive.store.head(archive.partition("t").segment(SegmentName(0))).size
    seal(archive, keys)
    for _ in range(2):
        run_in(archive.store, archive, keep_last(4, size), grace=0)
    assert check() == [("sealed-missing", log(0)), ("sealed-missing", log(10))]
    seal(archive, keys)
    assert check() == []
    archive.store.delete([archive.partition("t").gap(60, 70), archive.partition("t").segment(SegmentName(30))])
    assert check() == [("sealed-missing", log(30)), ("sealed-missing", "60-70.json")]
    seal(archive, keys)
    assert len(check()) == 2


def test_a_committed_segment_without_a_seal_is_named(check: Check, archive: MadeArchive, keys: Keys) -> None:
    """One finding for a partition, from the first of them on."""
    seal(archive, keys)
    ship(archive, "t", 60, 80)
    assert check() == [("unsealed", log(60))]
    assert "2 objects in no seal, from offset 60 on" in check.details
    seal(archive, keys)
    assert check() == []


def test_a_segment_that_was_added_to_sealed_offsets_is_named(check: Check, archive: MadeArchive, keys: Keys) -> None:
    """A variant of a later leader epoch, which readers prefer; two copies of one seal are no finding."""
    archive.put_segment("t", 10, batches((10, 20), epoch=1, value=b"lost"), variant=True)
    seal(archive, keys)
    assert check() == []
    archive.put_segment("t", 30, batches((30, 40), epoch=9, value=b"forged"), variant=True)
    (unsealed,) = check()
    assert unsealed[0] == "unsealed"
    seal(archive, keys)
    ((code, name),) = check()
    assert (code, name.startswith(f"{30:020d}.e9.")) == ("added-later", True)


LEAF_CHANGES: dict[str, Callable[[Fields], object]] = {
    "kind": lambda leaf: leaf.update(kind="gap"),
    "key": lambda leaf: leaf.update(key=leaf["key"].replace("t-0", "t-1")),
    "version": lambda leaf: leaf.update(version="1"),
    "size": lambda leaf: leaf.update(size=leaf["size"] + 1),
    "sha256": lambda leaf: leaf.update(sha256="0" * 64),
    "base": lambda leaf: leaf.update(base=leaf["base"] + 1),
    "end": lambda leaf: leaf.update(end=leaf["end"] + 1),
    "epochs": lambda leaf: leaf.update(epochs=[[1, 0]]),
    "no end": lambda leaf: leaf.pop("end"),
    "no hash": lambda leaf: leaf.pop("sha256"),
}
SEAL_CHANGES: dict[str, Callable[[Fields], object]] = {
    "order of leaves": lambda seal: seal["leaves"].reverse(),
    "a leaf less": lambda seal: seal["leaves"].pop(),
    "a leaf twice": lambda seal: seal["leaves"].append(seal["leaves"][0]),
    "no leaves": lambda seal: seal["leaves"].clear(),
    "signature": lambda seal: seal.update(signature="0" * 128),
    "signature's last bit": lambda seal: seal.update(
        signature=seal["signature"][:-1] + ("0" if seal["signature"][-1] != "0" else "1")
    ),
    "root": lambda seal: change_head(seal, root="0" * 64),
    "previous": lambda seal: change_head(seal, previous="0" * 64),
    "time": lambda seal: change_head(seal, time=1),
    "number": lambda seal: change_head(seal, seal=3),
    "cluster": lambda seal: change_head(seal, cluster="other"),
    "location": lambda seal: change_head(seal, location="s3://other"),
    "number of leaves": lambda seal: change_head(seal, leaves=7),
    "name of the key": lambda seal: change_head(seal, key="0" * 64),
    "white space in the head": lambda seal: seal.update(head=seal["head"].replace(":", ": ", 1)),
}


def change_head(fields: Fields, **changed: Any) -> None:
    fields["head"] = json.dumps({**json.loads(fields["head"]), **changed}, separators=(",", ":"))


@pytest.mark.parametrize("name", cases(LEAF_CHANGES, quick=["key", "version", "sha256", "end", "no hash"]))
def test_each_field_of_a_leaf_that_was_changed_breaks_the_seal(
    check: Check, archive: MadeArchive, keys: Keys, name: str
) -> None:
    """Then the seal counts for nothing, and its segments are in no seal."""
    seal(archive, keys, most_leaves=3)
    fields = read_seal(archive, 2)
    LEAF_CHANGES[name](fields["leaves"][1])
    write_seal(archive, 2, fields)
    assert check() == [("seal-broken", "2.json"), ("unsealed", log(30))]
    if name != "no hash":  # a reader refuses such a leaf, so there is no root
        change_head(fields, root=root_of(fields))
        write_seal(archive, 2, fields)
        assert check() == [("seal-broken", "2.json"), ("unsealed", log(30))]


QUICK_CHANGES = ["order of leaves", "a leaf less", "no leaves", "signature's last bit", "root", "name of the key"]


@pytest.mark.parametrize("name", cases(SEAL_CHANGES, quick=QUICK_CHANGES))
def test_each_part_of_a_seal_that_was_changed_is_named(
    check: Check, archive: MadeArchive, keys: Keys, name: str
) -> None:
    """The order of its leaves, the signature, and each field of the head."""
    seal(archive, keys, most_leaves=3)
    fields = read_seal(archive, 2)
    SEAL_CHANGES[name](fields)
    write_seal(archive, 2, fields)
    assert {each for each in check() if each[0] == "seal-broken"} == {("seal-broken", "2.json")}
    assert ("unsealed", log(30)) in check()


def test_a_chain_that_was_cut_and_signed_again_is_named(
    check: Check, archive: MadeArchive, keys: Keys, tmp_path: Path
) -> None:
    """By another key at each seal; by the stolen key by the hash of a head that is known from elsewhere."""
    known = [f"{head.seal}:{head.sha256}" for head in seal(archive, keys, most_leaves=2).heads]
    assert check("--known-seal", known[2]) == []
    other = Keys(tmp_path, "other")
    archive.store.delete([archive.keys.seal(3)])
    assert check() == [("unsealed", log(40))]  # the end of the chain shows no loss ...
    assert check("--known-seal", known[2]) == [("seal-broken", "3.json"), ("unsealed", log(40))]  # ... but this does
    second = read_seal(archive, 2)
    write_seal(archive, 2, signed_again(second, other))
    assert ("seal-broken", "2.json") in check("--known-seal", known[1])
    stolen = {**second, "leaves": second["leaves"][:1]}
    write_seal(archive, 2, signed_again(stolen, keys, leaves=1, root=root_of(stolen)))
    assert check() == [("unsealed", log(30))]
    assert ("seal-broken", "2.json") in check("--known-seal", known[1])
    seal(archive, keys)
    first = read_seal(archive, 1)
    write_seal(archive, 1, signed_again(first, keys, time=json.loads(first["head"])["time"] + 1))
    assert check() == [("seal-broken", "2.json")]  # which names the former head


def test_a_missing_seal_is_named_once(check: Check, archive: MadeArchive, keys: Keys) -> None:
    """The others count; what only it had is in no seal."""
    seal(archive, keys, most_leaves=2)
    archive.store.delete([archive.keys.seal(2)])
    assert check() == [("seal-broken", "2.json"), ("unsealed", log(20))]


def test_seals_of_two_keys_count_if_both_are_accepted(
    check: Check, archive: MadeArchive, keys: Keys, tmp_path: Path
) -> None:
    """The key of a bucket is never read: without the second one, its seals are findings."""
    seal(archive, keys)
    ship(archive, "t", 60, 70)
    other = Keys(tmp_path, "other")
    seal(archive, other, keys)
    assert check("--public-key", other.public) == []
    assert check() == [("seal-broken", "2.json"), ("unsealed", log(60))]


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'{"version":1}',
    b'{"version":9,"head":"","signature":"","leaves":[]}',
    b'{"version":1,"head":5,"signature":"","leaves":[]}',
    b'{"version":1,"head":"{}","signature":"%b","leaves":[]}' % (b"0" * 128),
    b'{"version":1,"head":"%b","signature":"%b","leaves":[]}' % (b"x" * 5000, b"0" * 128),
    b'{"version":1,"head":"' + b'{\\"a\\":' * 600 + b'","signature":"%b","leaves":[]}' % (b"0" * 128),
    b"[" * 100_000,
    b'{"version":1,"head":"{\\"version\\":1}","signature":"%b","leaves":{}}' % (b"0" * 128),
    b'{"version":1,"head":"","signature":"%b","leaves":[%b]}' % (b"0" * 128, b"1e400"),
    b" " * (SEAL_BYTES + 1),
]


@pytest.mark.parametrize("data", HOSTILE)
def test_a_hostile_seal_is_a_finding(check: Check, archive: MadeArchive, keys: Keys, data: bytes) -> None:
    """It is neither an error of the command nor a reason to read more than the bound."""
    seal(archive, keys)
    archive.store.put(archive.keys.seal(2), data)
    archive.store.put(f"{archive.keys.seals}x.json", b"")  # no seal
    archive.store.put(f"{archive.keys.seals}0.json", b"")
    assert check() == [("seal-broken", "2.json")]


@pytest.mark.parametrize(
    "key",
    [
        *("../../etc/passwd", "/etc/passwd", "", "a\x00b", "\ud800", "k" * 2000, "c/t-0/1.log"),
        *("prod/t-0/../../../etc/passwd", "prod/t-0/a\x00b", "prod/t-0//1.log"),
    ],
)
def test_a_hostile_key_in_a_signed_leaf_reads_nothing(check: Check, archive: MadeArchive, keys: Keys, key: str) -> None:
    """A stolen key can sign it: it is a finding, and no traceback; neither is another cluster's object read."""
    seal(archive, keys)
    fields = read_seal(archive, 1)
    fields["leaves"][0]["key"] = key
    with suppress(CorruptData):  # a reader refuses such a leaf; then the signature does not matter
        fields = signed_again(fields, keys, root=root_of(fields))
    write_seal(archive, 1, fields)
    assert check() == [("seal-broken", "1.json"), ("unsealed", log(0))]


def test_more_leaves_than_a_seal_may_have_are_refused(archive: MadeArchive, keys: Keys) -> None:
    """A head can name at most the bound."""
    seal(archive, keys)
    fields = read_seal(archive, 1)
    change_head(fields, leaves=MOST_LEAVES + 1)
    write_seal(archive, 1, fields)
    (found,) = read_chain(archive.store, archive.keys, keys.accepted)
    assert found.head is None
    assert f"is not a whole number from 1 to {MOST_LEAVES}" in found.problems[0]


def test_options_that_miss_their_purpose_are_one_error(archive: MadeArchive, keys: Keys, run: Run) -> None:
    """A key without --sealed, --sealed without a key, and a hash of another form."""
    named = ("--url", archive.location, "--cluster", "prod")
    for given, said in (
        (("--public-key", keys.public), "are for --sealed"),
        (("--sealed",), "--public-key is missing"),
        (("--sealed", "--public-key", keys.public, "--known-seal", "7"), "expected a number and a SHA-256"),
    ):
        ended = run("verify", *given, *named)
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_in_a_bucket_with_versions_the_version_to_put_back_is_named(
    s3_server: S3Server, run: Run, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under Object Lock too a plain put hides the locked version; versions are compared without reading bytes."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"sealed-{uuid.uuid4().hex[:12]}"
    with closing(s3_server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        archive = MadeArchive(f"s3://{bucket}/base")
        check = Check(run, archive, keys)
        ship(archive, "t", 0, 30)
        seal(archive, keys)
        assert check() == check("--depth", "full") == []
        one, two = (archive.partition("t").segment(SegmentName(base)) for base in (0, 10))
        sealed = next(iter(archive.store.versions(one) or ()))
        data, info = archive.store.get(one)
        archive.store.put(one, data[:-1] + bytes([data[-1] ^ 1]), metadata=info.metadata)
        archive.store.delete([two])
        assert check() == [("overwritten", log(0)), ("sealed-missing", log(10))]
        assert any(f"put back version {sealed.id}" in each for each in check.details)
        (gone,) = [each for each in archive.store.versions(two) or () if not each.is_delete_marker]
        assert any(f"put back version {gone.id}" in each for each in check.details)
        with archive.store.open_version(sealed) as stream:
            archive.store.put(one, stream.read(1 << 20), metadata=stream.info.metadata)  # as docs/repair.md does
        archive.store.put(two, archive_bytes(archive, gone), metadata=info.metadata)
        assert check() == []  # another version with the same bytes
        client.delete_object(Bucket=bucket, Key=f"base/{one}", VersionId=sealed.id)
        archive.store.put(one, b"forged", metadata=info.metadata)
        assert check() == [("overwritten", log(0))]
        assert any("does not list the sealed version" in each for each in check.details)
        archive.store.close()


def archive_bytes(archive: MadeArchive, version: Any) -> bytes:
    with archive.store.open_version(version) as stream:
        found: bytes = stream.read(1 << 20)
    return found
