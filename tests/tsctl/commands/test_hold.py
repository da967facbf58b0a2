"""`tsctl hold` on a real S3 server with two stores, and in a directory."""

import json
from pathlib import Path

import pytest

from dev.local.agent import write_config
from dev.local.stores.s3 import Identity, S3Server
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from ts_common.archive.holds import Hold

BUCKET = "two-holders"


def fill(archive: Archive, *topics: str) -> Archive:
    for topic in topics:
        archive.put_segment(topic, 0, batches((0, 5)))
        archive.commit(topic, 5)
    return archive


def test_two_people_hold_topics_of_two_stores(
    s3_server: S3Server, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stores have the hold; who set it cannot remove it; who removed it and why stays."""

    def use(identity: Identity) -> None:
        for name, value in s3_server.environment(identity).items():
            monkeypatch.setenv(name, value)

    use(s3_server.admin)
    s3_server.create_bucket(BUCKET)
    one, other = (fill(Archive(f"s3://{BUCKET}/{name}"), *topics) for name, topics in (("one", "ab"), ("other", "c")))
    path = write_config(tmp_path / "conf", "prod", {"storage.service.endpoint.provider.class": "json"})
    endpoints = {
        "default": {"bucket": BUCKET, "prefix": "one"},
        "topics": {"c": {"bucket": BUCKET, "prefix": "other"}},
    }
    path.with_name("prod.endpoints.json").write_text(json.dumps(endpoints))
    config = ("--config", tmp_path / "conf")
    added = run("hold", "add", "case-1", "--pattern", "[bc]", "--reason", "audit", "--two-people", *config, "--json")
    assert (added.code, added.document["matches"], added.document["written"]) == (0, 2, [one.location, other.location])
    refused = run("hold", "rm", "case-1", "--reason", "closed", *config)
    assert (refused.code, "another person must remove it" in refused.err) == (2, True)
    (held,) = run("hold", "ls", *config, "--json").document["holds"]
    assert (held["state"], held["matches"], held["set_by"], held["missing_in"]) == ("held", 2, ["local-admin"], [])
    other.store.delete([other.keys.hold("case-1")])
    listed = run("hold", "ls", *config)
    assert f"{other.location} lacks it; it stops retention all the same" in listed.err
    use(s3_server.restricted)
    assert run("hold", "rm", "case-1", "--reason", "closed", *config).code == 0
    assert run("hold", "ls", *config).out == "no holds\n"
    (removed,) = run("hold", "ls", "--all", *config, "--json").document["holds"]
    found = (removed["state"], removed["set_by"], removed["removed_by"], removed["removal_reason"])
    assert found == ("removed", ["local-admin"], "local-restricted", "closed")
    one.store.close()
    other.store.close()


def test_a_hold_ends_at_its_time_and_is_then_listed_only_if_requested(
    hand_made: Archive, named: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A duration counts from now. A topic that the archive lacks is a warning, as it can follow."""
    fill(hand_made, "orders", "orders-eu", "pay")
    added = run("hold", "add", "h", "--topic", "later", "--prefix", "orders", "--until", "2d", "--reason", "r", *named)
    assert added.code == 0
    assert "topics that it matches now: 2" in added.out
    assert "the archive has no topic later today" in added.err
    assert run("hold", "ls", *named, "--json").document["holds"][0]["topics"] == ["later"]
    monkeypatch.setattr("time.time", lambda: 4_000_000_000.0)
    assert run("hold", "ls", *named, "--json").document["holds"] == []
    (expired,) = run("hold", "ls", "--all", *named, "--json").document["holds"]
    assert (expired["name"], expired["state"]) == ("h", "expired")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("a/b", "--topic", "orders"), "is no name of a hold"),
        (("h", "--topic", "("), "is not a regular expression"),
        (("h",), "it names no topic, no pattern and no prefix"),
        (("h", "--topic", "orders", "--until", "2020-01-01"), "it has passed"),
        (("h", "--topic", "orders", "--until", "soon"), "expected a duration such as 90d or 12h, or a time"),
        (("h", "--topic", "orders", "--reason", " "), "the reason is empty"),
        (("h", "--topic", "orders", "--reason", "x\ny"), "the reason has a control character; one line is expected"),
        (("h", "--topic", "orders", "--cluster", "porod"), "porod"),
    ],
)
def test_a_wrong_hold_is_refused_and_nothing_is_written(
    hand_made: Archive, named: tuple[str, ...], run: Run, arguments: tuple[str, ...], problem: str
) -> None:
    """Also one of a cluster that the store does not have: it would hold nothing."""
    fill(hand_made, "orders")
    ended = run("hold", "add", "--reason", "r", *named, *arguments)
    assert (ended.code, problem in ended.err) == (2, True)
    assert not any("holds" in info.key for info in hand_made.store.list())


