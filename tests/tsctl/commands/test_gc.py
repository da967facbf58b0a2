"""`tsctl gc`: what a user runs, reads and undoes; the policy, holds and readers of a run."""

import os
import re
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT
from tests.spark.archives import Archive
from tests.tsctl.gc.archives import GRACE, bases, later, ship, start_of
from tests.tsctl.running import Run
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.errors import AccessDenied
from tsctl.commands import gc
from tsctl.gc import archive_run

POLICY = """
grace: 1h
least_time: 0s
fuse: {{share: 90%}}
rules:
  - topics: kept
    keep: true
  - topics: .*
    max_size: 1KiB
    {more}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path)


def write_policy(directory: Path, more: str = "") -> Path:
    path = directory / "retention.yaml"
    path.write_text(POLICY.format(more=more))
    return path


@pytest.fixture
def shipped(hand_made: Archive) -> Archive:
    for topic in ("t", "kept"):
        ship(hand_made, topic, 0, 100)
    return hand_made


def test_a_run_is_planned_waits_and_deletes(shipped: Archive, named: tuple[str, ...], policy: Path, run: Run) -> None:
    """The dry run prints the objects that the plan has; a log has each deletion; a topic to keep is not touched."""
    dry = run("gc", "run", "--policy", policy, *named, "--dry-run", "--objects")
    assert dry.code == 0
    assert start_of(shipped) == 0
    first = run("gc", "run", "--policy", policy, *named)
    assert (first.code, start_of(shipped)) == (0, 30)
    assert "9 objects" in first.out
    assert "waits until" in run("gc", "run", "--policy", policy, *named).out
    later(shipped, GRACE)
    deleted = run("gc", "run", "--policy", policy, *named, "--json")
    (line,) = deleted.lines
    assert line["deleted"]["objects"] == {"removed": 9}
    assert line["left_out"] == []
    log = run("gc", "log", line["deleted"]["run"], *named).lines
    assert {(entry["name"], entry["etag"]) for entry in log} == {
        (entry["key"].rpartition("/")[2], entry["etag"]) for entry in dry.lines
    }
    assert {entry["outcome"] for entry in log} == {"removed"}
    assert [row["state"] for row in run("gc", "ls", *named, "--json").document["runs"]] == ["deleted"]
    assert bases(shipped) == list(range(30, 100, 10))
    assert bases(shipped, "kept") == list(range(0, 100, 10))


def test_an_undone_run_is_listed_and_deletes_nothing(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """After the deletion began there is nothing to undo."""
    run("gc", "run", "--policy", policy, *named)
    (row,) = run("gc", "ls", *named, "--json").document["runs"]
    waiting = run("gc", "log", row["run"], *named)
    assert (waiting.code, waiting.out) == (0, "")
    assert "nothing of this plan was deleted; its state is: waits" in waiting.err
    undone = run("gc", "undo", *named)
    assert "its state is: undone" in run("gc", "log", row["run"], *named).err
    assert (undone.code, start_of(shipped)) == (0, 0)
    assert "1 partition was moved back" in undone.out
    assert [row["state"] for row in run("gc", "ls", *named, "--json").document["runs"]] == ["undone"]
    run("gc", "run", "--policy", policy, *named)
    later(shipped, GRACE)
    run("gc", "run", "--policy", policy, *named)
    refused = run("gc", "undo", *named)
    assert (refused.code, start_of(shipped)) == (2, 30)
    assert "its deletion has begun or is over" in refused.err
    assert run("gc", "undo", "x", *named).code == 2


def test_a_hold_stops_a_run_until_it_is_removed(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """It is expected, so the exit code is 0; a hold that cannot be read stops everything, with a finding."""
    run("hold", "add", "case-17", "--topic", "t", "--reason", "audit", *named)
    held = run("gc", "run", "--policy", policy, *named)
    assert (held.code, start_of(shipped)) == (0, 0)
    assert "t-0: left out: hold case-17: audit" in held.err
    shipped.store.put(shipped.keys.holds + "x.json", b"{}")
    assert run("gc", "run", "--policy", policy, *named).code == 1
    assert start_of(shipped) == 0


def test_a_run_waits_for_a_reader_and_names_an_overdue_one(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """Offsets that a table has not claimed stay; after the longest wait the run ends with a finding, and they stay."""
    policy = write_policy(tmp_path, "until_read_by: [{table: lake.t}]\n    longest_wait: 10d")
    missing = run("gc", "run", "--policy", policy, *named)
    assert (missing.code, start_of(shipped)) == (2, 0)
    assert "rules.1.until_read_by.0.table: lake.t: " in missing.err
    for age, code, start in ((1, 0, 17), (11, 1, 17)):
        claims = TableClaims("lake.t", "1", int((time.time() - age * 86_400) * 1000), {"t-0": 17})
        shipped.store.put(claims_key(shipped.keys, "lake.t"), claims.encode())
        found = run("gc", "run", "--policy", policy, *named)
        assert (found.code, start_of(shipped)) == (code, start)
        later(shipped, GRACE)
    assert "table lake.t still needs offset 17" in found.err


def test_a_blown_fuse_is_a_finding_and_can_be_ignored(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """Nothing is moved until the operator has compared the dry run. A share of 100% is no bound."""
    path = tmp_path / "retention.yaml"
    path.write_text(POLICY.format(more="").replace("share: 90%", "objects: 8"))
    blown = run("gc", "run", "--policy", path, *named)
    assert (blown.code, start_of(shipped)) == (1, 0)
    assert "fuse.objects is 8" in blown.err
    assert run("gc", "run", "--policy", path, *named, "--dry-run").code == 1
    keys = shipped.partition("t")
    for at in range(30):
        shipped.store.put(keys.gap(at, at + 1), bytes(1000))  # more bytes than all segments have
    path.write_text(POLICY.format(more="").replace("share: 90%", "share: 100%"))
    assert run("gc", "run", "--policy", path, *named, "--dry-run").code == 0
    path.write_text(POLICY.format(more=""))
    assert run("gc", "run", "--policy", path, *named, "--ignore-fuse").code == 0
    assert start_of(shipped) == 30


def test_the_example_of_a_policy_can_be_used_as_it_is(shipped: Archive, named: tuple[str, ...], run: Run) -> None:
    """A first user copies it, and has none of its topics."""
    ship(shipped, "orders", 0, 100)
    ended = run("gc", "run", "--policy", CHECKOUT / "conf/retention.example.yaml", *named, "--dry-run")
    assert ended.code == 0
    (warning,) = ended.err.splitlines()
    assert "no topic payments today" in warning


def test_mistakes_are_named(shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    """Each is one message with code 2, and nothing is moved."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("rules: [{topics: t, max_age: 5}]")
    kafka = write_policy(tmp_path, "").with_name("kafka.yaml")
    kafka.write_text("rules: [{topics: t, as_in_kafka: true}]")
    for arguments, text in (
        (("--policy", bad), "max_age"),
        (("--policy", tmp_path / "none.yaml"), "none.yaml"),
        ((), "--policy is missing\n"),
        (("--policy", kafka), "--bootstrap-server"),
        (("--policy", write_policy(tmp_path), "--objects"), "--dry-run"),
        (("--policy", write_policy(tmp_path), "--every", "1m", "--dry-run"), "--every"),
        (("--policy", write_policy(tmp_path), "--every", "0m"), "--every=0m: 1s or more is expected"),
        (("--policy", write_policy(tmp_path), "--ignore-fuse", "--dry-run"), "--ignore-fuse"),
        (("--policy", write_policy(tmp_path), "--metrics-file", "a.prom", "--dry-run"), "--metrics-file"),
        (("--policy", write_policy(tmp_path), "--push-gateway", "http://h", "--dry-run"), "--push-gateway"),
    ):
        ended = run("gc", "run", *arguments, *named)
        assert ended.code == 2
        assert text in ended.err
    assert start_of(shipped) == 0


