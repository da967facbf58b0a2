"""Surfaces that keep a request `hidden` after its copies were removed: each alone, until it has nothing any more."""

import json
from pathlib import Path

from tests.erased.canary import FEW, Canary, canary, log_of
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, entry, live
from tests.tsctl.erase.killing import not_held
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.running import Run
from ts_common.archive.catalog import read_snapshot
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.table_claims import ObeyedList, TableClaims, claims_key
from ts_reader.find.building import build
from ts_reader.find.keeping import keep
from tsctl.erase.versions import remove_versions

DAY = 86_400.0


def requested(made: MadeArchive, run: Run, path: Path) -> Canary:
    """Return an archive with a request, whose copies of the person can be rewritten."""
    person = canary(made, others=FEW)
    put_agent(made)
    made.put_segment("t", 200, batches(*steps(200, 220)))
    made.commit("t", 220, highest_base=200, live=live((0, 220)))
    MadeTail(made).put(entry(made, "t", 220, log_of(person.person, 220, 230, {225}, others=FEW)))
    keep(
        made.store,
        [read_snapshot(made.store, person.keys)],
        lambda *given: build(made.store, *given[:2], most_share=100),
    )
    add(person, run, path, "case-1")
    return person


def add(person: Canary, run: Run, path: Path, name: str) -> None:
    keys = path / "keys"
    keys.write_bytes(person.person)
    terms = ("--topic", "t", "--key-file", keys, "--reference", "r", "--due", "2090-01-31")
    assert run("erase", "add", name, *terms, *named(person.archive)).code == 0


def remaining(person: Canary, run: Run, *, grace: str = "0s") -> dict[str, set[str]]:
    """Run `tsctl erase run`; return the surfaces of each request that is not erased."""
    done = run("erase", "run", "--grace", grace, *named(person.archive), "--json")
    assert done.code == 0, done.err
    requests = done.lines[0]["requests"]
    assert all(bool(each["remains"]) == (each["state"] == "hidden") for each in requests if each["state"] != "open")
    return {each["request"]: {one["surface"] for one in each["remains"]} for each in requests if each["remains"]}


def test_a_request_is_erased_once_no_surface_has_it(tmp_path: Path, run: Run) -> None:
    """An index of keys, a live tail and a table; each is named until it obeys the list."""
    made = MadeArchive(tmp_path / "bucket")
    person = requested(made, run, tmp_path)
    claims = TableClaims("db.t", "1", 1, {"t-0": 220})
    made.store.put(claims_key(made.keys, "db.t"), claims.encode())
    remaining(person, run)
    made.age(DAY)
    assert remaining(person, run) == {"case-1": {"index of keys", "live tail", "table"}}
    made.put_segment("t", 220, batches((220, 225), (225, 230)))
    made.put_segment("t", 230, batches(*steps(230, 240)))
    made.commit("t", 240, highest_base=230, log_start=None)
    made.store.delete([info.key for info in made.store.list(made.keys.tails)])
    assert remaining(person, run)["case-1"] == {"index of keys", "table"}
    made.store.delete([info.key for info in made.store.list(made.keys.find("t"))])
    assert remaining(person, run)["case-1"] == {"table"}
    for obeyed in (ObeyedList("t-0", 1, 0), ObeyedList("t-0", 1, 1)):
        obeying = TableClaims("db.t", "2", 2, {"t-0": 220}, (obeyed,))
        made.store.put(claims_key(made.keys, "db.t"), obeying.encode())
        assert remaining(person, run) == ({"case-1": {"table"}} if not obeyed.files else {})
    add(person, run, tmp_path, "case-1")
    remaining(person, run)
    (request,) = run("erase", "status", *named(made), "--json").document["requests"]
    assert (request["state"], request["remains"]) == ("erased", [])


def test_x02_a_pack_of_an_election_that_lost_records_keeps_the_request_hidden(tmp_path: Path, run: Run) -> None:
    """No commit names its leadership, so no search reads it. One with the records of the segments does not."""
    made = MadeArchive(tmp_path / "bucket")
    person, lost = canary(made, others=FEW), MadeTail(made, log="7")
    put_agent(made)
    made.put_segment("t", 200, batches(*steps(200, 220), epoch=2))
    made.commit("t", 220, highest_base=200, epochs=((0, 0), (2, 200)), live=live((2, 220)))
    lost.put(entry(made, "t", 210, log_of(person.person, 210, 220, {215}, epoch=1, others=FEW), epoch=1))
    MadeTail(made, log="8").put(entry(made, "t", 180, log_of(person.person, 180, 190, (), others=FEW)))
    add(person, run, tmp_path, "case-1")
    remaining(person, run)
    made.age(DAY)
    assert remaining(person, run) == {"case-1": {"live tail"}}
    (request,) = run("erase", "status", *named(made), "--json").document["requests"]
    (found,) = request["remains"]
    assert found["where"] == lost.newest
    assert "no search has read" in found["reason"]
    made.store.delete([lost.newest])
    assert remaining(person, run) == {}


def test_an_earlier_version_keeps_the_request_hidden(versioned: MadeArchive, run: Run, tmp_path: Path) -> None:
    """On a real server. So does one that appears later: an agent ships a segment again, and retention deletes it."""
    person, store = canary(versioned), versioned.store
    put_agent(versioned)
    versioned.put_segment("t", 200, batches(*steps(200, 220)))
    versioned.commit("t", 220, highest_base=200)
    body, info = store.get(key := person.keys.segment(SegmentName(0)))
    add(person, run, tmp_path, "case-1")
    for appears in (False, True):
        if appears:
            store.put(key, body, metadata=dict(info.metadata))
            store.delete([key])
        assert remaining(person, run) == {"case-1": {"version"}}
        assert [*remove_versions(store, person.keys, protection=store.protection(), grace=-1, held=not_held)]
        assert remaining(person, run) == {}
        done = json.loads(store.get(f"{versioned.keys.erasures}case-1.done.json")[0])
        assert done["lists"] == {"t-0": 1}
