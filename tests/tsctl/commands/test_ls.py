"""`tsctl ls`: the content of an archive, and names of archives, topics, partitions and incarnations."""

import json
import re
from pathlib import Path

import pytest

from dev.local.agent import write_config
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.tsctl.conftest import CODECS, FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import Run
from tests.uploader.beside import BUCKET

TOPIC_IDS = ("A" * 22, "B" * 22)


def test_a_real_archive_is_listed(shipped: Shipped, run: Run) -> None:
    """Offsets, segments, sizes and times are those of the broker's closed segments."""
    ended = run("ls", "--config", shipped.config, "--level", "segments", "--json")
    assert (ended.code, ended.err) == (0, "")
    topics = {topic["topic"]: topic for topic in ended.document["topics"]}
    assert list(topics) == [FIELDS, TRANSACTIONS]
    assert ended.document["cluster"] == "prod"
    for (topic, number), end in shipped.next_offsets.items():
        listed = next(part for part in topics[topic]["partitions"] if part["partition"] == number)
        assert (listed["log_start"], listed["next_offset"], listed["holes"]) == (0, end, [])
        directory = shipped.cluster.brokers[1].partition_directory(topic, number)
        closed = {int(path.stem): path.stat().st_size for path in directory.glob("*.log") if int(path.stem) < end}
        assert {segment["base"]: segment["bytes"] for segment in listed["segment_list"]} == closed
        assert listed["bytes"] == sum(closed.values())
        assert {segment["state"] for segment in listed["segment_list"]} == {"live"}
        assert "timeindex" in listed["segment_list"][0]["indexes"]
        if topic == FIELDS:
            assert listed["records"] == len(shipped.of(topic, number))
            assert listed["time_max"] == "2023-11-14T22:18:20.000Z"  # 300 s after the first


def test_tables_have_a_row_for_each(shipped: Shipped, run: Run) -> None:
    """Without a terminal they are plain text: one line for each row, not wrapped, without colours."""
    for depth, rows in (("topics", 2), ("partitions", len(CODECS) + 1)):
        lines = run("ls", "--config", shipped.config, "-l", depth).out.splitlines()
        assert len(lines) == rows + 1
    lines = run("ls", FIELDS, "-p", "1", "--config", shipped.config, "-l", "segments").out.splitlines()
    assert lines[0].split()[:4] == ["PARTITION", "SEGMENT", "END", "STATE"]
    assert lines[1].split()[:2] == [f"{FIELDS}-1", "0" * 20]
    assert "\x1b" not in "".join(lines)


def test_topics_are_named_or_matched(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """A name matches one topic, also with a dot; text that cannot be a name is an expression for whole names."""
    for name in ("a.b", "axb", "a.b.c"):
        hand_made.put_segment(name, 0, batches((0, 5)))
        hand_made.commit(name, 5)

    def listed(*topics: str) -> list[str]:
        return [topic["topic"] for topic in run("ls", *topics, *named, "--json").document["topics"]]

    assert listed("a.b") == ["a.b"]
    assert listed("(a.b)") == ["a.b", "axb"]
    assert listed("a.b.*", "axb") == ["a.b", "a.b.c", "axb"]
    assert listed() == ["a.b", "a.b.c", "axb"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tt"], "topic tt: cluster prod in .* has no such topic; did you mean t[?]"),
        (["x.*"], "topic x[.][*]: cluster prod in .* has no such topic; it contains t"),
        (["("], "is not a regular expression"),
        (["t", "-p", "1-x"], "--partition=1-x: expected numbers and ranges"),
        (["t", "-p", "5-3"], "--partition=5-3: expected numbers and ranges"),
        (["t", "-p", "0,7"], "no partition 7 of topic t; it has 0"),
        (["t", "--incarnation", "2"], "there is only 1"),
        (["t", "--incarnation", "last"], "--incarnation=last: newest, oldest, a number"),
        (["--entropy-bits", "5"], "found with no --entropy-bits: set that option"),
        (["--entropy-bits", "500"], "--entropy-bits=500: a whole number from 0 to 128"),
    ],
)
def test_u21_what_does_not_exist_is_reported(
    hand_made: Archive, named: tuple[str, ...], run: Run, arguments: list[str], told: str
) -> None:
    """The exit code is 2, the message has the way out, and standard output is empty."""
    hand_made.put_segment("t", 0, batches((0, 5)))
    hand_made.commit("t", 5)
    ended = run("ls", *arguments, *named)
    assert ended.code == 2
    assert re.search(told, ended.err)
    assert ended.out == ""


