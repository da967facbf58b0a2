"""What the readers of a rule still need: a doubt keeps more."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.group_offsets import Committed, StoredGroup
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.table_claims import TableClaims, claims_key
from ts_common.errors import ConfigurationError, CorruptData
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_tables import Tables
from tsctl.gc.needed import Needed, Readers
from tsctl.gc.policy import parse_policy
from tsctl.gc.retention import NeededFrom

RECORDED = Path(__file__).parents[2] / "data" / "spark-checkpoint"
ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # of topic t in the recorded checkpoint
DAY = 86_400_000
NOW = 20_000 * DAY


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def opened(archive: MadeArchive, *readers: Mapping[str, Any], ignored: Sequence[str] = ()) -> Needed:
    """Return what readers need that may stay behind for ten days; other tables too, except the ignored ones."""
    rule = {"topics": "t", "max_age": "1d", "until_read_by": list(readers), "longest_wait": "10d"}
    (parsed,) = parse_policy({"cluster": CLUSTER, "rules": [{**rule, "ignore_tables": list(ignored)}]}, "policy").rules
    return Readers(archive.store, archive.keys).needed(parsed)


def claim(archive: MadeArchive, table: str, needed_from: Mapping[str, int], days: int = 0) -> None:
    claims = TableClaims(table, "1", NOW - days * DAY, needed_from)
    archive.store.put(claims_key(archive.keys, table), claims.encode())


def commit_group(archive: MadeArchive, group: str, days: int = 0, **offsets: int) -> None:
    """Store commits of partition 0 of topics; `t_id` is the incarnation `t~id`."""
    committed = {
        TopicPartition(topic.replace("_", "~"), 0): Committed(offset, -1, NOW - days * DAY, "")
        for topic, offset in offsets.items()
    }
    archive.store.put(archive.keys.offsets_of(group), StoredGroup(group, NOW, committed).encode())


def put_incarnations(archive: MadeArchive, **days: int) -> None:
    """Write the incarnations of topic `t` by their ids, each first seen so many days ago."""
    lives = Incarnations("t")
    for topic_id, ago in days.items():
        lives = lives.opened(topic_id, NOW - ago * DAY, archive.keys)
    archive.store.put(archive.keys.incarnations("t"), lives.encode())


def needs(found: Needed, archive: MadeArchive, directory: str | None = None, partition: int = 0) -> Any:
    """Return offset and reader of what is needed of a partition of topic `t`."""
    need = found.first_needed(archive.keys.partition(TopicPartition("t", partition), directory), NOW)
    return None if need is None else (need.offset, need.reader)


def test_a_table_needs_what_it_has_not_claimed(archive: MadeArchive, tmp_path: Path) -> None:
    """A real one, which has read partition 0; it has never read partition 1."""
    archive.put_segment("t", 0, batches((0, 50)))
    archive.commit("t", 50, last_stable_offset=50)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake"}
    given = {"archive": {"url": archive.location, "cluster": CLUSTER}, "catalog": catalog}
    tables = Tables({**given, "tables": {"backup.t": {"topics": "t"}}}, workers=1)
    tables.create("backup.t")
    tables.run("backup.t")
    found = opened(archive, {"table": "backup.t"})
    assert needs(found, archive) == (50, "table backup.t")
    assert needs(found, archive, partition=1) == (0, "table backup.t (it has read nothing of t-1)")


def test_each_generation_of_a_table_counts(archive: MadeArchive) -> None:
    """Also if the first one is removed; another table with such a name is not one of them."""
    others = {"b.t_g": 1, "b.tt": 2, "b.t_g2_quarantine": 3}
    for table, offset in {"b.t": 50, "b.t_g2": 20, **others}.items():
        claim(archive, table, {"t-0": offset})
    assert needs(opened(archive, {"table": "b.t"}, ignored=[*others]), archive) == (20, "table b.t_g2")
    archive.store.delete([claims_key(archive.keys, "b.t")])
    assert needs(opened(archive, {"table": "b.t"}, ignored=[*others]), archive) == (20, "table b.t_g2")
    assert needs(opened(archive, {"table": "b.t"}, ignored=["b.tt", "b.t_g2_quarantine"]), archive) == (
        1,
        "table b.t_g",
    )


def test_a_table_that_the_policy_does_not_name_keeps_what_it_has_not_read(archive: MadeArchive) -> None:
    """Only of topics that it reads; the rule ignores it by name, with its generations."""
    claim(archive, "b.t", {"t-0": 30, "tt-0": 0, "t-1-0": 0}, days=11)
    claim(archive, "b.other", {"tt-0": 0, "t-1-0": 0})
    found = opened(archive)
    assert found.first_needed(archive.partition("t"), NOW) == NeededFrom(30, "table b.t", overdue=True)
    assert needs(found, archive, partition=1) == (0, "table b.t (it has read nothing of t-1)")
    assert needs(opened(archive, ignored=["b.t"]), archive) is None
    claim(archive, "b.t_g2", {"t-0": 10})
    assert needs(opened(archive, ignored=["b.t"]), archive) is None
    assert needs(opened(archive, ignored=["b"]), archive) == (10, "table b.t_g2")
    assert needs(opened(archive, {"table": "b.t_g2"}, ignored=["b.t"]), archive) == (10, "table b.t_g2")
    assert needs(opened(archive, {"table": "b.other"}, ignored=["b.t"]), archive) == (
        0,
        "table b.other (it has read nothing of t-0)",
    )


def test_claims_that_cannot_be_read_keep_everything(archive: MadeArchive) -> None:
    """No topic is excepted: the damaged object hides which topics the table reads. The message has the way out."""
    archive.store.put(claims_key(archive.keys, "b.t"), b"{")
    for found in (opened(archive), opened(archive, {"table": "b.t"})):
        with pytest.raises(CorruptData, match=r"claims/b\.t\.json.* ignore_tables: \[b\.t\] in the rule"):
            needs(found, archive)
    assert needs(opened(archive, ignored=["b.t"]), archive) is None


def test_the_reader_that_is_furthest_behind_counts(archive: MadeArchive) -> None:
    """Of equal ones that which is overdue."""
    claim(archive, "b.one", {"t-0": 50, "t-1": 70}, days=11)
    claim(archive, "b.two", {"t-0": 40, "t-1": 70}, days=9)
    found = opened(archive, {"table": "b.two"}, {"table": "b.one"})
    assert needs(found, archive) == (40, "table b.two")
    both = found.first_needed(archive.partition("t", 1), NOW)
    assert both == NeededFrom(70, "table b.one", overdue=True)
    assert found.first_needed(archive.partition("t", 0), NOW) == NeededFrom(40, "table b.two", overdue=False)
    later = found.first_needed(archive.partition("t", 0), NOW + 2 * DAY)
    assert later == NeededFrom(40, "table b.two", overdue=True)


def test_every_reader_that_does_not_exist_is_named(archive: MadeArchive, tmp_path: Path) -> None:
    """One of them is enough to delete nothing."""
    claim(archive, "b.t", {"t-0": 50})
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError) as found:
        opened(
            archive,
            {"table": "b.t"},
            {"table": "b.tt"},
            {"checkpoint": f"file://{tmp_path}/empty"},
            {"checkpoint": f"file://{tmp_path}/missing"},
            {"group": "billing"},
            {"kafka_group": "billing"},
        )
    names = [problem.rpartition(": ")[0] for problem in found.value.problems]
    for name, key in zip(
        names,
        (
            "until_read_by.1.table: b.tt",
            f"until_read_by.2.checkpoint: file://{tmp_path}/empty",
            f"until_read_by.3.checkpoint: file://{tmp_path}/missing",
            "until_read_by.4.group: billing",
            "until_read_by.5.kafka_group: billing",
        ),
        strict=True,
    ):
        assert name.startswith(key)
    assert "and b.t has written some" in found.value.problems[0]
    assert "--bootstrap-server" in found.value.problems[-1]


def test_damage_of_what_a_reader_wrote_is_an_error(archive: MadeArchive) -> None:
    """It does not count as nothing."""
    archive.store.put(archive.keys.offsets_of("g"), b"{")
    with pytest.raises(CorruptData, match=r"until_read_by\.0\.group: g: .*groups/g\.json"):
        opened(archive, {"group": "g"})


def test_a_stream_needs_what_its_last_complete_batch_has_not_read(archive: MadeArchive, tmp_path: Path) -> None:
    """In the incarnation of the topic id of its offset; another topic id is not the one it has read."""
    put_incarnations(archive, OLD=300, **{ID: 200}, NEW=100)
    place = Path(shutil.copytree(RECORDED, tmp_path / "checkpoint")).as_uri()
    name = f"checkpoint {place}"
    found = opened(archive, {"checkpoint": place})
    assert needs(found, archive, f"t~{ID}") == (200, name)
    assert needs(found, archive, f"t~{ID}", partition=1) == (0, name)
    assert needs(found, archive, "t~NEW") == (0, name)
    assert needs(found, archive, "t") is None
    with pytest.raises(CorruptData, match=r"t/incarnations\.json does not contain t~OTHER"):
        needs(found, archive, "t~OTHER")
    put_incarnations(archive, OLD=300, NEW=100)
    assert needs(opened(archive, {"checkpoint": place}), archive) == (0, name)
    shutil.rmtree(tmp_path / "checkpoint/commits")
    assert needs(opened(archive, {"checkpoint": place}), archive) == (0, f"{name} (it has read nothing of t-0)")


def test_a_group_of_the_endpoint_needs_what_it_has_not_committed(archive: MadeArchive) -> None:
    """Partitions without a commit from their start; its time is that of the partition's commit."""
    commit_group(archive, "g", days=11, t=30, other=70)
    found = opened(archive, {"group": "g"})
    need = found.first_needed(archive.partition("t"), NOW)
    assert need == NeededFrom(30, "group g", overdue=True)
    assert needs(found, archive, partition=1) == (0, "group g (it has read nothing of t-1)")


