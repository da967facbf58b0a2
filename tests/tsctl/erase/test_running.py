"""`tsctl erase run`: what it rewrites and removes, what it notes, and the state of a request."""

import json
from contextlib import suppress
from hashlib import md5, sha1, sha256
from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import GONE, Canary, canary, log_of
from tests.made_archive import batches, steps
from tests.tsctl.erase.killing import Killed, KilledAt, logs, not_held, not_locked, shown, values
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.running import Run
from ts_common.archive.erasures import ErasedPartition, Erasure, erasure_key
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from tsctl.erase.evidence import read_progress
from tsctl.erase.run import Found, Work, run_once

DAY = 86_400.0
NOW = -1.0  # a grace that is over
TERMS = ("--topic", "t", "--reference", "letter of 1 May", "--due", "2090-01-31")


@pytest.fixture
def person(tmp_path: Path, run: Run) -> Canary:
    """An archive with a request: two segments of three have records of the person."""
    return requested(tmp_path, run)


def requested(path: Path, run: Run) -> Canary:
    found = canary(path / "bucket")
    put_agent(found.archive)
    found.archive.put_segment("t", 200, batches(*steps(200, 220)))
    found.archive.commit("t", 220, highest_base=200)
    add(found, run, path)
    return found


def add(person: Canary, run: Run, path: Path, name: str = "case-1") -> None:
    keys = path / "keys"
    keys.write_text(person.person.decode() + "\n")
    assert run("erase", "add", name, *TERMS, "--key-file", keys, *named(person.archive)).code == 0


def erase(person: Canary, run: Run, *options: str, code: int = 0) -> dict[str, Any]:
    """Run `tsctl erase run`; return what it did in the only store."""
    done = run("erase", "run", *options, *named(person.archive), "--json")
    assert done.code == code, done.err
    (found,) = done.lines
    return found


def state(person: Canary) -> str:
    (progress,) = read_progress(person.archive.store, person.archive.keys)
    return progress.state.value


def lines(person: Canary) -> list[dict[str, Any]]:
    """Return all lines of evidence, in their order."""
    listed = sorted(info.key for info in person.archive.store.list(f"{person.archive.keys.erasures}case-1.run-"))
    return [json.loads(line) for key in listed for line in person.archive.store.get(key)[0].splitlines()]


def test_two_runs_remove_the_bytes_and_end_the_request(person: Canary, run: Run) -> None:
    """The first rewrites, the second removes after the grace; `status` names what remains in between."""
    before = shown(person.archive)
    first = erase(person, run)
    (partition,) = first["partitions"]
    assert (partition["rewritten"], partition["removed"], partition["waits"]) == (2, 0, 2)
    status = run("erase", "status", *named(person.archive), "--json").document["requests"][0]
    assert (status["state"], status["late"], status["erased"]) == ("hidden", False, None)
    assert {each["surface"] for each in status["remains"]} == {"copy"}
    assert all(each["until"] > status["run"] for each in status["remains"])
    assert shown(person.archive) == before
    person.archive.age(DAY)
    second = erase(person, run)
    (partition,) = second["partitions"]
    assert (partition["rewritten"], partition["removed"], partition["waits"]) == (0, 2, 0)
    assert second["requests"][0]["news"] == "erased now"
    assert state(person) == "erased"
    assert shown(person.archive) == before
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))


def test_the_evidence_has_both_sums_of_each_object_and_no_key(person: Canary, run: Run) -> None:
    """Neither the key nor a hash of it is in what a run puts; the sums are those of the stored bytes."""
    sums = {f"{person.keys.prefix}{name}": sha256(log).hexdigest() for name, log in logs(person.archive).items()}
    erase(person, run)
    sums |= {f"{person.keys.prefix}{name}": sha256(log).hexdigest() for name, log in logs(person.archive).items()}
    person.archive.age(DAY)
    erase(person, run)
    rewritten = [each for each in lines(person) if each.get("did") == "rewritten"]
    assert [(each["before"], each["after"]) for each in rewritten] == [
        (sums[each["key"]], sums[each["made"]]) for each in rewritten
    ]
    assert [each["records"] for each in rewritten] == [5, 12]
    removed = {each["key"]: each["made"] for each in lines(person) if each.get("did") == "removed"}
    assert removed == {each["key"]: each["made"] for each in rewritten}
    new = [person.archive.store.get(info.key)[0] for info in person.archive.store.list(person.archive.keys.erasures)]
    for digest in (md5, sha1, sha256):
        assert not any(digest(person.person).hexdigest().encode() in data for data in new)
    assert not any(person.person in data for data in new)