def test_a_removal_without_a_reason_names_the_way_out(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """The hold stays; the message has the command that removes it."""
    hand_made.store.put(hand_made.keys.hold("h"), Hold(name="h", reason="r", topics=("orders",)).encode())
    ended = run("hold", "rm", "h", *named)
    assert (ended.code, "--reason is missing" in ended.err, "tsctl hold rm h --reason '" in ended.err) == (
        2,
        True,
        True,
    )
    hand_made.store.head(hand_made.keys.hold("h"))


def test_a_stored_reason_of_two_lines_is_listed_and_removed_with_one_line(
    hand_made: Archive, named: tuple[str, ...], run: Run
) -> None:
    """A removal with such a reason is refused."""
    fill(hand_made, "orders")
    hand_made.store.put(hand_made.keys.hold("h"), Hold(name="h", reason="x\ny", topics=("orders",)).encode())
    assert run("hold", "ls", *named, "--json").document["holds"][0]["reason"] == "x\ny"
    ended = run("hold", "rm", "h", "--reason", "x\ry", *named)
    assert (ended.code, "one line is expected" in ended.err) == (2, True)
    assert run("hold", "rm", "h", "--reason", "z", *named).code == 0


def test_what_cannot_be_read_below_holds_ends_the_command_by_name(
    hand_made: Archive, named: tuple[str, ...], run: Run
) -> None:
    """It is neither listed as absent nor removed."""
    fill(hand_made, "orders")
    key = hand_made.keys.hold("h")
    hand_made.store.put(key, b"\xff{")
    for arguments in (("ls",), ("rm", "h", "--reason", "r"), ("add", "h", "--topic", "orders", "--reason", "r")):
        ended = run("hold", *arguments, *named)
        assert (ended.code, key in ended.err, ended.out) == (1, True, "")
    assert hand_made.store.get(key)[0] == b"\xff{"


def test_a_hold_that_cannot_be_read_hides_no_other_one(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """A person who mends it sees the other holds, and what to do."""
    fill(hand_made, "orders")
    assert run("hold", "add", "h", "--topic", "orders", "--reason", "r", *named).code == 0
    names = [hand_made.keys.hold("a"), f"{hand_made.keys.holds}no name"]
    for key in names:
        hand_made.store.put(key, b"\xff{")
    hand_made.store.put(hand_made.keys.removed_hold("b", 5), b"\xff{")
    ended = run("hold", "ls", *named)
    assert (ended.code, "orders" in ended.out) == (1, True)
    lines = ended.err.splitlines()
    assert [any(key in line for line in lines) for key in names] == [True, True]
    assert all("set it again under another name, then delete the object" in line for line in lines)
    document = run("hold", "ls", *named, "--json").document
    assert ([each["name"] for each in document["holds"]], len(document["warnings"])) == (["h"], 2)


def test_a_damaged_trace_of_a_removal_is_named_and_the_others_are_listed(
    hand_made: Archive, named: tuple[str, ...], run: Run
) -> None:
    """The code is not 0, because the list is not complete."""
    fill(hand_made, "orders")
    for arguments in (("add", "h", "--topic", "orders", "--reason", "r"), ("rm", "h", "--reason", "r")):
        assert run("hold", *arguments, *named).code == 0
    key = hand_made.keys.removed_hold("a", 5)
    hand_made.store.put(key, b"\xff{")
    assert run("hold", "ls", *named).code == 0
    ended = run("hold", "ls", "--all", "--json", *named)
    assert (ended.code, key in ended.err, len(json.loads(ended.out)["holds"])) == (1, True, 1)