def test_a_groups_commit_before_a_topic_was_created_again_is_of_the_former_one(archive: MadeArchive) -> None:
    """The endpoint calls both by one name; a name with a topic id is certain."""
    put_incarnations(archive, OLD=300, NEW=100)
    commit_group(archive, "g", days=100, t=30)
    assert needs(opened(archive, {"group": "g"}), archive, "t~NEW") == (0, "group g (it has read nothing of t~NEW-0)")
    assert needs(opened(archive, {"group": "g"}), archive, "t") is None
    commit_group(archive, "g", days=99, t=30)
    assert needs(opened(archive, {"group": "g"}), archive, "t~NEW") == (30, "group g")
    commit_group(archive, "g", t_OLD=10, t=30)
    assert needs(opened(archive, {"group": "g"}), archive, "t") == (10, "group g")
    commit_group(archive, "g", other=30)
    assert needs(opened(archive, {"group": "g"}), archive, "t") == (0, "group g (it has read nothing of t-0)")


def test_a_table_that_follows_a_later_incarnation_needs_nothing_of_the_former(archive: MadeArchive) -> None:
    """Unless it has claims of it too."""
    put_incarnations(archive, OLD=300, NEW=100)
    claim(archive, "b.t", {"t~NEW-0": 5})
    found = opened(archive, {"table": "b.t"})
    assert (needs(found, archive, "t"), needs(found, archive, "t~NEW")) == (None, (5, "table b.t"))
    claim(archive, "b.t", {"t~NEW-0": 5, "t-0": 40})
    assert needs(opened(archive, {"table": "b.t"}), archive, "t") == (40, "table b.t")
    claim(archive, "b.t", {"t-0": 40})
    assert needs(opened(archive, {"table": "b.t"}), archive, "t~NEW") == (
        0,
        "table b.t (it has read nothing of t~NEW-0)",
    )


def test_a_groups_newest_commit_counts_wherever_the_endpoint_stored_it(archive: MadeArchive, tmp_path: Path) -> None:
    """An archive of several stores has groups in one of them, which changes with the file of locations."""
    commit_group(archive, "g", days=2, t=50)
    other = MadeArchive(tmp_path / "other")
    commit_group(other, "g", days=1, t=30)
    rules = [{"topics": "t", "max_age": "1d", "until_read_by": [{"group": "g"}]}]
    (rule,) = parse_policy({"cluster": CLUSTER, "rules": rules}, "p").rules
    with open_store(other.location) as store:
        found = Readers(archive.store, archive.keys, group_stores=[store]).needed(rule)
    assert needs(found, archive) == (30, "group g")
