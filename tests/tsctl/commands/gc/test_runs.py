"""`tsctl gc`: what a user runs and reads; the policy and readers of a run."""

import re
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.docs.commands import CHECKOUT
from tests.made_archive import MadeArchive
from tests.spark.archives import Archive
from tests.tsctl.commands.gc.conftest import ALL, DAY, NEW, OLD, contents, write_policy
from tests.tsctl.gc.archives import GRACE, bases, later, ship, start_of
from tests.tsctl.running import Run
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.errors import AccessDenied
from tsctl.commands import gc
from tsctl.gc import archive_run


def states(run: Run, named: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return partition, state, floor and start of what `tsctl gc ls` lists; what it could not read has no time."""
    rows = run("gc", "ls", *named, "--json").document["partitions"]
    assert all((row["since"] is None) is (row["start"] is None) for row in rows)
    return [tuple(row[key] for key in ("partition", "state", "floor", "start")) for row in rows]


def test_a_run_hides_and_the_first_one_after_the_grace_deletes(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """The report has what the dry run named; a topic to keep is not touched."""
    dry = run("gc", "run", "--policy", policy, *named, "--dry-run", "--objects")
    assert (dry.code, start_of(shipped)) == (0, 0)
    first = run("gc", "run", "--policy", policy, *named)
    assert (first.code, start_of(shipped)) == (0, 30)
    assert "hidden: 9 objects" in first.out
    assert "the first run after 1 h deletes them" in first.out
    assert states(run, named) == [("t-0", "hidden", 0, 30)]
    again = run("gc", "run", "--policy", policy, *named)
    assert "hidden before, and in their grace: 1 partition" in again.out
    assert bases(shipped) == ALL
    later(shipped, GRACE)
    goes = run("gc", "run", "--policy", policy, *named, "--dry-run", "--objects").lines
    assert [each["key"] for each in goes] == [each["key"] for each in dry.lines]
    (line,) = run("gc", "run", "--policy", policy, *named, "--json").lines
    assert (line["deleted"], line["left_out"]) == ({"removed": 9}, [])
    head, deleted, end = run("gc", "log", line["run"], *named).lines
    assert (head["run"], deleted["partition"], end) == (line["run"], "t-0", {"did": "ended", "failed": False})
    prefix = shipped.partition("t").prefix
    assert sorted(deleted["objects"]) == [
        [each["key"].removeprefix(prefix), each["bytes"], each["etag"], "removed"]
        for each in sorted(goes, key=lambda each: each["key"])
    ]
    assert states(run, named) == [("t-0", "released", 30, 30)]
    assert (bases(shipped), bases(shipped, "kept")) == (ALL[3:], ALL)
    unknown = run("gc", "log", "gc-x", *named)
    assert (unknown.code, "gc-x: there is no report of such a run" in unknown.err) == (2, True)


def test_a_dry_run_names_what_a_run_would_do_and_writes_nothing(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """In each state; an object that a dry run wrote would also begin a grace, or keep a probe."""

    def dry(*options: str) -> Any:
        before = contents(shipped.store)
        ended = run("gc", "run", "--policy", policy, *named, "--dry-run", *options)
        assert (ended.code, contents(shipped.store)) == (0, before)
        return ended

    def steps() -> list[tuple[Any, ...]]:
        columns = ("partition", "step", "start", "new_start", "objects")
        return [tuple(row[key] for key in columns) for row in dry("--json").document["due"]]

    assert steps() == [("t-0", "hide", 0, 30, 9)]
    assert re.search(r"^PARTITION +STEP +START +NEW START .*\nt-0 +hide +0 +30 +9 .*the rule$", dry().out, re.MULTILINE)
    assert "a run would hide 9 objects of " in dry().out
    run("gc", "run", "--policy", policy, *named)
    assert steps() == []
    assert dry().out.endswith(": nothing is due to hide or to delete; partitions checked, of topics with a rule: 1\n")
    run("hold", "add", "case", "--topic", "t", "--reason", "audit", *named)
    assert steps() == [("t-0", "show again", 30, 0, None)]
    assert "t-0: hold case: audit" in dry().err
    run("hold", "rm", "case", "--reason", "closed", *named)
    later(shipped, GRACE)
    assert steps() == [("t-0", "delete", None, None, 9)]
    assert {line["step"] for line in dry("--objects").lines} == {"delete"}
    shipped.store.delete([shipped.keys.log_start_copy(shipped.partition("t"))])
    assert steps() == [("t-0", "begin the grace", None, None, None)]


def test_a_report_has_each_former_incarnation_and_old_place_until_the_policy_collects_them(
    two: tuple[MadeArchive, MadeArchive, Path], policy: Path, run: Run
) -> None:
    """With its age: without these keys nothing of them is ever due, whatever the rule of the topic is."""
    one, other, conf = two
    config = ("--config", conf)
    policy.write_text(policy.read_text().replace("topics: kept", "topics: b"))
    for archive in (one, other):
        ship(archive, "moved", 0, 100)
    one.put_incarnations("a", OLD, NEW)
    for archive in (one, other):
        later(archive, 2 * DAY)
    before = int(time.time() * 1000) - DAY
    ended = run("gc", "run", "--policy", policy, *config, "--json")
    (line,) = [line for line in ended.lines if line["location"] == one.location]
    assert (ended.code, line["staying"]) == (0, 2)
    stays = [each for each in run("gc", "log", line["run"], *config).lines if each.get("did") == "stays"]
    assert {(each["directory"], each["place"]) for each in stays} == {
        ("a", "former incarnation"),
        ("moved", "old place"),
    }
    assert all(0 < each["since"] < before for each in stays)
    assert (start_of(one, "a"), start_of(one, "moved"), start_of(other, "moved")) == (0, 0, 30)
    text = run("gc", "run", "--policy", policy, *config).out
    assert f"{one.location}: former incarnations and old places that stay: 2; deleted_topics and old_places" in text
    policy.write_text(policy.read_text() + "deleted_topics: {after: 1d}\nold_places: {after: 1d}\n")
    for _ in range(2):
        assert run("gc", "run", "--policy", policy, *config, "--ignore-fuse").code == 0
        later(one, GRACE)
    assert (bases(one, "a"), bases(one, "moved"), bases(other, "moved")) == ([], [], ALL)


def test_a_run_waits_for_a_reader_and_names_an_overdue_one(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """Offsets that a table has not claimed stay; after the longest wait the run ends with a finding, and they stay."""
    policy = write_policy(tmp_path, "until_read_by: [{table: lake.t}]\n    longest_wait: 10d")
    missing = run("gc", "run", "--policy", policy, *named)
    assert (missing.code, start_of(shipped)) == (2, 0)
    assert "rules.1.until_read_by.0.table: lake.t: " in missing.err
    for age, code, start in ((1, 0, 17), (11, 1, 17)):
        claims = TableClaims("lake.t", "1", int(time.time() * 1000) - age * DAY, {"t-0": 17})
        shipped.store.put(claims_key(shipped.keys, "lake.t"), claims.encode())
        found = run("gc", "run", "--policy", policy, *named)
        assert (found.code, start_of(shipped)) == (code, start)
        later(shipped, GRACE)
    assert "table lake.t still needs offset 17" in found.err
    assert bases(shipped) == ALL[1:]


def test_a_table_that_the_policy_does_not_name_keeps_its_segments_until_the_rule_ignores_it(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """A dry run and each run list it. It never ends by time, and the message has the key that releases it."""
    policy = write_policy(tmp_path)
    claims = TableClaims("lake.t", "1", int(time.time() * 1000) - 31 * DAY, {"t-0": 17})
    shipped.store.put(claims_key(shipped.keys, "lake.t"), claims.encode())
    for options in (("--dry-run",), ()):
        found = run("gc", "run", "--policy", policy, *named, *options)
        assert found.code == 1
        assert "t-0: table lake.t still needs offset 17, and has not moved for longest_wait" in found.err
        assert "ignore_tables" in found.err
    later(shipped, GRACE)
    assert run("gc", "run", "--policy", policy, *named).code == 1
    assert (start_of(shipped), bases(shipped)) == (17, ALL[1:])
    write_policy(tmp_path, "ignore_tables: lake.t")
    ended = run("gc", "run", "--policy", policy, *named)
    assert (ended.code, ended.err, start_of(shipped)) == (0, "", 30)


def test_a_blown_fuse_is_a_finding_and_can_be_ignored(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """Nothing is hidden until the operator has compared the dry run. A share of 100% is no bound."""
    policy = write_policy(tmp_path, fuse="{objects: 8}")
    blown = run("gc", "run", "--policy", policy, *named)
    assert (blown.code, start_of(shipped)) == (1, 0)
    assert "fuse.objects is 8" in blown.err
    assert run("gc", "run", "--policy", policy, *named, "--dry-run").code == 1
    keys = shipped.partition("t")
    for at in range(30):
        shipped.store.put(keys.gap(at, at + 1), bytes(1000))  # more bytes than all segments have
    write_policy(tmp_path, fuse="{share: 100%}")
    assert run("gc", "run", "--policy", policy, *named, "--dry-run").code == 0
    write_policy(tmp_path)
    assert run("gc", "run", "--policy", policy, *named, "--dry-run").code == 1
    assert run("gc", "run", "--policy", policy, *named, "--ignore-fuse").code == 0
    assert start_of(shipped) == 30


def test_a_fuse_that_one_topic_blows_leaves_that_topic_out(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """The share of the whole store is below it. One segment of each partition is no mistake."""
    for partition in range(5):
        ship(shipped, "large", 0, 80, partition=partition)
    policy = write_policy(tmp_path, fuse="{share: 25%}")
    for options in (("--dry-run",), ()):
        blown = run("gc", "run", "--policy", policy, *named, *options)
        assert blown.code == 1
        assert "t: the fuse of the topic has blown: due: 9 objects" in blown.err
        assert "large" not in blown.err
    assert (start_of(shipped), start_of(shipped, "large", 4)) == (0, 10)
    assert run("gc", "run", "--policy", policy, *named, "--ignore-fuse").code == 0
    assert start_of(shipped) == 30


def test_a_fuse_counts_only_what_is_newly_due(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    """Neither what is hidden, nor what the same run deletes; that is deleted whatever the fuse is."""
    policy = write_policy(tmp_path, fuse="{objects: 8}")
    policy.write_text(policy.read_text().replace("1KiB", "1200"))
    assert run("gc", "run", "--policy", policy, *named).code == 0
    assert start_of(shipped) == 20
    later(shipped, GRACE)
    write_policy(tmp_path, fuse="{objects: 8}")
    dry = run("gc", "run", "--policy", policy, *named, "--dry-run", "--json")
    assert (dry.code, dry.document["locations"][0]["due_objects"]) == (0, 3)
    assert run("gc", "run", "--policy", policy, *named).code == 0
    assert (start_of(shipped), bases(shipped)) == (30, ALL[2:])
    ship(shipped, "u", 0, 100)
    dry = run("gc", "run", "--policy", policy, *named, "--dry-run", "--json")
    assert (dry.code, dry.document["locations"][0]["due_objects"]) == (1, 9)
    assert "due: 9 objects, and fuse.objects is 8" in dry.err
    later(shipped, GRACE)
    assert run("gc", "run", "--policy", policy, *named).code == 1
    assert (bases(shipped), start_of(shipped, "u")) == (ALL[3:], 0)


def test_the_example_of_a_policy_can_be_used_as_it_is(shipped: Archive, named: tuple[str, ...], run: Run) -> None:
    """A first user copies it. Each rule without a topic is named, so that a misspelt one keeps nothing in silence."""
    ship(shipped, "orders", 0, 100)
    ended = run("gc", "run", "--policy", CHECKOUT / "conf/retention.example.yaml", *named, "--dry-run")
    assert ended.code == 1
    texts = [re.search(r": (rules\.\d: \S+): no topic of the archive", line) for line in ended.err.splitlines()]
    assert [found and found[1] for found in texts] == [
        "rules.0: payments",
        r"rules.0: audit\..*",
        r"rules.1: events\..*",
    ]


def test_mistakes_are_named(shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    """Each is one message with code 2, and nothing is written."""
    before, policy = contents(shipped.store), write_policy(tmp_path)

    def wrong(name: str, rules: str, cluster: str = "prod") -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"cluster: {cluster}\nrules: {rules}")
        return path

    useless = "[{topics: '.*', max_age: 30d}, {topics: 'k.*', keep: true}]"
    for arguments, text in (
        (("--policy", wrong("bad", "[{topics: t, max_age: 5}]")), "max_age"),
        (("--policy", wrong("small", "[{topics: t, max_age: 84m}]")), "confirm_small: true"),
        (("--policy", wrong("other", "[]", "staging")), "for cluster staging, and the archive is of cluster prod"),
        (("--policy", wrong("other", "[]", "staging"), "--dry-run"), "give the policy of prod"),
        (("--policy", wrong("useless", useless)), "rules.1: k.*: all of its topics (1) match rules.0 first"),
        (("--policy", wrong("useless", useless), "--dry-run"), "move the narrower rule up"),
        (("--policy", tmp_path / "none.yaml"), "none.yaml"),
        ((), "--policy is missing\n"),
        (("--policy", wrong("kafka", "[{topics: t, as_in_kafka: true}]")), "--bootstrap-server"),
        (("--policy", policy, "--objects"), "--dry-run"),
        (("--policy", policy, "--every", "1m", "--dry-run"), "--every"),
        (("--policy", policy, "--every", "0m"), "--every=0m: 1s or more is expected"),
        (("--policy", policy, "--ignore-fuse", "--dry-run"), "--ignore-fuse"),
        (("--policy", policy, "--metrics-file", "a.prom", "--dry-run"), "--metrics-file"),
        (("--policy", policy, "--push-gateway", "http://h", "--dry-run"), "--push-gateway"),
        (("--policy", policy, "--command-config", policy), "--bootstrap-server"),
    ):
        ended = run("gc", "run", *arguments, *named)
        assert ended.code == 2
        assert text in ended.err
    assert contents(shipped.store) == before


@pytest.mark.parametrize("option", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_rule_or_a_hold_that_matches_no_topic_is_a_finding(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, option: tuple[str, ...]
) -> None:
    """A misspelt one would keep nothing. The run does the rest."""
    assert run("gc", "run", "--policy", policy, *named, *option).code == 0
    policy.write_text(policy.read_text().replace("topics: kept", "topics: [keptt, kept, 'x.*']"))
    run("hold", "add", "case", "--topic", "tt", "--reason", "audit", *named)
    run("hold", "add", "short", "--topic", "uu", "--reason", "audit", "--until", "@1", *named)
    ended = run("gc", "run", "--policy", policy, *named, *option)
    assert (ended.code, start_of(shipped)) == (1, 0 if option else 30)
    assert "policy: rules.0: keptt: no topic of the archive has this name; did you mean kept?" in ended.err
    assert "policy: rules.0: x.*: no topic of the archive matches" in ended.err
    assert "policy: hold case: it matches no topic of the archive" in ended.err
    assert "hold short" not in ended.err


def test_a_loop_follows_the_policy_as_it_is_in_each_pass(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one ends its pass with an error, and the loop continues. One that keeps more shows what was hidden."""
    texts = iter(("rules: [{topics: t, max_age: 5}]", "cluster: prod\nrules: [{topics: .*, keep: true}]", None))
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
    assert [(line["hidden_partitions"], line["shown_partitions"]) for line in ended.lines] == [(1, 0), (0, 1)]
    assert (start_of(shipped), bases(shipped)) == (0, ALL)


def test_a_loop_that_never_succeeded_ends_with_the_code_of_its_last_run(
    shipped: Archive, named: tuple[str, ...], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that ends it sees that retention failed, and no traceback."""
    policy = write_policy(tmp_path, "until_read_by: [{group: g}]")
    monkeypatch.setattr(gc, "stopping", lambda _: nullcontext(lambda _: True))  # SIGTERM arrives during the run
    ended = run("gc", "run", "--policy", policy, *named, "--every", "1h")
    assert ended.code == 2
    assert "group: g: the archive has no committed offsets of such a group" in ended.err
    assert start_of(shipped) == 0


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("undo", "--all", "--reason", "x"),
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
    """A wrong cluster id is no archive without runs; one whose topics were all collected still has its own objects."""
    monkeypatch.chdir(policy.parent)
    ended = run("gc", *command, *named, "--cluster", "porod")
    assert (ended.code, ended.out) == (2, "")
    assert "has no objects of cluster porod" in ended.err
    assert not [info.key for info in shipped.store.list() if "porod" in info.key]
    nothing = "retention has hidden and released nothing\n"
    assert (run("gc", "ls", *named).code, run("gc", "ls", *named).out) == (0, nothing)
    shipped.store.delete([info.key for info in shipped.store.list()])
    shipped.store.put(shipped.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":0}')
    assert run("gc", "ls", *named).out == nothing


def test_a_damaged_copy_hides_no_other_partition(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """Its own row shows the damage; it leaves its own partition out of a run."""
    ship(shipped, "u", 0, 100)
    run("gc", "run", "--policy", policy, *named)
    shipped.store.put(shipped.keys.log_start_copy(shipped.partition("t")), b"\x1b[2J")
    damaged, whole = states(run, named)
    assert (damaged[0], damaged[2:], whole) == ("t-0", (None, None), ("u-0", "hidden", 0, 30))
    assert "t-0" in damaged[1]
    assert "\x1b" not in run("gc", "ls", *named).out
    later(shipped, GRACE)
    ended = run("gc", "run", "--policy", policy, *named)
    assert (ended.code, bases(shipped), bases(shipped, "u")) == (1, ALL, ALL[3:])


def test_an_earlier_release_that_still_runs_stops_a_run(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """A plan that still waits is discarded by the first run, with a line; a later one is of a collector that runs."""
    plan = f"{shipped.keys.gc}20261127T020000000Z-1f2e3d4c/plan.json"
    shipped.store.put(plan, b"{}\n")
    first = run("gc", "run", "--policy", policy, *named)
    assert (first.code, start_of(shipped)) == (0, 30)
    assert "plan 20261127T020000000Z-1f2e3d4c of an earlier release still waited, and was discarded" in first.err
    later(shipped, GRACE)
    shipped.store.put(plan, b"{}\n")
    stopped = run("gc", "run", "--policy", policy, *named)
    assert (stopped.code, bases(shipped)) == (75, ALL)
    assert "an older release of tsctl gc still runs" in stopped.err


def test_a_run_writes_metrics(shipped: Archive, named: tuple[str, ...], policy: Path, tmp_path: Path, run: Run) -> None:
    """Also of a run that fails."""
    path = tmp_path / "gc.prom"
    run("gc", "run", "--policy", policy, *named, "--metrics-file", path)
    assert re.search(r'^ts_gc_hidden_objects\{cluster="prod"\} 9\.0$', path.read_text(), re.MULTILINE)
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 0\.0$', path.read_text(), re.MULTILINE)
    write_policy(tmp_path, "until_read_by: [{group: g}]")
    assert run("gc", "run", "--policy", policy, *named, "--metrics-file", path).code == 2
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 1\.0$', path.read_text(), re.MULTILINE)


def test_a_run_that_an_error_ends_counts_and_reports_what_it_deleted(
    shipped: Archive,
    named: tuple[str, ...],
    policy: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No later run counts these objects, and no other report has them."""
    path = tmp_path / "gc.prom"
    run("gc", "run", "--policy", policy, *named)
    later(shipped, GRACE)

    def fail(*_: object, **__: object) -> None:
        raise AccessDenied("own objects")

    monkeypatch.setattr(archive_run, "delete_old", fail)
    before = contents(shipped.store)
    assert run("gc", "run", "--policy", policy, *named, "--metrics-file", path).code != 0
    assert re.search(r'^ts_gc_deleted_objects\{cluster="prod"\} 9\.0$', path.read_text(), re.MULTILINE)
    assert re.search(r'^ts_gc_last_run_failed\{cluster="prod"\} 1\.0$', path.read_text(), re.MULTILINE)
    (key,) = [key for key in contents(shipped.store).keys() - before.keys() if key.endswith(".jsonl")]
    lines = run("gc", "log", Path(key).stem, *named).lines
    assert [(each.get("did"), len(each.get("objects", ()))) for each in lines] == [(None, 0), ("deleted", 9)]


def test_the_checks_of_a_directory_are_fine(shipped: Archive, named: tuple[str, ...], run: Run) -> None:
    """A directory enforces conditional deletes and has neither locks nor lifecycle rules."""
    ended = run("gc", "check", *named, "--json")
    assert ended.code == 0
    assert {row["verdict"] for row in ended.document["checks"]} <= {"ok", "warning"}


def test_a_check_of_a_cluster_that_the_store_lacks_is_an_error(
    shipped: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Its id is wrong, or that of the policy. In a store without a cluster the first agent may not have started."""

    def row(ended: Any) -> Any:
        return next((row for row in ended.document["checks"] if row["check"] == "cluster"), None)

    wrong = run("gc", "check", *named, "--cluster", "porod", "--json")
    assert (wrong.code, row(wrong)["verdict"]) == (2, "error")
    assert "has no objects of cluster porod; it has prod; check the location and the cluster" in row(wrong)["text"]
    policy = write_policy(tmp_path, cluster="porod")
    refused = run("gc", "check", *named, "--policy", policy)
    assert (refused.code, "the policy is for cluster porod, and the archive is of cluster prod" in refused.err) == (
        2,
        True,
    )
    right = run("gc", "check", *named, "--policy", write_policy(tmp_path), "--json")
    assert (right.code, row(right)) == (0, None)
    shipped.store.delete([info.key for info in shipped.store.list()])
    empty = run("gc", "check", *named, "--json")
    assert (empty.code, row(empty)["verdict"]) == (0, "warning")
