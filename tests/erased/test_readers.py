"""The person's records on each surface of the Python reader."""

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.erased.canary import END, GONE, STAY, Canary, canary, log_of, put_erased, restored_canary
from tests.made_archive import CLUSTER
from tests.made_tail import MadeTail, entry
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_list import erased_key
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.view import open_view
from ts_common.errors import NewerFormat
from ts_common.store.contract import ObjectStore
from ts_reader import Archive
from ts_reader.reading.first_offset import first_offset_at, search_for, tolerant_search


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """Return an archive before anything is erased."""
    return canary(tmp_path / "archive")


def table(person: Canary, **options: Any) -> pa.Table:
    return pa.table(Archive(person.archive.location, CLUSTER).scan("t", **options))


def offsets(person: Canary, **options: Any) -> list[int]:
    found: list[int] = table(person, **options)["offset"].to_pylist()
    return found


def test_a_scan_hides_the_person_from_the_put_of_the_list_on(person: Canary) -> None:
    """Before the list each record is shown; the list alone suffices, and `log.start` follows."""
    assert offsets(person) == [*range(END)]
    assert person.person in str(table(person).to_pylist()).encode()
    put_erased(person.archive.store, person.keys, ((each, each + 1, 0) for each in GONE), names=False)
    assert offsets(person) == STAY
    person.erase()
    found = table(person, include_headers=True)
    assert found["offset"].to_pylist() == STAY
    assert person.person not in str(found.to_pylist()).encode()


def test_no_buffer_of_a_scan_has_the_persons_bytes(person: Canary) -> None:
    """A hidden record is never copied into a column, so an engine cannot read it behind the rows."""
    person.erase()
    found = table(person)
    for column in found.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                assert buffer is None or person.person not in buffer.to_pybytes()


def test_an_engine_counts_and_finds_nothing(person: Canary) -> None:
    """DuckDB over the dataset, a count without rows, a search by key, and batches of a few rows."""
    person.erase()
    dataset = Archive(person.archive.location, CLUSTER).scan("t").dataset()
    with duckdb.connect() as connection:
        found = connection.execute('select "offset" from dataset order by 1').fetchall()
        counted = connection.execute("select count(*) from dataset").fetchall()
    assert [each for (each,) in found] == STAY
    assert dataset.count_rows() == len(STAY)
    assert counted == [(len(STAY),)]
    assert offsets(person, key_equals=person.person) == []


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
def test_each_mode_hides_the_person(person: Canary, mode: str) -> None:
    """Tolerant readers read stretch by stretch."""
    person.erase()
    assert offsets(person, mode=mode) == STAY


def test_a_damaged_place_shows_no_bytes_of_the_person(person: Canary) -> None:
    """A damaged batch is a row with raw bytes, unless its segment has an erased record."""
    place = person.keys.segment(SegmentName(0))
    data, info = person.archive.store.get(place)
    broken = bytearray(data)
    broken[600] ^= 1
    person.archive.store.put(place, bytes(broken), metadata=dict(info.metadata))
    (raw,) = [each for each in table(person, mode="PERMISSIVE")["_corrupt_record"].to_pylist() if each is not None]
    assert raw
    person.erase()
    found = table(person, mode="PERMISSIVE")
    (raw,) = [each for each in found["_corrupt_record"].to_pylist() if each is not None]
    assert raw == b""
    assert person.person not in str(found.to_pylist()).encode()
    assert not GONE.intersection(offsets(person, mode="DROPMALFORMED"))


def test_the_newest_record_of_a_key_is_not_an_erased_one(person: Canary) -> None:
    """The person has no newest record, and each other key its own."""
    assert person.person in table(person, view="latest")["key"].to_pylist()
    person.erase()
    found = table(person, view="latest")
    assert person.person not in found["key"].to_pylist()
    assert sorted(found["offset"].to_pylist()) == STAY