def test_a_run_without_news_puts_nothing(person: Canary, run: Run) -> None:
    """A loop of an hour would put thousands of objects in a year."""
    for _ in range(2):
        erase(person, run)
        before = {info.key for info in person.archive.store.list()}
        erase(person, run)
        assert {info.key for info in person.archive.store.list()} == before
        person.archive.age(DAY)
        erase(person, run)


def test_a_copy_that_returns_is_hidden_again_until_a_run_has_removed_it(person: Canary, run: Run) -> None:
    """After a lost commit an agent ships a segment again; the first end of the request stays as it was put."""
    key = person.keys.segment(SegmentName(0))
    body, info = person.archive.store.get(key)
    for _ in range(2):
        erase(person, run)
        person.archive.age(DAY)
    (progress,) = read_progress(person.archive.store, person.archive.keys)
    assert progress.state.value == "erased"
    person.archive.store.put(key, body, metadata=dict(info.metadata))
    before = shown(person.archive)
    found = erase(person, run)
    assert found["requests"][0]["news"] == "a copy has returned"
    assert [each["where"] for each in found["requests"][0]["remains"]] == [key]
    assert state(person) == "hidden"
    person.archive.age(DAY)
    erase(person, run)
    (again,) = read_progress(person.archive.store, person.archive.keys)
    assert (again.state.value, again.done) == ("erased", progress.done)
    assert shown(person.archive) == before
    assert [each["did"] for each in lines(person) if each.get("key") == key] == [
        "rewritten",
        "removed",
        "removing",
        "removed",
    ]


def test_a_later_search_that_finds_more_opens_an_erased_request_again(person: Canary, run: Run, tmp_path: Path) -> None:
    """A repair can bring back a segment that no search has seen."""
    for _ in range(2):
        erase(person, run)
        person.archive.age(DAY)
    assert state(person) == "erased"
    person.archive.put_segment("t", 0, log_of(person.person, 0, 100, {*GONE, 33}), variant=True)
    add(person, run, tmp_path)
    assert state(person) == "hidden"
    for _ in range(2):
        erase(person, run)
        person.archive.age(DAY)
    assert state(person) == "erased"
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))


def test_a_segment_of_the_leader_belongs_to_requests_that_end_above_its_base(
    person: Canary, run: Run, tmp_path: Path
) -> None:
    """The last segment waits for a later commit. An earlier request does not wait for a later one's records."""
    erase(person, run)
    person.archive.put_segment("t", 220, log_of(person.person, 220, 240, {225}))
    person.archive.commit("t", 240, highest_base=220, log_start=None)
    add(person, run, tmp_path, "case-2")
    person.archive.age(DAY)
    found = {each["request"]: each for each in erase(person, run)["requests"]}
    assert (found["case-1"]["state"], found["case-2"]["state"]) == ("erased", "hidden")
    (waiting,) = found["case-2"]["remains"]
    assert waiting["reason"] == f"line 1 of {person.keys.commit} names its base"


def test_killed_after_each_write_the_next_run_completes_it(tmp_path: Path) -> None:
    """Readers see the same, and each object that is gone has its sums in the evidence."""
    at, ended = 0, False
    while not ended:
        at += 1
        person = with_request(tmp_path / f"{at}")
        before, first = shown(person.archive), [*logs(person.archive)]
        store = KilledAt(person.archive.store, at, after=True, only_writes=True)
        with suppress(Killed):
            once(person, store)
        ended = store.count < at
        assert shown(person.archive) == before
        once(person, person.archive.store)
        assert state(person) == "erased"
        assert shown(person.archive) == before
        noted = {each["key"]: each["before"] for each in lines(person) if "before" in each}
        gone = {person.keys.prefix + name for name in first if name not in logs(person.archive)}
        assert noted.keys() >= gone
        assert len(gone) == 1
    assert at > 8


def with_request(path: Path) -> Canary:
    """Return an archive whose first segment has records of a request, as `tsctl erase add` leaves it."""
    found = canary(path)
    gone = [each for each in GONE if each < 100]
    found.erase(gone)
    request = Erasure("case-1", "t", 1, None, "r", 2, 0, (ErasedPartition("t-0", 200, 200, 1, len(gone)),))
    found.archive.store.put(erasure_key(found.archive.keys, "case-1"), request.encode())
    return found


def once(person: Canary, store: ObjectStore, grace: float = NOW) -> Found:
    """Run once, without holds and locks."""
    keys = person.archive.keys
    found = Found(person.archive.location)
    work = Work(store, keys, grace, lambda _: not_held, not_locked, pytest.fail)
    run_once(work, read_progress(person.archive.store, keys), found)
    return found
