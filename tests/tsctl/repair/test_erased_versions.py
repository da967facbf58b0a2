"""A repair in a partition with a list of erased offsets: no object that it puts has a listed record."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from dev.local.waiting import wait_for
from tests.common.log_format.build import message
from tests.erased.canary import END, GONE, STAY, Canary, canary, put_erased
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.tsctl.erase.keeping import PLACES, keeping_archive
from tests.tsctl.erase.killing import not_held, not_locked, values
from tests.tsctl.repair.versioned import versions_of
from tests.tsctl.running import Ended, Run
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import LogStart
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import Damage, Outcome, RepairAnswer, answer_key, unanswered
from ts_reader import Archive
from tsctl.erase.erased_copies import Did
from tsctl.erase.replacing import replace_copies
from tsctl.repair.from_versions import PutBack
from tsctl.repair.needs import Need

FIRST, SECOND, LAST = SegmentName(0), SegmentName(100), SegmentName(END)
HOLE = Need(0, 100, Damage.MISSING, None)


def made_at(place: str, request: pytest.FixtureRequest) -> MadeArchive:
    """Return an empty archive in a bucket with versions, or in a directory that keeps what is deleted."""
    if place == "server":
        return MadeArchive(request.getfixturevalue("bucket"))
    return keeping_archive(request.getfixturevalue("tmp_path") / "bucket")


on_server = pytest.mark.parametrize("person", ["server"], indirect=True)


@pytest.fixture(params=PLACES)
def person(request: pytest.FixtureRequest) -> Iterator[Canary]:
    """An archive whose two segments with the person are below the last one, and a list."""
    found = canary(made_at(request.param, request))
    with found.archive.store:
        found.archive.put_segment("t", END, batches(*steps(END, END + 20)))
        found.archive.commit("t", END + 20, highest_base=END)
        found.erase()
        yield found


def restore(person: Canary, need: Need, refused: list[str] | None = None) -> list[PutBack]:
    store = person.archive.store
    return versions_of(store, read_catalog(store, person.keys), refused).restore(need)


def repairs_of(ended: Ended) -> list[dict[str, Any]]:
    """Return the repairs of segments: the archive has no indexes."""
    return [each for each in ended.document["repairs"] if not str(each["object"]).endswith("index")]


def logs(person: Canary) -> list[str]:
    return [info.key for info in person.archive.store.list(person.keys.prefix) if info.key.endswith(".log")]


def assert_obeys(person: Canary, key: str) -> None:
    """Check that an object replaces the first segment, and lacks the person without a list too."""
    store = person.archive.store
    log, info = store.get(key)
    fields = info.metadata
    assert key == person.keys.segment(SegmentName(0, 0, int(fields["ts-crc32c"], 16)))
    assert (fields["ts-replaces"], fields["ts-erased"]) == (FIRST.stem, "1")
    assert person.person not in log
    assert not any(person.person in value for value in values(log))
    indexes = [each.key for each in store.list(key.removesuffix(".log"))]
    assert [each.rpartition(".")[2] for each in indexes] == ["index", "log", "timeindex"]
    store.delete([each.key for each in store.list(person.keys.erased)])
    store.put(person.keys.log_start, LogStart(0).encode())
    rows = pa.table(Archive(person.archive.location, CLUSTER).scan("t"))["offset"].to_pylist()
    assert [offset for offset in rows if offset < 100] == [offset for offset in STAY if offset < 100]


@on_server
def test_a_deleted_segment_is_put_back_without_its_erased_records(person: Canary, run: Run) -> None:
    """Under its own name only the bytes that had it may be. A second run finds nothing to repair."""
    person.archive.store.delete([person.keys.segment(FIRST)])
    before = {*logs(person)}
    place = "--url", person.archive.location, "--cluster", CLUSTER, "--depth", "full", "--wait", "0s", "--json"
    planned, repaired, again = (repairs_of(run("repair", *place, *each)) for each in (["--dry-run"], [], []))
    found = [(each["status"], each["from"], each["to"]) for each in (*planned, *repaired, *again)]
    assert found == [("planned", 0, 100), ("repaired", 0, 100)]
    assert ["without its erased records" in each["detail"] for each in (*planned, *repaired)] == [True, True]
    (key,) = {*logs(person)} - before
    assert repaired[0]["objects"] == [f"base/{key}"]
    assert_obeys(person, key)


def test_a_damaged_segment_is_replaced_without_its_erased_records(person: Canary) -> None:
    """The damaged object stays: a run of the eraser removes it later."""
    store, damaged = person.archive.store, person.keys.segment(FIRST)
    data, info = store.get(damaged)
    store.put(damaged, data[:-1] + bytes([data[-1] ^ 1]), metadata=dict(info.metadata))
    (put,) = restore(person, Need(0, 100, Damage.DAMAGED, damaged))
    assert (put.start, put.end, put.is_new, put.lacks_erased) == (0, 100, True, True)
    assert_obeys(person, put.key)


def test_a_rewritten_copy_is_put_back_as_it_was(person: Canary) -> None:
    """Its version is used, and no version of the segment that it replaced."""
    outcomes = [*replace_copies(person.archive.store, person.keys, held=not_held, locked=not_locked)]
    assert [each.did for each in outcomes] == [Did.REWRITTEN] * 2
    made = outcomes[0].made
    assert made is not None
    fields = dict(person.archive.store.head(made).metadata)
    person.archive.store.delete([person.keys.segment(FIRST), made])
    assert restore(person, HOLE) == [PutBack(made, 0, 100)]
    assert dict(person.archive.store.head(made).metadata) == fields
    assert person.keys.segment(FIRST) not in logs(person)


def test_a_later_list_counts_for_the_version_of_a_rewritten_copy(person: Canary) -> None:
    """That copy has a record which a later request erased: it is rewritten once more."""
    outcomes = [*replace_copies(person.archive.store, person.keys, held=not_held, locked=not_locked)]
    made = outcomes[0].made
    assert made is not None
    person.archive.store.delete([person.keys.segment(FIRST), made])
    put_erased(person.archive.store, person.keys, [(each, each + 1, 0) for each in {*GONE, 5}], 2)
    (put,) = restore(person, HOLE)
    fields = person.archive.store.head(put.key).metadata
    assert (put.lacks_erased, fields["ts-erased"], f"{person.keys.prefix}{fields['ts-replaces']}.log") == (
        True,
        "2",
        made,
    )
    assert not any(b"other-00005" in value for value in values(person.archive.store.get(put.key)[0]))


@on_server
def test_a_version_that_the_leader_compares_is_not_put(person: Canary, run: Run) -> None:
    """The range is requested from the leader's agent. The list hides what it ships, and the answer names that."""
    person.archive.commit("t", END, highest_base=100)
    person.archive.store.delete([person.keys.segment(SECOND)])
    before, cluster = logs(person), person.archive.keys

    def answer() -> None:
        wait_for(lambda: [*unanswered(person.archive.store, cluster)], "a request", 30)
        ((id_, _),) = unanswered(person.archive.store, cluster)
        answer = RepairAnswer(Outcome.REPAIRED, "shipped", (person.keys.segment(SECOND),), 1, 1)
        person.archive.store.put(answer_key(cluster, id_), answer.encode())

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(answer)
        ended = run("repair", "--url", person.archive.location, "--cluster", CLUSTER, "--wait", "30s", "--json")
        done.result()
    assert "has erased records, and is not put back: it is the last segment in" in ended.err
    assert logs(person) == before
    (repaired,) = repairs_of(ended)
    assert repaired["detail"].startswith("broker 1: shipped; a list hides the erased records")


@pytest.mark.parametrize("place", PLACES)
def test_a_version_that_cannot_be_rewritten_is_not_put(request: pytest.FixtureRequest, place: str) -> None:
    """Its erased record is a message of magic 1."""
    made = made_at(place, request)
    keys = made.partition("t")
    with made.store:
        made.put_segment("t", 0, b"".join(message(1, offset, b"v") for offset in range(100)))
        made.put_segment("t", 100, batches(*steps(100, 120)))
        made.commit("t", 120, highest_base=100)
        put_erased(made.store, keys, [(5, 6, 0)])
        made.store.delete([keys.segment(FIRST)])
        refused = list[str]()
        person = Canary(made, b"")
        assert restore(person, HOLE, refused) == []
        assert ["the erased offset 5 is in a message of magic 1" in each for each in refused] == [True]
        assert logs(person) == [keys.segment(SECOND)]
