"""A partition with segments and without a usable commit: each command names it by one code, and loses no other one."""

from pathlib import Path

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run

OLD = 15 * 60 + 1


@pytest.fixture
def half(hand_made: Archive) -> Archive:
    """Return a topic of two partitions; the second has no commit, and one of its `.log` objects is empty."""
    for partition in range(2):
        for base in (0, 10):
            log = batches((base, base + 10))
            body = b"" if (partition, base) == (1, 10) else log
            hand_made.put_segment("t", base, log, partition=partition, index=b"", timeindex=b"", body=body)
    hand_made.commit("t", 20, highest_base=10)
    hand_made.age(OLD)
    return hand_made


def damage_commit(archive: Archive) -> None:
    archive.store.put(archive.partition("t", 1).commit, b"what is this")


def damage_log_start(archive: Archive) -> None:
    archive.commit("t", 20, partition=1, highest_base=10)
    archive.store.put(archive.partition("t", 1).log_start, b"what is this")


@pytest.mark.parametrize(
    ("change", "code"),
    [(None, "no-commit"), (damage_commit, "commit-damaged"), (damage_log_start, "commit-damaged")],
    ids=["missing", "damaged commit", "damaged log.start"],
)
def test_each_command_names_it_by_one_code(
    half: Archive, named: tuple[str, ...], run: Run, code: str, change: object
) -> None:
    """Each ends with code 1, and shows the other partition."""
    if callable(change):
        change(half)
    ended = run("gaps", *named, "--json")
    gaps = ended.document["gaps"]
    assert (ended.code, [(gap["partition"], gap["state"], gap["to"]) for gap in gaps]) == (1, [(1, code, None)])
    assert run("gaps", *named).out.splitlines()[1].split()[:5] == ["t-1", "0", "-", "-", code]  # no end is known
    assert run("gaps", *named, "--fail-on", "unrecorded").code == 1
    for level in ("topics", "partitions"):
        ended = run("ls", *named, "--level", level, "--json")
        (topic,) = ended.document["topics"]
        assert (ended.code, [each["commit"] for each in topic["partitions"]]) == (1, ["committed", code])
        assert sum(each.startswith(f"t-1: {code}: ") for each in ended.document["warnings"]) == 1
    ended = run("verify", *named, "--json")
    assert (ended.code, code in {each["code"] for each in ended.document["findings"]}) == (1, True)
    assert [each["partition"] for each in ended.document["partitions"]] == ["t-0", "t-1"]
    assert run("verify", *named, "--fail-on", "data-loss").code == 1
    ended = run("repair", *named, "--json", "--dry-run")
    assert code in {each["code"] for each in ended.document["by_hand"]}
    way_out = {"no-commit": "restart its agent", "commit-damaged": "Putting an object back"}[code]
    assert way_out in run("repair", *named, "--dry-run").out
    assert ("A missing commit" if code == "no-commit" else "Putting an object back") in run("cat", "t", *named).err


def test_a_reader_returns_no_half_answer(half: Archive, named: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """It fails, or ends with code 1; the other partition's records are there."""
    for command in (("cat", "t"), ("sql", "select count(*) from t"), ("get", "t", tmp_path / "files")):
        ended = run(*command, *named)
        assert (ended.code, "no-commit" in ended.err) == (1, True), command
    ended = run("cat", "t", *named)
    assert len(ended.out.splitlines()) == 20
    assert "20" in run("sql", "select count(*) from t", "--allow-loss", *named).out
    assert "t-1: offsets 0 and later are not shown: no-commit: 2 segments from offset 0 on" in ended.err
    half.age(60, f"{10:020d}.log")
    for name in ("cat t", "gaps", "ls", "verify"):
        ended = run(*name.split(), *named)
        assert "beginning" in ended.err + ended.out, name
        assert ended.code == (1 if name == "verify" else 0), name  # an empty object is damage
