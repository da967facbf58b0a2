"""Earlier versions with erased records: which are named, which are deleted, and what keeps one."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.s3 import S3Server
from tests.erased.canary import GONE, Canary, canary
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, plain, ship
from tests.tsctl.erase.keeping import PLACES, copied, keeping_archive
from tests.tsctl.erase.killing import not_held, not_locked, shown
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.running import runner
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.erasures import ErasedPartition
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectStore, ObjectVersion
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.erased_copies import Did, Held, Outcome
from tsctl.erase.index_versions import remaining_index_versions, remove_index_versions
from tsctl.erase.live_tails import remaining_tail_versions
from tsctl.erase.remains import Remains, Surface
from tsctl.erase.removing import remove_replaced
from tsctl.erase.replacing import replace_copies
from tsctl.erase.versions import remaining_versions, remove_versions
from tsctl.gc.retention import LeftOut

FIRST, SECOND = SegmentName(0), SegmentName(100)
NOW, HOUR = -1.0, 3600.0  # a grace that is over, and one that is not
UNTIL = datetime(2100, 1, 1, tzinfo=UTC)


def rewritten(made: MadeArchive) -> Canary:
    """Return an archive whose segments with the person were rewritten and removed: they are earlier versions now."""
    person = canary(made)
    made.put_segment("t", 200, batches(*steps(200, 220)))
    made.commit("t", 220, highest_base=200)
    person.erase()
    rewrite_and_remove(person)
    return person


def rewrite_and_remove(person: Canary) -> None:
    store, keys = person.archive.store, person.keys
    assert [*replace_copies(store, keys, held=not_held, locked=not_locked)]
    assert [*remove_replaced(store, keys, grace=NOW, held=not_held, locked=not_locked)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Canary:
    return rewritten(keeping_archive(tmp_path_factory.mktemp("original") / "bucket"))


@pytest.fixture(params=PLACES)
def person(request: pytest.FixtureRequest, tmp_path: Path) -> Canary:
    if request.param == "server":
        return rewritten(request.getfixturevalue("versioned"))
    found: Canary = request.getfixturevalue("original")
    return replace(found, archive=copied(found.archive, tmp_path / "bucket"))


on_server = pytest.mark.parametrize("person", ["server"], indirect=True)


def remaining(person: Canary, grace: float = NOW, *, held: Held = not_held) -> list[Remains]:
    store = person.archive.store
    return [*remaining_versions(store, person.keys, protection=store.protection(), grace=grace, held=held)]


def remove(
    person: Canary, grace: float = NOW, *, store: ObjectStore | None = None, held: Held = not_held
) -> list[Outcome]:
    store = store or person.archive.store
    return [*remove_versions(store, person.keys, protection=store.protection(), grace=grace, held=held)]


def reasons(outcomes: Sequence[Outcome]) -> list[tuple[Did, str]]:
    return [(each.did, each.reason) for each in outcomes]


def earlier(person: Canary, name: SegmentName) -> list[ObjectVersion]:
    """Return the versions of a `.log` that are not current, the newest first."""
    listed = person.archive.store.versions(person.keys.segment(name)) or ()
    return [each for each in listed if not each.is_latest and not each.is_delete_marker]


def content(person: Canary, version: ObjectVersion) -> bytes:
    with person.archive.store.open_version(version) as stream:
        return stream.read(version.info.size + 1)


def put_again(person: Canary, version: ObjectVersion) -> None:
    """Put a version as an agent ships it again."""
    with person.archive.store.open_version(version) as stream:
        metadata = dict(stream.info.metadata)
    person.archive.store.put(version.info.key, content(person, version), metadata=metadata)


def at_last_look(act: Callable[[], None]) -> Held:
    """Return a look for holds that acts when both versions were compared, just before the first deletion."""
    calls = iter(range(9))

    def held() -> str | None:
        if next(calls) == 2:
            act()
        return None

    return held


@on_server
def test_versions_with_the_person_are_deleted_by_their_ids_after_their_grace(person: Canary) -> None:
    """It begins when a delete marker replaced the version, by the store's clock; until then readers see the same."""
    before = shown(person.archive)
    assert reasons(remove(person, HOUR)) == [(Did.WAITS, "a repair can still need it")] * 2
    first, _ = remaining(person, HOUR)
    replaced = max(each.info.modified for each in person.archive.store.versions(person.keys.segment(FIRST)) or ())
    assert (first.reason, first.until) == ("a repair can still need it", int((replaced + HOUR) * 1000))
    versions = [*earlier(person, FIRST), *earlier(person, SECOND)]
    assert [(each.surface, each.where, each.reason, each.until) for each in remaining(person)] == [
        (Surface.VERSION, f"{each.info.key}, version {each.id}", "tsctl erase versions deletes it", None)
        for each in versions
    ]
    hashes = [hashlib.sha256(content(person, each)).hexdigest() for each in versions]
    outcomes = remove(person)
    assert [(each.did, each.key, each.version, each.before) for each in outcomes] == [
        (Did.REMOVED, each.info.key, each.id, digest) for each, digest in zip(versions, hashes, strict=True)
    ]
    assert sum(each.records for each in outcomes) == len(GONE)
    assert not [*earlier(person, FIRST), *earlier(person, SECOND)]
    assert (remaining(person), remove(person)) == ([], [])
    assert shown(person.archive) == before


