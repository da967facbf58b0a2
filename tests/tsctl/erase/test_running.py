"""`tsctl erase run`: what it rewrites and removes, what it notes, and the state of a request."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import Canary, canary
from tests.made_archive import batches, steps
from tests.tsctl.erase.killing import logs, shown, values
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.running import Run
from ts_common.archive.object_keys import SegmentName
from tsctl.erase.evidence import read_progress

DAY = 86_400.0
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
