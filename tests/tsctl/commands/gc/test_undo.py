"""`tsctl gc undo`, and holds: what is hidden is shown again, and nothing is deleted."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from tests.spark.archives import Archive
from tests.tsctl.commands.gc.conftest import ALL, DAY, NEW, OLD, contents
from tests.tsctl.gc.archives import GRACE, bases, later, ship, start_of
from tests.tsctl.running import Run


def test_an_undo_shows_at_once_and_keeps_until_its_hold_is_removed(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """Of the named topics alone; what it shows has another grace. Once released there is nothing to show."""
    ship(shipped, "u", 0, 100)
    run("gc", "run", "--policy", policy, *named)
    undone = run("gc", "undo", "t.*", "--reason", "wrong policy", *named)
    assert (undone.code, start_of(shipped), start_of(shipped, "u")) == (0, 0, 30)
    assert "1 partition shown again" in undone.out
    (hold,) = run("hold", "ls", *named, "--json").document["holds"]
    assert f"until: tsctl hold rm {hold['name']} " in undone.out
    assert (hold["topics"], hold["reason"]) == (["t.*"], "wrong policy")
    later(shipped, GRACE)
    kept = run("gc", "run", "--policy", policy, *named)
    assert (kept.code, start_of(shipped), bases(shipped), bases(shipped, "u")) == (0, 0, ALL, ALL[3:])
    assert f"t-0: kept: hold {hold['name']}: wrong policy" in kept.err
    run("hold", "rm", hold["name"], "--reason", "the policy is right", *named)
    later(shipped, GRACE)
    run("gc", "run", "--policy", policy, *named)
    assert (start_of(shipped), bases(shipped)) == (30, ALL)
    later(shipped, GRACE)
    run("gc", "run", "--policy", policy, *named)
    late = run("gc", "undo", "--all", "--reason", "too late", *named, "--json")
    assert (late.code, late.document["locations"][0]["shown_partitions"]) == (0, 0)
    assert (start_of(shipped), bases(shipped)) == (30, ALL[3:])


def test_an_undo_shows_although_another_hold_is_damaged(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """Doubt keeps. The damage is a finding, and has the exit code of one."""
    run("gc", "run", "--policy", policy, *named)
    shipped.store.put(shipped.keys.holds + "x.json", b"{")
    undone = run("gc", "undo", "t", "--reason", "wrong policy", *named)
    assert (undone.code, start_of(shipped)) == (1, 0)
    assert "holds/x.json" in undone.err


def test_an_undo_shows_an_incarnation_that_is_over(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """It is hidden as a whole before it is deleted."""
    shipped.put_incarnations("t", OLD, NEW)
    policy.write_text(policy.read_text() + "deleted_topics: {after: 1d}\n")
    later(shipped, 2 * DAY)
    run("gc", "run", "--policy", policy, *named, "--ignore-fuse")
    assert start_of(shipped) == 100
    undone = run("gc", "undo", "t", "--reason", "it is needed", *named)
    assert (undone.code, start_of(shipped)) == (0, 0)
    later(shipped, GRACE)
    run("gc", "run", "--policy", policy, *named, "--ignore-fuse")
    assert (start_of(shipped), bases(shipped)) == (0, ALL)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--reason", "x"), "give topics or patterns, or --all"),
        (("t", "--all", "--reason", "x"), "give topics or patterns, or --all"),
        (("t",), "--reason is missing"),
        (("t", "--reason", " "), "--reason is missing"),
        (("t", "--reason", "x\ny"), "one line is expected"),
        (("tt", "--reason", "x"), "the archive has no topic tt"),
        (("t(", "--reason", "x"), "topic 't(' is not a regular expression"),
    ],
)
def test_an_undo_without_topics_or_a_reason_is_refused(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run, arguments: tuple[str, ...], text: str
) -> None:
    """It writes nothing: neither a hold nor `log.start`."""
    run("gc", "run", "--policy", policy, *named)
    before = contents(shipped.store)
    refused = run("gc", "undo", *arguments, *named)
    assert (refused.code, refused.out, text in refused.err) == (2, "", True), refused.err
    assert contents(shipped.store) == before


def test_a_cluster_with_two_stores_is_undone_in_each(
    two: tuple[MadeArchive, MadeArchive, Path], policy: Path, run: Run
) -> None:
    """Also if one of them has nothing that is hidden; both have the hold, and each topic is of one of them."""
    one, other, conf = two
    config = ("--config", conf)
    policy.write_text(policy.read_text().replace("topics: kept", "topics: b"))
    first = run("gc", "run", "--policy", policy, *config)
    assert (first.code, start_of(one, "a"), start_of(other, "b")) == (0, 30, 0), first.err
    undone = run("gc", "undo", "--all", "--reason", "wrong policy", *config, "--json")
    found = [(each["location"], each["shown_partitions"]) for each in undone.document["locations"]]
    assert (undone.code, sorted(found)) == (0, sorted([(one.location, 1), (other.location, 0)]))
    assert (start_of(one, "a"), start_of(other, "b")) == (0, 0)
    for archive in (one, other):
        archive.store.head(archive.keys.hold(undone.document["hold"]))
    later(one, GRACE)
    kept = run("gc", "run", "--policy", policy, *config)
    assert (kept.code, start_of(one, "a")) == (0, 0)


def test_a_hold_stops_a_run_and_shows_what_is_hidden_until_it_is_removed(
    shipped: Archive, named: tuple[str, ...], policy: Path, run: Run
) -> None:
    """It is expected, so the exit code is 0; a hold that cannot be read stops everything, with a finding."""
    run("gc", "run", "--policy", policy, *named)
    run("hold", "add", "case-17", "--topic", "t", "--reason", "audit", *named)
    later(shipped, GRACE)
    held = run("gc", "run", "--policy", policy, *named)
    assert (held.code, start_of(shipped), bases(shipped)) == (0, 0, ALL)
    assert "t-0: kept: hold case-17: audit" in held.err
    assert "shown again: 1 partition" in held.out
    run("hold", "rm", "case-17", "--reason", "closed", *named)
    shipped.store.put(shipped.keys.holds + "x.json", b"{}")
    assert run("gc", "run", "--policy", policy, *named).code == 1
    assert start_of(shipped) == 0
