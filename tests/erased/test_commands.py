"""The person's records in what `tsctl` prints and writes."""

from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import END, GONE, STAY, Canary, canary, put_erased
from tests.made_archive import CLUSTER, batches
from tests.tsctl.erase.killing import not_held, not_locked, values
from tests.tsctl.erase.made import put_agent
from tests.tsctl.erase.test_running import DAY, add, erase
from tests.tsctl.running import Run
from ts_common.archive.object_keys import SegmentName
from tsctl.erase.replacing import replace_copies
from tsctl.exit_codes import ExitCode


@pytest.fixture
def person(tmp_path: Path) -> Canary:
    """Return an archive before anything is erased."""
    return canary(tmp_path / "archive")


def place(person: Canary) -> tuple[str, ...]:
    return "--url", person.archive.location, "--cluster", CLUSTER


def test_cat_prints_no_record_of_the_person(person: Canary, run: Run) -> None:
    """Before the list it does."""
    assert person.person.decode() in run("cat", "t", *place(person)).out
    person.erase()
    ended = run("cat", "t", *place(person))
    assert (ended.code, ended.err) == (0, "")
    assert [line["offset"] for line in ended.lines] == STAY
    assert person.person.decode() not in ended.out
    last = run("cat", "t", *place(person), "--max", "1", "--from", "110")
    assert [line["offset"] for line in last.lines] == [120]


def test_sql_selects_and_counts_no_record_of_the_person(person: Canary, run: Run) -> None:
    """A count by metadata, a search for the text, and all rows."""
    person.erase()
    text = person.person.decode()
    ended = run("sql", *place(person), "--json", 'select count(*) as n, min("offset") as a, max("offset") as b from t')
    assert ended.lines == [{"n": len(STAY), "a": STAY[0], "b": STAY[-1]}]
    ended = run("sql", *place(person), "--json", f"select count(*) as n from t where key = '{text}'")
    assert ended.lines == [{"n": 0}]
    assert text not in run("sql", *place(person), "--json", "select * from t").out


def test_find_finds_nothing_of_the_person(person: Canary, run: Run) -> None:
    """Without an index, with one from before the list, and with one from after it, which has no hash of the key."""
    text = person.person.decode()

    def found() -> list[dict[str, Any]]:
        return run("find", "--topic", "t", "--key", text, *place(person)).lines

    assert len(found()) == len(GONE)
    run("find", "index", "t", *place(person), "--most-share", "9")
    assert len(found()) == len(GONE)
    person.erase()
    assert found() == []
    store, prefix = person.archive.store, person.archive.keys.find("t")
    store.delete([info.key for info in store.list(prefix)])
    run("find", "index", "t", *place(person), "--most-share", "9")
    assert found() == []
    other = run("find", "--topic", "t", "--key", "other-00001", *place(person))
    assert [line["offset"] for line in other.lines] == [1]


def test_get_refuses_a_segment_with_erased_records(person: Canary, run: Run, tmp_path: Path) -> None:
    """A file is a copy of an object; a range without such a segment is written."""
    put_erased(person.archive.store, person.keys, [(13, 15, 0)])
    ended = run("get", "t", tmp_path / "files", *place(person))
    assert ended.code != 0
    assert not (tmp_path / "files").exists()
    assert "contains 2 erased offsets, the first is 13" in ended.err
    assert "tsctl cat t --partition 0" in ended.err
    ended = run("get", "t", tmp_path / "files", *place(person), "--from", "100")
    assert ended.code == 0, ended.err
    written = b"".join(path.read_bytes() for path in (tmp_path / "files").rglob("*.log"))
    assert written == person.archive.store.get(person.keys.prefix + f"{100:020d}.log")[0]