def test_u21_an_archive_that_is_not_named_is_reported(run: Run, tmp_path: Path) -> None:
    """All problems are reported at once, each with its option."""
    ended = run("ls", "--url", "s4://bucket", "--entropy-bits", "-1")
    assert ended.code == 2
    for told in ("s4", "--cluster is missing", "--entropy-bits=-1"):
        assert told in ended.err
    assert "give --config FILE_OR_DIR" in run("ls").err
    assert "the directory has no such file" in run("ls", "--config", tmp_path).err
    assert "there is no such file" in run("ls", "--config", tmp_path / "prod.properties").err
    ended = run("ls", "--url", f"file://{tmp_path}/nowhere", "--cluster", "prod")
    assert (ended.code, "nowhere" in ended.err) == (2, True)


def test_a_directory_of_several_clusters_requires_the_name_of_one(hand_made: Archive, run: Run, tmp_path: Path) -> None:
    """`--cluster` chooses among the files of a directory."""
    hand_made.put_segment("t", 0, batches((0, 5)))
    hand_made.commit("t", 5)
    for cluster in ("prod", "test"):
        write_config(tmp_path / "conf", cluster, {"storage.service.endpoint.url": hand_made.location})
    ended = run("ls", "--config", tmp_path / "conf")
    assert (ended.code, "prod.properties, test.properties: choose one with --cluster" in ended.err) == (2, True)
    assert run("ls", "--config", tmp_path / "conf", "--cluster", "prod").code == 0
    assert run("ls", "--config", tmp_path / "conf" / "prod.properties", "--cluster", "test").code == 2


def test_topics_in_several_locations_are_one_archive(shipped: Shipped, run: Run, tmp_path: Path) -> None:
    """Each topic is read where the file places it; objects in other locations are reported and left out."""
    one, other = (Archive(f"s3://{BUCKET}/{name}") for name in ("one", "other"))
    for archive, topics in ((one, ("a", "b")), (other, ("b",))):
        for topic in topics:
            archive.put_segment(topic, 0, batches((0, 5)))
            archive.commit(topic, 5)
    path = write_config(tmp_path / "conf", "prod", {"storage.service.endpoint.provider.class": "json"})
    endpoints = {
        "default": {"bucket": BUCKET, "prefix": "one"},
        "topics": {"b": {"bucket": BUCKET, "prefix": "other"}},
    }
    path.with_name("prod.endpoints.json").write_text(json.dumps(endpoints))
    ended = run("ls", "--config", tmp_path / "conf", "--json")
    assert ended.code == 0
    found = {topic["topic"]: topic["location"] for topic in ended.document["topics"]}
    assert found == {"a": one.location, "b": other.location}
    prefixes = {topic["partitions"][0]["prefix"] for topic in ended.document["topics"]}
    assert prefixes == {f"one/{one.partition('a').prefix}", f"other/{other.partition('b').prefix}"}
    (warning,) = ended.document["warnings"]
    assert warning.endswith("holds objects of b, which the file places elsewhere: left out")


