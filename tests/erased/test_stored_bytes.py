"""The canary: a random text as the person, in everything that an archive stores, until no stored byte has it."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from dev.local.stores.s3 import S3Server
from tests.erased.canary import FEW, GONE, Canary, canary, log_of
from tests.erased.stored_bytes import Stored, versions_with
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry, live
from tests.tsctl.erase.killing import not_held
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.running import runner
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader import Archive
from ts_reader.find.building import build
from ts_reader.find.keeping import keep
from tsctl.erase.index_versions import remaining_index_versions
from tsctl.erase.key_indexes import remaining_in_key_indexes
from tsctl.erase.live_tails import remaining_in_tails, remaining_tail_versions
from tsctl.erase.remains import Remains
from tsctl.erase.versions import remaining_versions

NOW = -1.0  # a grace that is over
EPOCHS = ((0, 0), (1, 200))
AT_220 = frozenset({225})
log = partial(log_of, others=FEW)


class Later(WrappedStore):
    """Two days later."""

    def current_time(self) -> float:
        return self._inner.current_time() + 2 * 86_400


def index(person: Canary, store: ObjectStore) -> None:
    """Do what `tsctl find index` does."""
    keep(store, [read_snapshot(store, person.keys)], lambda *given: build(store, *given[:2], most_share=100))


def made_everywhere(made: MadeArchive) -> tuple[Canary, MadeTail]:
    """Return an archive with the person in segments, a variant, a dead tail, a repair, an index and a live tail."""
    person = canary(made, others=FEW)
    put_agent(made)
    store, keys = made.store, person.keys
    made.put_segment("t", 40, log(person.person, 40, 140), variant=True)
    made.put_segment("t", 190, log(person.person, 190, 230, {*GONE, 215}))  # dead from 200 on
    made.put_segment("t", 200, batches(*steps(200, 220), epoch=1))
    body, info = store.get(keys.segment(SegmentName(0)))
    person.put_repair(body, SegmentName(0))
    store.put(keys.segment(SegmentName(0)), body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    made.commit("t", 220, epochs=EPOCHS, highest_base=200, live=live((1, 220)))
    index(person, store)
    tail = MadeTail(made)
    tail.put(entry(made, "t", 220, log(person.person, 220, 240, AT_220, epoch=1), epoch=1))
    return person, tail


def close_segments(person: Canary, tail: MadeTail) -> None:
    """Do what agents do later: segments have what the tail had, and its pack is deleted."""
    made = person.archive
    made.put_segment("t", 220, log(person.person, 220, 240, AT_220, epoch=1))
    made.put_segment("t", 240, batches(*steps(240, 260), epoch=1))
    made.commit("t", 260, epochs=EPOCHS, highest_base=240, log_start=None)
    made.store.delete([tail.newest])


def remains(person: Canary) -> list[Remains]:
    """Return what is stored of the list, without current copies."""
    store, keys, cluster = person.archive.store, person.keys, person.archive.keys
    protection, erased = store.protection(), read_snapshot(store, keys).read_erased(store)
    return [
        *remaining_in_tails(store, cluster, {keys.directory: erased}),
        *remaining_in_key_indexes(store, [keys]),
        *remaining_versions(store, keys, protection=protection, grace=NOW, held=not_held),
        *remaining_index_versions(store, cluster, keys.incarnation, protection=protection),
        *remaining_tail_versions(store, cluster, 1e12, protection=protection),
    ]


def rooms(found: Sequence[Stored]) -> set[str]:
    """Return where versions are: the directory of a partition, of a tail, or of an index."""
    return {next(name for name in ("tail", "find", "t-0") if f"/{name}/" in each.key) for each in found}


def test_x03_no_version_of_any_object_has_the_person_at_the_end(
    versioned: MadeArchive, s3_server: S3Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each step leaves the person where the next one looks, and the search finds it there."""
    person, tail = made_everywhere(versioned)
    store, run = versioned.store, runner(capfd)
    bucket = versioned.location.removeprefix("s3://").removesuffix("/base")

    known = dict[tuple[str, str], bool]()

    def found() -> list[Stored]:
        with closing(s3_server.client()) as client:
            return versions_with(client, bucket, person.person, known)

    before = found()
    current = [each for each in before if each.is_current]
    assert rooms(before) == rooms(current) == {"tail", "find", "t-0"}
    assert len([each for each in current if each.key.endswith(".log")]) == 5
    path = tmp_path / "keys"
    path.write_bytes(person.person)
    terms = ("--topic", "t", "--reference", "letter 1", "--due", "2090-01-31", "--key-file", path)
    added = run("erase", "add", "case", *terms, *named(versioned))
    assert (added.code, "00000000000000000000.log" in added.err) == (1, True)  # it is damaged
    shown = pa.table(Archive(versioned.location, CLUSTER).scan("t", include_headers=True))
    assert shown.num_rows == 240 - len(GONE) - len(AT_220)
    assert person.person not in str(shown.to_pylist()).encode()
    assert found() == before

    close_segments(person, tail)
    for _ in range(2):
        run("erase", "run", "--grace", "0s", *named(versioned))
    index(person, store)
    index(person, Later(store, threads=1))
    left = found()
    assert not [each for each in left if each.is_current]
    assert rooms(left) == {"tail", "find", "t-0"}
    of_segments = [f"{each.key.removeprefix('base/')}, version {each.version}" for each in left if "/t-0/" in each.key]
    others = [versioned.keys.find("t"), versioned.keys.tail("1")]
    assert sorted(each.where for each in remains(person)) == sorted([*of_segments, *others])

    gone = run("erase", "versions", "--grace", "0s", "--json", *named(versioned))
    assert (gone.code, {each["did"] for each in gone.document["versions"]}) == (0, {"removed"})
    evidence = [store.get(info.key)[0] for info in store.list(versioned.keys.erasures)]
    assert all(any(each.version.encode() in data for data in evidence) for each in left if "/t-0/" in each.key)
    left = found()
    assert rooms(left) == {"tail"}
    with closing(s3_server.client()) as client:
        for each in left:  # as the rule of the bucket does a day later
            client.delete_object(Bucket=bucket, Key=each.key, VersionId=each.version)
    assert found() == []
    assert remains(person) == []
    again = pa.table(Archive(versioned.location, CLUSTER).scan("t", include_headers=True))
    assert again.slice(0, shown.num_rows).equals(shown)
    assert again.num_rows == 260 - len(GONE) - len(AT_220)
