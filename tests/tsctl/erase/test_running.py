"""`tsctl erase run`: what it rewrites and removes, what it notes, and the state of a request."""

import json
from contextlib import nullcontext, suppress
from dataclasses import replace
from hashlib import md5, sha1, sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dev.local.agent import write_config
from tests.common.log_format.build import batch, record
from tests.erased.canary import END, GONE, Canary, canary, log_of
from tests.made_archive import MadeArchive, batches, steps
from tests.matrix import examples
from tests.tsctl.erase.killing import Killed, KilledAt, logs, not_held, not_locked, shown, values
from tests.tsctl.erase.made import PERSON, made_archive, named, put_agent
from tests.tsctl.running import Run
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.erasures import ErasedPartition, Erasure, erasure_key
from ts_common.archive.holds import Hold
from ts_common.archive.object_keys import SegmentName
from ts_common.store.contract import ObjectStore
from ts_common.store.protection import Lock
from tsctl.commands import erase_run
from tsctl.erase import replacing
from tsctl.erase.evidence import Evidence, read_progress
from tsctl.erase.remains import Remains, Surface
from tsctl.erase.rewriting import rewritten
from tsctl.erase.run import Found, Work, run_once
from tsctl.gc.objects import Locked

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


def test_a_copy_without_records_of_a_later_list_is_read_once(
    person: Canary, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list has the offsets of all requests, so a run each night would read all that others have rewritten."""
    read = list[int]()

    def reading(store: ObjectStore, copy: SegmentCopy, *given: Any, **named: Any) -> Any:
        read.append(copy.base)
        return rewritten(store, copy, *given, **named)

    for _ in range(2):
        erase(person, run)
        person.archive.age(DAY)
    monkeypatch.setattr(replacing, "rewritten", reading)
    add(replace(person, person=b"other-00150"), run, tmp_path, "case-2")
    for expected in ([0, 100], []):
        read.clear()
        erase(person, run)
        assert read == expected


def test_x05_a_copy_that_returns_is_hidden_again_until_a_run_has_removed_it(person: Canary, run: Run) -> None:
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


def test_x05_a_segment_of_the_leader_belongs_to_requests_that_end_above_its_base(
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
    assert (
        waiting["reason"]
        == f"it is the last segment in {person.keys.commit}: it stays as it is until a later one is committed"
    )
    person.archive.put_segment("t", 240, batches(*steps(240, 250)))
    person.archive.commit("t", 250, highest_base=240, log_start=None)
    assert erase(person, run)["partitions"][0]["rewritten"] == 1
    assert [each for each in lines(person) if each.get("key") == waiting["where"]] == []


def test_x04_killed_after_each_write_the_next_run_completes_it(tmp_path: Path) -> None:
    """Readers see the same, and each object that was removed has its sums in the evidence."""
    step = examples(1, quick=2)
    for at in count(step, step):
        person = with_request(tmp_path / f"{at}")
        before, first = shown(person.archive), [*logs(person.archive)]
        store = KilledAt(person.archive.store, at, after=True, only_writes=True)
        with suppress(Killed):
            once(person, store)
        assert shown(person.archive) == before
        once(person, person.archive.store)
        assert state(person) == "erased"
        assert shown(person.archive) == before
        noted = {each["key"]: each["before"] for each in lines(person) if "before" in each}
        gone = {person.keys.prefix + name for name in first if name not in logs(person.archive)}
        assert noted.keys() >= gone
        assert len(gone) == 1
        if store.count < at:
            break
    assert at > 8


def with_request(path: Path) -> Canary:
    """Return an archive whose first segment has records of a request, as `tsctl erase add` leaves it."""
    found = canary(path)
    gone = [each for each in GONE if each < 100]
    found.erase(gone)
    request = Erasure("case-1", "t", 1, None, "r", 2, 0, (ErasedPartition("t-0", 200, 200, 1, len(gone)),))
    found.archive.store.put(erasure_key(found.archive.keys, "case-1"), request.encode())
    return found


def once(person: Canary, store: ObjectStore, *, grace: float = NOW, locked: Locked = not_locked) -> Found:
    """Run once, without holds and locks."""
    keys = person.archive.keys
    found = Found(person.archive.location)
    work = Work(store, keys, grace, lambda _: not_held, locked, pytest.fail)
    run_once(work, read_progress(person.archive.store, keys), found)
    return found


def reasons(found: dict[str, Any]) -> set[str]:
    return {each["reason"] for request in found["requests"] for each in request["remains"]}


def test_a_hold_keeps_the_bytes_until_it_is_removed(person: Canary, run: Run) -> None:
    """It is expected, so the code is 0: nothing is rewritten, and nothing that was rewritten before is removed."""
    run("hold", "add", "case-17", "--topic", "t", "--reason", "audit", *named(person.archive))
    assert reasons(erase(person, run)) == {"hold case-17: audit"}
    run("hold", "rm", "case-17", "--reason", "closed", *named(person.archive))
    erase(person, run)
    run("hold", "add", "case-18", "--topic", "t", "--reason", "audit", *named(person.archive))
    person.archive.age(DAY)
    assert reasons(erase(person, run)) == {"hold case-18: audit"}
    run("hold", "rm", "case-18", "--reason", "closed", *named(person.archive))
    assert erase(person, run)["requests"][0]["state"] == "erased"


def requested_after_restore(path: Path, run: Run) -> tuple[Canary, MadeArchive, tuple[str, ...]]:
    """Return the former archive of a restored topic, the later one, and the options that name that; with a request."""
    former = canary(path / "bucket")
    later = MadeArchive(path / "bucket", cluster="later")
    put_agent(later)
    later.put_segment("t", END, batches(*steps(END, 220)))
    later.commit("t", 220, highest_base=END, log_start=END)
    later.put_restored(former.archive.keys, END)
    keys = path / "keys"
    keys.write_text(former.person.decode())
    place = ("--url", later.location, "--cluster", "later")
    assert run("erase", "add", "case-1", *TERMS, "--key-file", keys, *place).code == 0
    return former, later, place


def test_x06_a_hold_of_the_cluster_of_a_former_place_keeps_the_bytes_too(tmp_path: Path, run: Run) -> None:
    """A restored topic continues there, and the holder is of that cluster."""
    former, later, place = requested_after_restore(tmp_path, run)
    hold = Hold(name="old", topics=("t",), reason="audit")
    later.store.put(former.archive.keys.hold("old"), hold.encode())
    held = run("erase", "run", *place, "--json").lines[0]
    why = f"it is the last segment in {former.keys.commit}: it stays as it is until a later one is committed"
    assert reasons(held) == {"hold old: audit", why}
    later.store.delete([former.archive.keys.hold("old")])
    (partition,) = run("erase", "run", *place, "--json").lines[0]["partitions"]
    assert (partition["partition"], partition["rewritten"]) == ("prod/t-0", 1)


def test_a_former_place_that_restored_json_no_longer_names_keeps_the_request_hidden(tmp_path: Path, run: Run) -> None:
    """The object can be lost or written again; the request has the directory still, and its segments are stored."""
    former, later, place = requested_after_restore(tmp_path, run)
    later.store.delete([later.keys.restored])
    (request,) = run("erase", "run", *place, "--json").lines[0]["requests"]
    assert (request["state"], [each["where"] for each in request["remains"]]) == ("hidden", [former.keys.prefix])


def test_a_name_that_is_no_place_is_named_and_the_others_continue(person: Canary, run: Run) -> None:
    """A damaged request must not end the run with a traceback, and not as erased."""
    key = erasure_key(person.archive.keys, "case-1")
    fields = json.loads(person.archive.store.get(key)[0])
    person.archive.store.put(
        key, json.dumps(fields | {"partitions": [*fields["partitions"], ["t", 1, 1, 1, 1]]}).encode()
    )
    erase(person, run)
    person.archive.age(DAY)
    found = erase(person, run)
    assert found["partitions"][0]["removed"] == 2
    assert reasons(found) == {"what it has is unknown: the request names t, which is no directory of a partition"}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_forged_ts_erased_hides_no_bytes_from_a_run(person: Canary, run: Run, is_first: bool) -> None:
    """Agents can write any metadata; an object obeys a list if the evidence names it with its ETag."""
    body, info = person.archive.store.get(key := person.keys.segment(SegmentName(0)))
    if not is_first:
        for _ in range(2):
            erase(person, run)
            person.archive.age(DAY)
        assert state(person) == "erased"
    person.archive.store.put(key, body, metadata={**info.metadata, "ts-erased": "999999"})
    erase(person, run)
    assert state(person) == "hidden"
    person.archive.age(DAY)
    erase(person, run)
    assert state(person) == "erased"
    assert not any(person.person in value for log in logs(person.archive).values() for value in values(log))


@pytest.mark.parametrize("time", [5, 10**15 - 1])
def test_a_run_that_no_later_one_could_follow_is_damage(person: Canary, run: Run, time: int) -> None:
    """A run puts the time after the last one: with a digit more no run reads it, and `erased` would stay."""
    forged: dict[str, Any] = {
        "version": 1,
        "time": 10**15 - 1,
        "by": None,
        "unread": None,
        "partitions": [],
        "lists": {"t-0": 1},
    }
    key = f"{person.archive.keys.erasures}case-1.run-{time}.jsonl"
    person.archive.store.put(key, json.dumps(forged).encode())
    for command in ("run", "status"):
        done = run("erase", command, *named(person.archive))
        assert (done.code, f"{key}: it has the time {10**15 - 1}" in done.err) == (1, True)


def test_a_lock_is_named_with_its_end(person: Canary) -> None:
    """From that time on the bytes can be removed."""
    lock = Lock(4102444800.0, legal_hold=False, mode="COMPLIANCE")
    found = once(person, person.archive.store, locked=lambda keys: dict.fromkeys(keys, lock))
    remains = found.requests[0].remains
    assert {(each.reason, each.until) for each in remains} == {
        ("retained until 2100-01-01 00:00:00 UTC (COMPLIANCE)", 4102444800000)
    }
    assert not found.is_finding


def test_x06_a_partition_that_fails_is_named_and_the_others_continue(tmp_path: Path, run: Run) -> None:
    """A Java uploader's commit, a lost list, a damaged segment: each needs a person, so the code is 1."""
    made = made_archive(tmp_path / "bucket")
    for partition in range(4):
        made.put_segment("t", 0, batches(*steps(0, 30)) + batch(30, [record(0, PERSON)]), partition=partition)
        made.put_segment("t", 31, batches(*steps(31, 40)), partition=partition)
        made.commit("t", 40, partition=partition, highest_base=31)
    person = Canary(made, PERSON)
    add(person, run, tmp_path)
    made.store.put(made.partition("t", 0).commit, b"%020d" % 100)
    made.store.delete([f"{made.partition('t', 1).erased}1.bin"])
    body, info = made.store.get(key := made.partition("t", 2).segment(SegmentName(0)))
    made.store.put(key, body[:-1] + bytes([body[-1] ^ 1]), metadata=dict(info.metadata))
    found = erase(person, run, code=1)
    problems = {each["partition"]: each["problem"] for each in found["partitions"] if each["problem"]}
    assert "is not of an agent" in problems["t-0"]
    assert "a request has list 1 of it" in problems["t-1"]
    done = {each["partition"]: (each["rewritten"], each["hidden_only"]) for each in found["partitions"]}
    assert done == {"t-0": (0, 0), "t-1": (0, 0), "t-2": (0, 1), "t-3": (1, 0)}
    assert {each["where"] for each in found["requests"][0]["remains"]} >= {"t-0", "t-1", key}
    assert state(person) == "hidden"


def test_a_topic_whose_places_are_unknown_is_named_and_another_one_continues(
    person: Canary, run: Run, tmp_path: Path
) -> None:
    """A damaged list of incarnations."""
    made = person.archive
    made.put_segment("u", 0, batches((0, 5)) + batch(5, [record(0, person.person)]))
    made.put_segment("u", 6, batches((6, 9)))
    made.commit("u", 9, highest_base=6)
    terms = ("--topic", "u", *TERMS[2:], "--key-file", tmp_path / "keys")
    assert run("erase", "add", "case-2", *terms, *named(made)).code == 0
    made.store.put(made.keys.incarnations("t"), b"{")
    found = erase(person, run, code=1)
    done = {each["partition"]: (each["rewritten"], each["problem"] is None) for each in found["partitions"]}
    assert done == {"t-0": (0, False), "u-0": (1, True)}
    assert "t-0" in {each["where"] for each in found["requests"][0]["remains"]}


def test_a_late_request_is_named_and_an_erased_one_is_not_late(person: Canary, run: Run, tmp_path: Path) -> None:
    """The code of `status`, of a run and the metric; a file of metrics has them by cluster."""
    key = erasure_key(person.archive.keys, "case-1")
    stored = Erasure.read(person.archive.store, key, name="case-1")
    assert stored is not None
    person.archive.store.put(key, replace(stored, due=2).encode())
    metrics = tmp_path / "erase.prom"
    assert erase(person, run, "--metrics-file", str(metrics), code=1)["requests"][0]["late"]
    assert run("erase", "status", *named(person.archive)).code == 1
    assert 'ts_erase_late_requests{cluster="prod"} 1.0' in metrics.read_text()
    person.archive.age(DAY)
    erase(person, run, "--metrics-file", str(metrics))
    assert run("erase", "status", *named(person.archive)).code == 0
    text = metrics.read_text()
    assert 'ts_erase_late_requests{cluster="prod"} 0.0' in text
    assert 'ts_erase_erased_requests{cluster="prod"} 1.0' in text
    assert 'ts_erase_removed_objects{cluster="prod"} 2.0' in text


def test_what_remains_of_thousands_of_segments_is_evidence_that_can_be_read(person: Canary) -> None:
    """Each line has the reason of a hold, which can be long; the last line has the number of the others."""
    archive = person.archive
    (progress,) = read_progress(archive.store, archive.keys)
    reason = "hold x: " + 900 * "д"
    remains = [Remains(Surface.COPY, f"{at:020d}.log", reason) for at in range(4000)]
    Evidence(archive.store, archive.keys, [progress]).end("case-1", {"t-0": 1}, remains)
    (progress,) = read_progress(archive.store, archive.keys)
    shown = len(progress.remains)
    assert 1000 < shown < 4000
    assert progress.remains[-1].reason == f"and {4001 - shown} more"


def test_a_dry_run_writes_nothing_and_names_what_is_due(person: Canary, run: Run) -> None:
    """A topic without a request is a mistake."""
    before = {info.key: info.etag for info in person.archive.store.list()}
    found = erase(person, run, "--dry-run", "--topic", "t")
    assert {info.key: info.etag for info in person.archive.store.list()} == before
    (partition,) = found["partitions"]
    assert (partition["to_rewrite"], partition["to_remove"]) == (2, 0)
    erase(person, run)
    (partition,) = erase(person, run, "--dry-run", "--grace", "0s")["partitions"]
    assert (partition["to_rewrite"], partition["to_remove"]) == (0, 2)
    for options, said in (
        (("--topic", "tt"), "--topic=tt: no request names it"),
        (("--dry-run", "--every", "1h"), "--every and --dry-run"),
    ):
        wrong = run("erase", "run", *options, *named(person.archive))
        assert (wrong.code, said in wrong.err) == (2, True)


def test_a_loop_continues_after_a_run_that_failed(person: Canary, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a signal ends it; a damaged request ends the pass with its reason."""
    key = erasure_key(person.archive.keys, "case-0")
    person.archive.store.put(key, b"{}")
    passes = list[float]()

    def stopped(wait: float) -> bool:
        person.archive.store.delete([key])
        person.archive.age(DAY)
        passes.append(wait)
        return len(passes) == 3

    monkeypatch.setattr(erase_run, "stopping", lambda _: nullcontext(stopped))
    ended = run("erase", "run", "--every", "1h", *named(person.archive), "--json")
    assert (ended.code, len(passes)) == (0, 3)
    assert "case-0.json: not a request to erase" in ended.err
    assert [each["requests"][0]["state"] for each in ended.lines] == ["hidden", "erased"]


def test_each_store_of_an_archive_has_its_request_and_a_hold_of_either_counts(tmp_path: Path, run: Run) -> None:
    """A topic that moved has records at its old place too."""
    stores = [canary(MadeArchive(tmp_path / name)) for name in "ab"]
    (tmp_path / "keys").write_text("\n".join(each.person.decode() for each in stores))
    for each in stores:
        put_agent(each.archive)
        each.archive.store.put(each.archive.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":0}')
    provider = "tests.tsctl.commands.gc.conftest:TwoStores"
    write_config(tmp_path / "conf", "prod", {"storage.service.endpoint.provider.class": provider})
    config = ("--config", tmp_path / "conf")
    assert run("erase", "add", "case-1", *TERMS, "--key-file", tmp_path / "keys", *config).code == 0
    hold = stores[0].archive.keys.hold("x")
    stores[0].archive.store.put(hold, Hold(name="x", topics=("t",), reason="audit").encode())
    held = run("erase", "run", *config, "--json").lines
    assert [each["partitions"][0]["rewritten"] for each in held] == [0, 0]
    stores[0].archive.store.delete([hold])
    done = run("erase", "run", *config, "--json").lines
    assert {each["location"] for each in done} == {each.archive.location for each in stores}
    assert [each["partitions"][0]["rewritten"] for each in done] == [1, 1]