def test_earlier_incarnations_are_listed_if_requested(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """The newest is the default; each can be chosen by number or topic id, or all of them."""
    hand_made.put_incarnations("t", *TOPIC_IDS)
    hand_made.put_segment("t", 0, batches((0, 5)))
    hand_made.commit("t", 5)
    later = f"prod/t~{TOPIC_IDS[1]}-0/"
    hand_made.store.put(f"{later}offset.wm", hand_made.store.get("prod/t-0/offset.wm")[0])

    def listed(*arguments: str) -> list[tuple[int, str, int]]:
        topics = run("ls", "t", *named, "--json", *arguments).document["topics"]
        return [(topic["incarnation"], topic["topic_id"], topic["segments"]) for topic in topics]

    first, second = (1, TOPIC_IDS[0], 1), (2, TOPIC_IDS[1], 0)
    assert listed() == [second]
    assert listed("--incarnation", "oldest") == [first]
    assert listed("--incarnation", TOPIC_IDS[0]) == [first]
    assert listed("--all-incarnations") == [first, second]


def test_r05_a_live_segment_is_listed_apart_from_partial_dead_and_uncommitted_ones(
    hand_made: Archive, named: tuple[str, ...], run: Run
) -> None:
    """The commit's epochs, log start and the next offset decide it."""
    hand_made.put_segment("t", 0, batches(*steps(0, 10)))
    hand_made.put_segment("t", 10, batches((10, 20), (20, 30)))
    hand_made.put_segment("t", 20, batches((20, 30), epoch=1))
    hand_made.put_segment("t", 25, batches((25, 30)), variant=True)
    hand_made.put_segment("t", 30, batches((30, 40), epoch=1))
    hand_made.commit("t", 30, epochs=((0, 0), (1, 20)), log_start=5)
    (topic,) = run("ls", "t", *named, "-l", "segments", "--json").document["topics"]
    (partition,) = topic["partitions"]
    assert [(segment["base"], segment["state"], segment["live"]) for segment in partition["segment_list"]] == [
        (0, "part", [5, 10]),
        (10, "part", [10, 20]),
        (20, "live", [20, 30]),
        (25, "dead", None),
        (30, "uncommitted", None),
    ]


def test_r12c_segments_without_a_commit_are_listed_with_a_warning(
    hand_made: Archive, named: tuple[str, ...], run: Run
) -> None:
    """Readers do not see them, and the warning reports that."""
    hand_made.put_segment("t", 0, batches((0, 5)))
    ended = run("ls", *named, "-l", "segments")
    assert ended.code == 0
    assert "t-0: beginning: 1 segment from offset 0 on and no prod/t-0/offset.wm yet" in ended.err
    assert "uncommitted" in ended.out


def test_a_wrong_cluster_is_answered_with_the_clusters_of_the_store(
    hand_made: Archive, named: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--clusters` lists them without one, also with the variable in place of `--config`."""
    hand_made.put_segment("t", 0, batches((0, 5)))
    hand_made.commit("t", 5)
    ended = run("ls", "--url", hand_made.location, "--cluster", "pord")
    assert (ended.code, "it has prod; check the location and the cluster" in ended.err) == (2, True)
    document = run("ls", "--clusters", "--url", hand_made.location, "--json").document
    assert [each["cluster"] for each in document["clusters"]] == ["prod"]
    assert run("ls", "--clusters", *named).out.split()[-1] == "prod"
    ended = run("ls", "orders", "--url", hand_made.location)
    assert (ended.code, f"`tsctl ls --url {hand_made.location}` lists the clusters there" in ended.err) == (2, True)


def test_a_location_alone_lists_its_clusters_and_an_empty_one_is_a_message(
    hand_made: Archive, run: Run, tmp_path: Path
) -> None:
    """As `--clusters` does; the message has the location and what to check, and no table is printed."""
    ended = run("ls", "--url", f"file://{tmp_path}")
    assert (ended.code, ended.out) == (2, "")
    assert f"file://{tmp_path}: no cluster found: " in ended.err
    assert "check the location: bucket and base prefix" in ended.err
    hand_made.put_segment("t", 0, batches((0, 5)))
    ended = run("ls", "--url", hand_made.location)
    assert (ended.code, ended.out) == (0, run("ls", "--clusters", "--url", hand_made.location).out)
    assert ended.out.split()[-1] == "prod"