def test_a_follower_hides_the_person_in_what_it_reads_later(person: Canary) -> None:
    """A new commit and a new list are seen together."""
    person.erase()
    scan = Archive(person.archive.location, CLUSTER).scan("t")
    with closing(scan.follow()) as steps:
        first = next(steps)
    assert first.to_table()["offset"].to_pylist() == STAY
    gone = {205, 209}
    person.archive.put_segment("t", 200, log_of(person.person, 200, 220, gone))
    person.erase(GONE | gone, number=2)
    person.archive.commit("t", 220, highest_base=200, log_start=None)
    with closing(scan.follow(position=first.position)) as steps:
        second = next(steps)
    assert second.to_table()["offset"].to_pylist() == [each for each in range(200, 220) if each not in gone]


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_time_leads_to_a_record_that_is_shown(person: Canary, *, tolerant: bool) -> None:
    """The record at the timestamp is erased, so the next one is the first; without a later one no record is found."""
    person.erase()
    store = person.archive.store
    view = open_view(store, read_catalog(store, person.keys))
    for offset in (0, 13, 110, 198, 199):
        search = (
            tolerant_search(store, view, 1000 + offset)
            if tolerant
            else search_for(store, 1000 + offset, erased=view.erased)
        )
        assert first_offset_at(view, search) == next((each for each in STAY if each >= offset), None)


def test_an_election_shows_the_new_record_at_the_offset(person: Canary) -> None:
    """An entry has the epoch of its record's batch; a batch of a later leader is another record."""
    person.erase()
    person.archive.put_segment("t", 100, log_of(person.person, 100, 200, (), epoch=4), variant=True)
    person.archive.commit("t", END, epochs=((0, 0), (4, 100)), highest_base=100, log_start=None)
    found = table(person)
    assert found["offset"].to_pylist() == [each for each in range(END) if each not in GONE or each >= 100]
    assert person.person not in str(found.to_pylist()).encode()


def test_a_rebuilt_commit_with_another_epoch_changes_nothing(person: Canary) -> None:
    """The epoch is that of the batch, not of the commit."""
    person.erase()
    person.archive.commit("t", END, epochs=((0, 0), (9, 200)), highest_base=100, log_start=None)
    assert offsets(person) == STAY


def test_a_lost_list_shows_no_record(person: Canary) -> None:
    """The reader fails, and a tolerant one returns none of the partition's records."""
    person.erase()
    person.archive.store.delete([erased_key(person.keys, 1)])
    with pytest.raises(Exception, match=r"erased/: 5 listings do not show list 1 or a later one"):
        offsets(person)


def test_a_list_of_a_later_release_is_refused(person: Canary) -> None:
    """The reader must be upgraded."""
    person.archive.store.put(erased_key(person.keys, 1), b"TSER\x02")
    with pytest.raises(NewerFormat, match=r"erased/1\.bin is written in version 2"):
        offsets(person)


def test_only_a_list_costs_a_request(person: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list no request is added; with one, the first view reads it and later ones do not."""
    store, opened = person.archive.store, list[str]()
    inner = type(store).open

    def noting(self: ObjectStore, key: str, *rest: Any) -> Any:
        opened.append(key)
        return inner(self, key, *rest)

    monkeypatch.setattr(type(store), "open", noting)

    def requests() -> list[str]:
        opened.clear()
        open_view(store, read_catalog(store, person.keys))
        return [key for key in opened if "/erased/" in key]

    assert requests() == []
    person.erase()
    assert requests() == [erased_key(person.keys, 1)]
    assert requests() == []


def test_a_restored_partition_obeys_the_list_of_each_directory(tmp_path: Path) -> None:
    """The former directory's list hides below the restore, and the own one from there on."""
    later = restored_canary(tmp_path / "archive").archive
    found = pa.table(Archive(later.location, "later").scan("t"))["offset"].to_pylist()
    assert found == [*STAY, *(each for each in range(END, 220) if each != 203)]


def test_an_erased_record_of_the_live_tail_is_hidden(person: Canary) -> None:
    """Offsets from the next offset on can be listed; a follower reads the tail's packs, and a scan all of it."""
    archive = person.archive
    live = Live("1", (), EpochHistory(((0, END),)))
    archive.commit("t", END, live=live, last_stable_offset=END, highest_base=100)
    tail = MadeTail(archive)
    gone = GONE | {207, 215}
    tail.put(entry(archive, "t", END, log_of(person.person, END, 210, gone)))
    person.erase(gone)
    expected = [*STAY, *(each for each in range(END, 210) if each not in gone)]
    assert offsets(person) == expected
    with closing(Archive(archive.location, CLUSTER).scan("t").follow(poll_seconds=0.01)) as steps:
        found = next(steps).to_table()["offset"].to_pylist()
        tail.put(entry(archive, "t", 210, log_of(person.person, 210, 220, gone)))
        found += next(steps).to_table()["offset"].to_pylist()
    assert found == [*expected, *(each for each in range(210, 220) if each not in gone)]