def test_a_dry_run_leaves_a_plan_that_waits_out_of_the_fuse(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """The next run deletes the plan first, and plans the rest, which the fuse allows."""
    path = tmp_path / "retention.yaml"
    path.write_text(POLICY.format(more="").replace("share: 90%", "objects: 8"))
    run("gc", "run", "--policy", path, *named, "--ignore-fuse")
    (row,) = run("gc", "ls", *named, "--json").document["runs"]
    dry = run("gc", "run", "--policy", path, *named, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert f"plan {row['run']} waits until {row['due']}; 9 of these objects are in it" in dry.out
    for at in range(9):
        shipped.store.put(shipped.partition("t").gap(at, at + 1), b"")
    dry = run("gc", "run", "--policy", path, *named, "--dry-run", "--json")
    assert (dry.code, dry.document["locations"][0]["objects"]) == (1, 18)
    assert "due: 9 objects, and fuse.objects is 8" in dry.err
    path.write_text(POLICY.format(more="").replace("share: 90%", "share: 1%"))
    shipped.store.delete([shipped.partition("t").gap(at, at + 1) for at in range(9)])
    assert run("gc", "run", "--policy", path, *named, "--dry-run").code == 0
    run("gc", "undo", *named)
    assert run("gc", "run", "--policy", path, *named, "--dry-run").code == 1


def test_a_plan_is_printed_with_the_time_that_later_runs_read(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this host is behind that of the store."""
    now = time.time() - 300
    for path in Path(shipped.location.removeprefix("file://")).rglob("*.*"):
        os.utime(path, (now - 1, now - 1))
    monkeypatch.setattr(archive_run, "store_time", lambda *_: int(now * 1000))
    planned = run("gc", "run", "--policy", policy, *named)
    (row,) = run("gc", "ls", *named, "--json").document["runs"]
    assert f"after {row['due']}" in planned.out


def test_a_topic_that_the_archive_lacks_is_a_warning(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """A misspelt name would keep nothing. A pattern may match nothing, and the exit code stays that of the run."""
    path = tmp_path / "retention.yaml"
    path.write_text(POLICY.format(more="").replace("topics: kept", "topics: [keptt, kept, 'x.*']"))
    for option in ((), ("--dry-run",)):
        ended = run("gc", "run", "--policy", path, *named, *option)
        assert ended.code == 0
        assert "the archive has no topic keptt today" in ended.err
    assert "the archive has no topic" not in run("gc", "run", "--policy", write_policy(tmp_path), *named).err


def test_a_loop_follows_the_policy_as_it_is_in_each_pass(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one ends its pass with an error, and nothing is deleted by the one before, and the loop continues."""
    texts = iter(("rules: [{topics: t, max_age: 5}]", "rules: [{topics: .*, keep: true}]", None))
    contents: list[str | None] = []

    def stopped(_: float) -> bool:
        later(shipped, GRACE)
        contents.append(text := next(texts))
        policy.write_text(text or "")
        return text is None

    monkeypatch.setattr(gc, "stopping", lambda _: nullcontext(stopped))
    metrics = policy.with_name("gc.prom")
    ended = run("gc", "run", "--policy", policy, *named, "--every", "1h", "--metrics-file", metrics, "--json")
    assert ended.code == 0
    assert len(contents) == 3
    assert "max_age: 5 is no time" in ended.err
    assert [line["deleted"]["objects"] if line["deleted"] else None for line in ended.lines] == [None, {"left": 9}]
    assert len(bases(shipped)) == 10


def test_a_loop_that_never_succeeded_ends_with_the_code_of_its_last_run(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that ends it sees that retention failed, and no traceback."""
    run("gc", "run", "--policy", policy, *named)
    for info in list(shipped.store.list(shipped.keys.gc_runs)):
        if info.key.endswith("plan.json"):
            shipped.store.put(info.key, b'{"version":9}')
    monkeypatch.setattr(gc, "stopping", lambda _: nullcontext(lambda _: True))  # SIGTERM arrives during the run
    ended = run("gc", "run", "--policy", policy, *named, "--every", "1h")
    assert ended.code == 2
    assert "later release" in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("undo",),
        ("log", "r"),
        ("run", "--policy", "retention.yaml"),
        ("run", "--policy", "retention.yaml", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_cluster_that_the_store_lacks_is_refused(
    shipped: Archive,
    named: tuple[str, ...],
    policy: Path,
    run: Run,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong cluster id is no archive without runs; one whose topics were all collected still has its runs."""
    monkeypatch.chdir(policy.parent)
    ended = run("gc", *command, *named, "--cluster", "porod")
    assert (ended.code, ended.out) == (2, "")
    assert "has no objects of cluster porod" in ended.err
    assert not [info.key for info in shipped.store.list() if "porod" in info.key]
    assert (run("gc", "ls", *named).code, run("gc", "ls", *named).out) == (0, "no runs\n")
    shipped.store.delete([info.key for info in shipped.store.list()])
    shipped.store.put(shipped.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":0}')
    assert run("gc", "ls", *named).out == "no runs\n"


def test_a_damaged_claim_hides_no_other_run(shipped: Archive, named: tuple[str, ...], policy: Path, run: Run) -> None:
    """Its own row shows the damage."""
    run("gc", "run", "--policy", policy, *named)
    for name in ("20200101T000000000Z-00000000", "20200101T000001000Z-00000000"):
        shipped.store.put(f"{shipped.keys.gc_runs}{name}/claim.json", b"\x1b[2J")
    ended = run("gc", "ls", *named, "--json")
    assert [row["state"] for row in ended.document["runs"]] == ["damaged", "damaged", "waits"]


def test_a_run_writes_metrics(shipped: Archive, named: tuple[str, ...], policy: Path, tmp_path: Path, run: Run) -> None:
    """Also of a run that fails."""
    path = tmp_path / "gc.prom"
    run("gc", "run", "--policy", policy, *named, "--metrics-file", path)
    assert re.search(r'^ts_gc_planned_objects\{cluster="prod"\} 9\.0$', path.read_text(), re.MULTILINE)
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 0\.0$', path.read_text(), re.MULTILINE)
    shipped.store.put(shipped.keys.gc_runs + "x", b"")
    for info in list(shipped.store.list(shipped.keys.gc_runs)):
        if info.key.endswith("plan.json"):
            shipped.store.put(info.key, b'{"version":9}')
    assert run("gc", "run", "--policy", policy, *named, "--metrics-file", path).code == 2
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 1\.0$', path.read_text(), re.MULTILINE)


def test_a_run_that_an_error_ends_counts_what_it_deleted(
    shipped: Archive,
    named: tuple[str, ...],
    policy: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No later run counts these objects."""
    path = tmp_path / "gc.prom"
    run("gc", "run", "--policy", policy, *named)
    later(shipped, GRACE)

    def fail(*_: object, **__: object) -> None:
        raise AccessDenied("own objects")

    monkeypatch.setattr(archive_run, "delete_old", fail)
    assert run("gc", "run", "--policy", policy, *named, "--metrics-file", path).code != 0
    assert re.search(r'^ts_gc_deleted_objects\{cluster="prod"\} 9\.0$', path.read_text(), re.MULTILINE)
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 1\.0$', path.read_text(), re.MULTILINE)


def test_the_checks_of_a_directory_are_fine(shipped: Archive, named: tuple[str, ...], run: Run) -> None:
    """A directory enforces conditional deletes and has neither locks nor lifecycle rules."""
    ended = run("gc", "check", *named, "--json")
    assert ended.code == 0
    assert {row["verdict"] for row in ended.document["checks"]} <= {"ok", "warning"}


def test_a_check_of_a_cluster_without_objects_is_a_warning(shipped: Archive, named: tuple[str, ...], run: Run) -> None:
    """The id of the cluster is probably wrong, although the first agent may just not have started."""
    ended = run("gc", "check", *named, "--cluster", "porod", "--json")
    assert ended.code == 0
    (row,) = [row for row in ended.document["checks"] if row["check"] == "cluster"]
    assert row["verdict"] == "warning"
    assert "has no objects of cluster porod; it has prod; check the location and the cluster" in row["text"]
    assert "cluster" not in {row["check"] for row in run("gc", "check", *named, "--json").document["checks"]}
