"""Seals of an archive whose segments runs of `tsctl erase` rewrote and removed between two seals."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.erased.canary import END, GONE, Canary, canary
from tests.made_archive import batches, steps
from tests.matrix import cases
from tests.tsctl.erase.killing import not_held, not_locked
from tests.tsctl.running import Run
from tests.tsctl.seal.sealed import Keys, leaves, seal
from ts_common.archive.erasures import ErasedPartition, Erasure, erasure_key
from ts_common.archive.object_keys import SegmentName
from ts_common.json_objects import MAX_INT64
from tsctl.erase.evidence import read_progress
from tsctl.erase.run import Found, Work, run_once
from tsctl.seal.leaves import LeafKind

FIRST = SegmentName(0)


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """An archive whose two segments with the person are below the last one."""
    found = canary(tmp_path / "store")
    found.archive.put_segment("t", END, batches(*steps(END, END + 20)))
    found.archive.commit("t", END + 20, highest_base=END)
    return found


def request(person: Canary, number: int, *more: int) -> None:
    """Put a list, and the request of that number."""
    person.erase({*GONE, *more}, number=number)
    partition = ErasedPartition("t-0", END, END, number, len(GONE) + len(more))
    made = Erasure(f"case-{number}", "t", 1, None, "letter", MAX_INT64, 0, (partition,))
    person.archive.store.put(erasure_key(person.archive.keys, made.name), made.encode())


def run_until_removed(person: Canary) -> list[str]:
    """Run until nothing of the list is stored; return the keys of the segments then."""
    store, cluster = person.archive.store, person.archive.keys
    work = Work(store, cluster, -1.0, lambda _: not_held, not_locked, pytest.fail)
    for _ in range(4):  # a chain is removed from its far end
        run_once(work, read_progress(store, cluster), Found(store.location))
    assert {each.state.value for each in read_progress(store, cluster)} == {"erased"}
    return [info.key for info in store.list(person.keys.prefix) if info.key.endswith(".log")]


def repaired_before(person: Canary) -> str:
    """X is damaged and R replaces X; E replaces R, and both are removed."""
    store, key = person.archive.store, person.keys.segment(FIRST)
    repair = person.put_repair(store.get(key)[0], FIRST)
    request(person, 1)
    left = run_until_removed(person)
    assert {key, person.keys.segment(repair)}.isdisjoint(left)
    return left[0]


def erased_twice(person: Canary) -> str:
    """E replaces X, which is removed; a later request replaces E, and that is removed too."""
    request(person, 1)
    before = run_until_removed(person)
    request(person, 2, 5)
    left = run_until_removed(person)
    assert before[0] not in left
    return left[0]


@pytest.mark.parametrize("history", [repaired_before, erased_twice])
def test_a_chain_that_runs_removed_is_explained_by_its_last_object(
    person: Canary, keys: Keys, run: Run, history: Callable[[Canary], str]
) -> None:
    """By the evidence, because the metadata of the last object names another one, which no seal has."""
    seal(person.archive, keys)
    sealed = person.keys.segment(FIRST)
    made = history(person)
    done = seal(person.archive, keys)
    assert done.problems == []
    explained = {each.key: each.by for each in leaves(person.archive, keys) if each.kind is LeafKind.REPLACED}
    assert explained[sealed] == made
    named = ("--url", person.archive.location, "--cluster", "prod", "--json", "--in-flight-hours", "0")
    found = run("verify", "--sealed", "--public-key", keys.public, *named).document["findings"]
    assert {each["code"] for each in found} <= {"index-missing", "erased-stored"}


@pytest.mark.parametrize("damage", cases([True, False], quick=[True]))
def test_without_evidence_a_removed_chain_is_named(person: Canary, keys: Keys, damage: bool) -> None:
    """A lost or damaged object of evidence explains nothing, and is no error of the run."""
    seal(person.archive, keys)
    repaired_before(person)
    store = person.archive.store
    for info in [*store.list(f"{person.archive.keys.erasures}case-1.run-")]:
        store.put(info.key, b"{") if damage else store.delete([info.key])
    problems = seal(person.archive, keys).problems
    assert {each.partition(":")[0] for each in problems} == {
        person.keys.segment(FIRST),
        person.keys.segment(SegmentName(100)),
    }


def test_a_folder_for_an_auditor_has_no_hidden_record(person: Canary, keys: Keys, run: Run, tmp_path: Path) -> None:
    """Its files are whole segments: it is not written before a run has removed those with such records."""
    seal(person.archive, keys)
    request(person, 1)
    named = ("--url", person.archive.location, "--cluster", "prod", "--public-key", keys.public)
    refused = run("prove", tmp_path / "proof", "--topic", "t", *named)
    assert (refused.code, "its file would have their records" in refused.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir() if "proof" in path.name or "partial" in path.name) == []
    assert run("prove", tmp_path / "others", "--topic", "t", "--from", END, *named).code == 0
    run_until_removed(person)
    seal(person.archive, keys)
    assert run("prove", tmp_path / "proof", "--topic", "t", *named).code == 0
    files = [*(tmp_path / "proof" / "segments").iterdir()]
    assert files
    assert not any(person.person in path.read_bytes() for path in files)
