"""What a request waits for outside of its partitions: former places in other stores, and removed incarnations."""

from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import END, Canary, canary
from tests.erased.test_key_indexes import kept
from tests.made_archive import MadeArchive, batches, steps
from tests.made_tail import MadeTail, plain
from tests.tsctl.erase.made import named, put_agent
from tests.tsctl.erase.test_running import DAY, TERMS, add, erase
from tests.tsctl.running import Run
from tsctl.erase.remains import Surface


def remains(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return where something of the only request remains, with the surface."""
    return [(each["surface"], each["where"]) for each in found["requests"][0]["remains"]]


def archived(path: Path) -> Canary:
    """Return an archive whose last segment has no record of the person."""
    found = canary(path)
    put_agent(found.archive)
    found.archive.put_segment("t", END, batches(*steps(END, 220)))
    found.archive.commit("t", 220, highest_base=END)
    return found


@pytest.fixture
def former(tmp_path: Path) -> Canary:
    """An archive that a topic of another store continues."""
    return archived(tmp_path / "former")


@pytest.fixture
def later(tmp_path: Path, former: Canary, run: Run) -> tuple[str, ...]:
    """Return the options of an archive that continues the former one in another store, with a request."""
    made = MadeArchive(tmp_path / "later", cluster="later")
    put_agent(made)
    made.put_segment("t", 220, batches(*steps(220, 240)))
    made.commit("t", 240, highest_base=220, log_start=220)
    made.put_restored(former.archive.keys, 220, url=former.archive.location)
    place = ("--url", made.location, "--cluster", "later")
    (tmp_path / "keys").write_text(former.person.decode())
    added = run("erase", "add", "case-1", *TERMS, "--key-file", tmp_path / "keys", *place)
    assert (added.code, former.archive.location in added.err) == (0, True)
    return place


def state(run: Run, place: tuple[str, ...], *options: str) -> tuple[str, str]:
    """Return the state of the request after a run, and why something remains; empty if nothing does."""
    (found,) = run("erase", "run", *options, *place, "--json").lines
    (request,) = found["requests"]
    return request["state"], "".join(each["reason"] for each in request["remains"])


def test_a_request_waits_for_a_former_place_in_another_store(
    former: Canary, later: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Until a request of its terms has erased it there; a run opens no store because an object names it."""
    url = former.archive.location
    hidden, why = state(run, later)
    assert (hidden, f"--url {url} --cluster prod" in why, f"--former-store {url}" in why) == ("hidden", True, True)
    assert why == run("erase", "status", *later, "--json").document["requests"][0]["remains"][0]["reason"]
    hidden, why = state(run, later, "--former-store", url)
    assert (hidden, "--former-store" in why) == ("hidden", False)
    add(former, run, tmp_path, "case-0")
    add(former, run, tmp_path)
    run("erase", "run", *named(former.archive))
    assert state(run, later, "--former-store", url)[0] == "hidden"
    former.archive.age(DAY)
    run("erase", "run", *named(former.archive))
    assert state(run, later)[0] == "hidden"
    assert state(run, later, "--former-store", url) == ("erased", "")


def test_a_former_place_that_another_request_erased_remains(
    former: Canary, later: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Equal ids alone do not prove that the requests are of one person."""
    terms = [*TERMS[:-1], "2090-02-01"]
    assert run("erase", "add", "case-1", *terms, "--key-file", tmp_path / "keys", *named(former.archive)).code == 0
    for _ in range(2):
        run("erase", "run", *named(former.archive))
        former.archive.age(DAY)
    assert state(run, later, "--former-store", former.archive.location)[0] == "hidden"


def test_a_former_place_without_objects_holds_up_no_request(former: Canary, later: tuple[str, ...], run: Run) -> None:
    """Retention has removed it there, so no request can name it."""
    store = former.archive.store
    store.delete([info.key for info in store.list(former.keys.prefix)])
    assert state(run, later, "--former-store", former.archive.location) == ("erased", "")


def test_an_index_and_packs_of_a_former_place_that_retention_removed_remain(
    former: Canary, later: tuple[str, ...], run: Run
) -> None:
    """No request there can name the partition; and if its brokers were lost, no agent deletes the packs."""
    kept(former)
    tail, store = MadeTail(former.archive), former.archive.store
    tail.put(plain(former.archive, (210, 220)))
    store.delete([info.key for info in store.list(former.keys.prefix)])
    index = [info.key for info in store.list(former.keys.cluster.find(former.keys.incarnation))]
    (found,) = run("erase", "run", "--former-store", former.archive.location, *later, "--json").lines
    url = former.archive.location.rstrip("/")
    assert remains(found) == [
        (Surface.KEY_INDEX, f"{url}/{index[0].rpartition('/')[0]}/"),
        (Surface.TAIL, f"{url}/{tail.newest}"),
    ]
    store.delete([*index, tail.newest])
    assert state(run, later, "--former-store", former.archive.location) == ("erased", "")


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_index_and_packs_of_a_partition_that_retention_removed_remain(
    tmp_path: Path, run: Run, is_whole: bool
) -> None:
    """Its list was removed too, so each record below END counts; they can be of a former place."""
    person = archived(tmp_path / "bucket")
    store, keys = person.archive.store, person.keys
    kept(person)
    add(person, run, tmp_path)
    tail = MadeTail(person.archive)
    tail.put(plain(person.archive, (150, 160)))
    tail.put(plain(person.archive, (220, 230)))
    listed = [info.key for info in store.list(keys.prefix)]
    if not is_whole:  # another partition of the incarnation is stored
        person.archive.put_segment("t", 0, batches(*steps(0, 30)), partition=1)
        person.archive.commit("t", 30, partition=1)
    store.delete(listed)
    index = [info.key for info in store.list(keys.cluster.find(keys.incarnation))]
    packs = [info.key for info in store.list(keys.cluster.tails)]
    found = remains(erase(person, run))
    assert found == [(Surface.KEY_INDEX, f"{index[0].rpartition('/')[0]}/"), (Surface.TAIL, packs[1])]
    store.delete(index)
    assert remains(erase(person, run)) == [(Surface.TAIL, packs[1])]
    store.delete(packs)
    assert erase(person, run)["requests"][0]["news"] == "erased now"
