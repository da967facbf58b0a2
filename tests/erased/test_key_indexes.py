"""The hash of the person's key in indexes that were built before the list."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time

import pyarrow.parquet as pq
import pytest

from tests.erased.canary import FEW, GONE, STAY, Canary, canary, log_of
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.object_keys import PartitionKeys
from ts_reader import Archive
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.building import Built, Lacking, build
from ts_reader.find.keeping import Kept, keep
from ts_reader.find.lookup import read_runs
from tsctl.erase.key_indexes import remaining_in_key_indexes
from tsctl.erase.remains import Surface

DAY = 86_400


def kept(person: Canary) -> Kept:
    """Do what `tsctl find index` does."""
    store = person.archive.store

    def add(prefix: str, copies: Sequence[Lacking], commits: Mapping[str, str]) -> Built:
        return build(store, prefix, copies, most_share=100, commits=commits)

    return keep(store, [read_snapshot(store, person.keys)], add)


def has_hash(person: Canary, keys: PartitionKeys) -> bool:
    """Return whether a file of an index has the hash of the person's key, by its plain Parquet."""
    store, place = person.archive.store, hashed(person.person).place
    listed = [info.key for info in store.list(keys.cluster.find(keys.incarnation))]
    files = [key for key in listed if not key.endswith("/objects.parquet")]
    return any(place in pq.read_table(io.BytesIO(store.get(key)[0]))["h"].to_pylist() for key in files)


def found(person: Canary, key: bytes) -> list[int]:
    """Return the offsets of a key's records."""
    archive = Archive(person.archive.location, "prod")
    return archive.scan("t", key_equals=key).to_table()["offset"].to_pylist()  # type: ignore[no-any-return]


def test_a_run_from_before_the_list_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request stays open until the old run is removed, a grace later; other keys stay indexed, and once."""
    person = canary(tmp_path / "archive", others=FEW)
    store, keys = person.archive.store, person.keys
    assert kept(person).built.objects == 2
    assert has_hash(person, keys)
    person.erase()
    (before,) = remaining_in_key_indexes(store, [keys])
    (old,) = read_runs(store, keys.cluster, keys.incarnation)
    assert (before.surface, before.where, before.until) == (Surface.KEY_INDEX, old.prefix, None)
    assert "for an older incarnation with --incarnation" in before.reason  # the command visits the newest only
    done = kept(person)
    assert (done.built.objects, done.merged, done.removed, done.warnings) == (2, 1, 0, ())
    (waiting,) = remaining_in_key_indexes(store, [keys])
    assert waiting.where == old.prefix
    assert waiting.until is not None
    assert time() + DAY / 2 < waiting.until / 1000 < time() + 2 * DAY
    monkeypatch.setattr(type(store), "current_time", lambda _: time() + 2 * DAY)
    assert kept(person).built.objects == 0
    assert list(remaining_in_key_indexes(store, [keys])) == []
    assert not has_hash(person, keys)
    assert found(person, person.person) == []
    assert found(person, b"other-00003") == [offset for offset in STAY if offset % FEW == 3]


def test_a_later_list_reads_only_the_segments_that_it_is_about(tmp_path: Path) -> None:
    """An index that was built with a list has no hash of it, and stays as it is."""
    person = canary(tmp_path / "archive", others=FEW)
    person.erase()
    kept(person)
    assert not has_hash(person, person.keys)
    assert list(remaining_in_key_indexes(person.archive.store, [person.keys])) == []
    person.archive.put_segment("t", 200, log_of(person.person, 200, 220, {205}, others=FEW))
    person.archive.commit("t", 220, highest_base=200, log_start=None)
    kept(person)
    person.erase({*GONE, 205}, number=2)
    assert [each.until for each in remaining_in_key_indexes(person.archive.store, [person.keys])] == [None, None]
    assert kept(person).built.objects == 3


def test_a_run_that_is_not_finished_counts(tmp_path: Path) -> None:
    """What a killed build left can have any key; without a list that does not matter."""
    person = canary(tmp_path / "archive")
    prefix = person.keys.cluster.find(person.keys.incarnation)
    person.archive.store.put(f"{prefix}20261130-0000000a/00.parquet", b"x")
    assert list(remaining_in_key_indexes(person.archive.store, [person.keys])) == []
    person.erase()
    (left,) = remaining_in_key_indexes(person.archive.store, [person.keys])
    assert left.where == f"{prefix}20261130-0000000a/"
    assert left.until is not None