def test_get_writes_a_segment_that_an_eraser_put(person: Canary, run: Run, tmp_path: Path) -> None:
    """It has no record of the list. A later list hides one of it, whatever list its metadata names then."""
    store, keys, files = person.archive.store, person.keys, tmp_path / "files"
    person.archive.put_segment("t", END, batches((END, END + 10)))
    person.archive.commit("t", END + 10, highest_base=END)
    person.erase()
    made = [each.made for each in replace_copies(store, keys, held=not_held, locked=not_locked)]
    ended = run("get", "t", files, *place(person))
    assert ended.code == 0, ended.err
    written = [path.read_bytes() for path in sorted(files.rglob("*.log"))]
    assert {*written} == {store.get(key)[0] for key in (*made, keys.segment(SegmentName(END))) if key}
    assert not any(person.person in value for log in written for value in values(log))
    person.erase({*GONE, 5}, number=2)
    again = run("get", "t", tmp_path / "again", *place(person))
    assert (again.code, "contains 6 erased offsets, the first is 0" in again.err) == (ExitCode.REFUSED, True)
    assert made[0] is not None
    log, info = store.get(made[0])
    store.put(made[0], log, metadata={**info.metadata, "ts-erased": "2"})
    again = run("get", "t", tmp_path / "again", *place(person), "--to", "100")
    assert (again.code, "contains 1 erased record, and" in again.err) == (ExitCode.REFUSED, True)
    assert [*(tmp_path / "again").iterdir()] == []


def test_ls_and_gaps_report_no_loss(person: Canary, run: Run) -> None:
    """An erased offset is no missing one."""
    person.erase()
    ended = run("ls", "t", *place(person), "--json")
    assert (ended.code, ended.err) == (0, "")
    assert [each["topic"] for each in ended.document["topics"]] == ["t"]
    looked = run("ls", "t", *place(person), "-l", "partitions", "--json")
    assert [each["erased"] for each in looked.document["topics"][0]["partitions"]] == [len(GONE)]
    header, row = run("ls", "t", *place(person), "-l", "partitions").out.splitlines()
    assert row[: header.index("ERASED") + len("ERASED")].split()[-1] == str(len(GONE))
    assert person.person.decode() not in ended.out
    assert run("gaps", *place(person)).code == 0


def test_verify_names_the_segments_with_erased_records(person: Canary, run: Run, tmp_path: Path) -> None:
    """Those to rewrite, and those that a rewritten copy replaces. Metadata proves nothing: agents can write it."""
    store, keys = person.archive.store, person.keys
    person.archive.put_segment("t", END, batches((END, END + 10)))
    person.archive.commit("t", END + 10, highest_base=END)

    def found() -> list[str]:
        document = run("verify", "t", *place(person), "--json").document
        assert document["partitions"][0]["erased"] == (0 if keys.erased + "1.bin" not in listed() else len(GONE))
        return [each["detail"] for each in document["findings"] if each["code"] == "erased-stored"]

    def listed() -> list[str]:
        return [info.key for info in store.list(keys.prefix)]

    assert found() == []
    person.erase()
    first = keys.segment(SegmentName(0))
    assert found() == [f"2 segments can have erased records; the first is {first}"]
    put_agent(person.archive)
    add(person, run, tmp_path)
    erase(person, run)
    assert found() == [f"2 segments can have erased records; others replace 2 of them; the first is {first}"]
    old = store.get(first)
    person.archive.age(DAY)
    erase(person, run)
    assert found() == []
    store.put(first, old[0], metadata={**old[1].metadata, "ts-erased": "999999"})
    assert found() == [f"1 segment can have erased records; others replace 1 of them; the first is {first}"]


def test_verify_reports_a_damaged_list_and_no_good_one(person: Canary, run: Run) -> None:
    """A good list is no foreign object; without a readable one readers show nothing."""
    person.erase()
    before = run("verify", "t", *place(person), "--depth", "full", "--json").document
    assert {each["code"] for each in before["findings"]} == {"index-missing", "erased-stored"}
    store, key = person.archive.store, person.keys.erased + "1.bin"
    store.put(key, store.get(key)[0][:-1])
    store.put(person.keys.erased + "1.bin.bak", b"")
    after = run("verify", "t", *place(person), "--json")
    assert after.code != 0
    assert "erased/1.bin: not a list of erased offsets" in str(after.document["findings"])
    assert run("gaps", *place(person)).code != 0
    assert "1.bin: not a list of erased offsets" in run("cat", "t", *place(person)).err