def test_x01_a_version_with_the_only_copy_of_other_records_stays(person: Canary) -> None:
    """The rewritten copy of the first segment is lost; a repair needs the version."""
    store = person.archive.store
    (made,) = (info.key for info in store.list(person.keys.prefix + FIRST.stem) if info.key.endswith(".log"))
    body, info = store.get(made)
    store.delete([made])
    first, second = remove(person)
    assert (first.did, second.did) == (Did.HIDDEN, Did.REMOVED)
    assert first.reason == "no object has its records from offset 0 on: it is their only copy"
    assert len(earlier(person, FIRST)) == 1
    store.put(made, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    (damaged,) = remove(person)
    assert damaged.did is Did.HIDDEN
    assert damaged.reason.startswith(f"{made}: it is damaged (CRC-32C")
    store.put(made, body, metadata=dict(info.metadata))
    assert {each.did for each in remove(person)} == {Did.REMOVED}  # and the damaged one, which is a version by now


def test_a_version_with_other_records_than_the_copies_stays(person: Canary) -> None:
    """Its coverage alone proves nothing: another process put other bytes under the free name."""
    person.archive.put_segment("t", 0, batches(*steps(0, 100)))
    person.archive.store.delete([person.keys.segment(FIRST)])
    other, original, second = remove(person)
    assert reasons([other]) == [(Did.HIDDEN, "no object has its records from offset 0 on: it is their only copy")]
    assert {original.did, second.did} == {Did.REMOVED}
    assert [each.id for each in earlier(person, FIRST)] == [other.version]


def test_a_current_object_with_records_of_the_list_keeps_its_earlier_versions(person: Canary) -> None:
    """Shipped again, it is rewritten first; it is never deleted itself."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    store.delete([info.key for info in store.list(person.keys.prefix + FIRST.stem)])
    (version,) = earlier(person, FIRST)
    put_again(person, version)
    first, second = remove(person)
    assert reasons([first, second]) == [
        (Did.WAITS, f"{key}: rewrite it; it has records of the list"),
        (Did.REMOVED, ""),
    ]
    assert store.head(key).size == version.info.size
    assert [each.where for each in remaining(person)] == [f"{key}, version {version.id}"]
    rewrite_and_remove(person)
    assert [each.did for each in remove(person)] == [Did.REMOVED] * 2
    assert remaining(person) == []


def test_a_hold_keeps_versions(person: Canary) -> None:
    """A hold that is set between the comparison and the deletion too."""
    assert reasons(remove(person, held=lambda: "hold case-17")) == [(Did.WAITS, "hold case-17")] * 2
    assert {each.reason for each in remaining(person, held=lambda: "hold case-17")} == {"hold case-17"}
    answers = iter([None, None, "hold case-17"])
    with pytest.raises(LeftOut, match="hold case-17"):
        remove(person, held=lambda: next(answers))
    assert len([*earlier(person, FIRST), *earlier(person, SECOND)]) == 2


@pytest.mark.parametrize("versioned", ["locks"], indirect=True)
def test_a_lock_keeps_a_version_and_is_named_with_its_end(versioned: MadeArchive, s3_server: S3Server) -> None:
    """A retention has an end, a legal hold has none; a lock that has ended keeps nothing."""
    person = rewritten(versioned)
    store, bucket = versioned.store, versioned.location.removeprefix("s3://").removesuffix("/base")
    (first,), (second,) = earlier(person, FIRST), earlier(person, SECOND)
    with closing(s3_server.client()) as client:
        named: list[Any] = [
            {"Bucket": bucket, "Key": f"base/{each.info.key}", "VersionId": each.id} for each in (first, second)
        ]
        client.put_object_retention(**named[0], Retention={"Mode": "GOVERNANCE", "RetainUntilDate": UNTIL})
        client.put_object_legal_hold(**named[1], LegalHold={"Status": "ON"})
        until = "retained until 2100-01-01 00:00:00 UTC (GOVERNANCE)"
        assert reasons(remove(person)) == [(Did.WAITS, until), (Did.WAITS, "legal hold")]
        assert [(each.reason, each.until) for each in remaining(person)] == [
            (until, int(UNTIL.timestamp() * 1000)),
            ("legal hold", None),
        ]
        client.put_object_legal_hold(**named[1], LegalHold={"Status": "OFF"})
    assert [each.did for each in remove(person)] == [Did.WAITS, Did.REMOVED]
    assert store.version_lock(first) is not None


@on_server
def test_x01_a_version_that_readers_find_again_stays(person: Canary, s3_server: S3Server) -> None:
    """An operator removes the delete marker while the run compares: it is the current version then."""
    key, bucket = person.keys.segment(FIRST), person.archive.location.removeprefix("s3://").removesuffix("/base")
    (marker,) = (each for each in person.archive.store.versions(key) or () if each.is_delete_marker)

    def remove_marker() -> None:
        with closing(s3_server.client()) as client:
            client.delete_object(Bucket=bucket, Key=f"base/{key}", VersionId=marker.id)

    first, second = remove(person, held=at_last_look(remove_marker))
    assert (first.did, second.did) == (Did.WAITS, Did.REMOVED)
    assert first.reason.startswith("readers find it again")
    assert person.archive.store.head(key).size
    assert remaining(person) == []


def test_x01_a_partition_whose_commit_goes_back_meanwhile_keeps_its_versions(person: Canary) -> None:
    """A copy that stays and is written again ends it too: neither is what was compared."""
    store, keys = person.archive.store, person.keys
    commit, _ = read_commit(store, keys)
    assert isinstance(commit, Commit)

    (made,) = (info.key for info in store.list(keys.prefix + FIRST.stem) if info.key.endswith(".log"))
    body, info = store.get(made)

    def write_copy() -> None:
        store.put(made, body + b"\0", metadata=dict(info.metadata))

    def go_back() -> None:
        store.put(made, body, metadata=dict(info.metadata))
        store.put(keys.commit, replace(commit, lineage=Lineage(1, 50, 220)).encode())

    for write, said in ((write_copy, "written again meanwhile"), (go_back, "went back meanwhile")):
        with pytest.raises(LeftOut, match=said):
            remove(person, held=at_last_look(write))
        store.put(made, body, metadata=dict(info.metadata))
    assert len([*earlier(person, FIRST), *earlier(person, SECOND)]) == 2


def test_x05_a_request_does_not_wait_for_versions_with_records_of_a_later_one(person: Canary) -> None:
    """A list has all requests; a version that begins at a request's END or above has none of its records."""
    first, second = remaining(person)
    requests = [[ErasedPartition("t-0", end, end, 1, 1)] for end in (100, 101)]
    assert [[each.concerns(request) for request in requests] for each in (first, second)] == [
        [True, True],
        [False, True],
    ]


def test_a_java_uploaders_partition_keeps_its_versions(person: Canary) -> None:
    """It writes over segments without a condition; what remains is an error too, and not nothing."""
    person.archive.store.put(person.keys.commit, b"%020d" % 100)
    for step in (remove, remaining):
        with pytest.raises(LeftOut, match="is not of an agent"):
            step(person)


def test_what_retention_has_released_needs_no_copy(person: Canary) -> None:
    """By the copy of `log.start`: an agent can write the other one, and with it declare a version released."""
    store, keys = person.archive.store, person.keys
    store.delete([info.key for info in store.list(keys.prefix + FIRST.stem)])
    start = LogStart(100, floor=100, erased=1, written_by="gc-1")
    store.put(keys.log_start, start.encode())
    assert [each.did for each in remove(person)] == [Did.HIDDEN, Did.REMOVED]
    copy = keys.cluster.log_start_copy(keys)
    for floor, did in ((57, [Did.HIDDEN]), (100, [Did.REMOVED])):
        store.put(copy, replace(start, floor=floor).encode())
        assert [each.did for each in remove(person)] == did


def test_a_version_that_cannot_be_read_may_have_records(person: Canary) -> None:
    """The copies have all of its offsets, and its records up to the damage."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    (version,) = earlier(person, FIRST)
    put_again(person, version)
    body, info = store.get(key)
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    store.put(key, b"garbage", metadata={})
    store.delete([key])
    garbage, *others = remove(person)
    assert garbage.did is Did.HIDDEN
    assert garbage.reason.startswith("its offsets are unknown, so no copy can be compared")
    assert [each.did for each in others] == [Did.REMOVED] * 4
    assert [each.before != "" for each in others] == [False, True, True, True]


def test_a_version_without_records_of_the_list_stays(person: Canary) -> None:
    """One outside of the listed offsets, one of a higher epoch, and one that an eraser put."""
    made, store = person.archive, person.archive.store
    copies = [info.key for info in store.list(person.keys.prefix) if ".e" in info.key and info.key.endswith(".log")]
    bodies = [(key, *store.get(key)) for key in copies]
    for key, body, info in bodies:
        store.put(key, body, metadata=dict(info.metadata))
    made.put_segment("t", 200, batches(*steps(200, 220)))
    made.put_segment("t", 50, batches((50, 60), epoch=3))
    store.delete([person.keys.segment(SegmentName(50))])
    assert len(remaining(person)) == len(remove(person)) == 2
    assert [len(earlier(person, SegmentName(base))) for base in (50, 200)] == [1, 1]


class Counting(WrappedStore):
    """Counts listings of versions."""

    listings = 0

    def versions(self, prefix: str) -> None:
        self.listings += 1


def test_a_store_without_versions_gets_no_request(tmp_path: Path) -> None:
    """And one that keeps what is deleted, but does not list it, leaves doubt."""
    person = rewritten(MadeArchive(tmp_path / "bucket"))
    store = Counting(person.archive.store, threads=1)
    protection = store.protection()
    assert not protection.versioned
    assert [*remove_versions(store, person.keys, protection=protection, grace=NOW, held=not_held)] == []
    assert [*remaining_versions(store, person.keys, protection=protection, grace=NOW, held=not_held)] == []
    assert store.listings == 0
    keeping = replace(protection, versioned=True)
    (unlisted,) = remaining_tail_versions(store, person.archive.keys, 1e12, protection=keeping)
    assert unlisted.where == person.archive.keys.tails
    (doubt,) = remaining_versions(store, person.keys, protection=keeping, grace=NOW, held=not_held)
    (outcome,) = remove_versions(store, person.keys, protection=keeping, grace=NOW, held=not_held)
    assert doubt.reason == outcome.reason
    assert "cannot list it" in doubt.reason
    assert store.listings == 3


class Denied(WrappedStore):
    """May list no versions."""

    def versions(self, prefix: str) -> None:
        raise AccessDenied("allow this identity s3:ListBucketVersions")


def test_versions_that_an_identity_may_not_list_count_as_remaining(person: Canary) -> None:
    """Nothing is erased by not looking."""
    store = Denied(person.archive.store, threads=1)
    protection = store.protection()
    found = [*remaining_versions(store, person.keys, protection=protection, grace=NOW, held=not_held)]
    found += remaining_index_versions(store, person.archive.keys, "t", protection=protection)
    assert ["allow this identity s3:ListBucketVersions" in each.reason for each in found] == [True, True]
    with pytest.raises(AccessDenied):
        remove(person, store=store)


def test_earlier_versions_of_an_index_of_keys_are_deleted(versioned: MadeArchive) -> None:
    """Current objects stay, and those of another topic."""
    store, keys = versioned.store, versioned.keys
    protection = store.protection()
    old, new, other = (keys.find(name) for name in ("t", "t", "t~a"))
    for key in (f"{old}1/00.parquet", f"{old}1/objects.parquet", f"{new}2/00.parquet", f"{other}1/00.parquet"):
        store.put(key, b"hashes")
    store.delete([f"{old}1/00.parquet", f"{old}1/objects.parquet", f"{other}1/00.parquet"])
    (found,) = remaining_index_versions(store, keys, "t", protection=protection)
    assert (found.surface, found.where, found.until) == (Surface.VERSION, keys.find("t"), None)
    assert found.reason == "2 versions with hashes of keys: tsctl erase versions deletes it"
    outcomes = [*remove_index_versions(store, keys, "t", protection=protection)]
    assert [(each.did, each.key) for each in outcomes] == [
        (Did.REMOVED, f"{old}1/00.parquet"),
        (Did.REMOVED, f"{old}1/objects.parquet"),
    ]
    assert [*remaining_index_versions(store, keys, "t", protection=protection)] == []
    assert store.get(f"{new}2/00.parquet")[0] == b"hashes"
    assert len([*remaining_index_versions(store, keys, "t~a", protection=protection)]) == 1


def test_earlier_versions_of_packs_remain_until_a_rule_removes_them(versioned: MadeArchive) -> None:
    """Those from before the commits had passed the offsets; later packs have none of them."""
    store, keys = versioned.store, versioned.keys
    protection = store.protection()
    ship(versioned)
    tails = [MadeTail(versioned, log) for log in ("1", "2.pii")]
    for tail in tails:
        tail.put(plain(versioned, (100, 110)))
    assert [*remaining_tail_versions(store, keys, 1e12, protection=protection)] == []
    store.delete([tails[0].newest])
    (found,) = remaining_tail_versions(store, keys, 1e12, protection=protection)
    assert (found.surface, found.where) == (Surface.VERSION, keys.tail("1"))
    assert found.reason.startswith("1 earlier version of its packs")
    written = min(each.info.modified for each in store.versions(keys.tails) or ())
    assert [*remaining_tail_versions(store, keys, written, protection=protection)] == []


def test_the_command_deletes_in_the_partitions_of_requests(
    versioned: MadeArchive, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A dry run deletes nothing; a version that is the only copy of other records is a finding."""
    run, store = runner(capfd), versioned.store
    person = canary(versioned)
    put_agent(versioned)
    versioned.put_segment("t", 200, batches(*steps(200, 220)))
    versioned.commit("t", 220, highest_base=200)
    place, keys = named(versioned), tmp_path / "keys"
    keys.write_bytes(person.person)
    terms = ("--topic", "t", "--reference", "letter 1", "--due", "2090-01-31", "--key-file", keys)
    assert run("erase", "add", "case", *terms, *place).code == 0
    assert "no versions with erased records" in run("erase", "versions", *place).out
    rewrite_and_remove(person)
    versions = [each.id for name in (FIRST, SECOND) for each in earlier(person, name)]
    waiting = run("erase", "versions", *place)
    assert (waiting.code, "a repair can still need it" in waiting.out) == (0, True)
    planned = run("erase", "versions", "--grace", "0s", "--dry-run", "--json", *place)
    assert [(each["did"], each["version"]) for each in planned.document["versions"]] == [
        ("to remove", each) for each in versions
    ]
    (made,) = (info.key for info in store.list(person.keys.prefix + FIRST.stem) if info.key.endswith(".log"))
    store.delete([made])
    found = run("erase", "versions", "--grace", "0s", "--json", *place)
    assert (found.code, [each["did"] for each in found.document["versions"]]) == (1, ["hidden only", "removed"])
    lines = [
        json.loads(line)
        for info in store.list(versioned.keys.erasures + "case.run-")
        for line in store.get(info.key)[0].splitlines()
    ]
    noted = [(each["did"], each["version_id"]) for each in lines if "version_id" in each]
    assert noted == [("removing version", versions[1]), ("removed version", versions[1])]


def test_a_bucket_without_versions_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is listed there."""
    made = rewritten(MadeArchive(tmp_path / "bucket")).archive
    assert "the bucket keeps no versions" in runner(capfd)("erase", "versions", *named(made)).out
