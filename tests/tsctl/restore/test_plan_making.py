"""What a plan has from snapshots of metadata, if the cluster has deleted the topic since."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, MINUTE, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from tsctl.restore.archive_plan import wanted_of
from tsctl.restore.plan_making import Snapshots, places_of

NOW = 1_700_000_000_000 // HOUR * HOUR
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def put_topics(archive: MadeArchive, at: int, topic_id: str | None = "id", **factors: int) -> None:
    """Put a snapshot with topics of one partition, by their replication factors."""
    topics = {name: Topic(topic_id, (tuple(range(1, factor + 1)),), {}) for name, factor in factors.items()}
    ClusterSnapshot(at, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, at // MINUTE * MINUTE)


def put_groups(archive: MadeArchive, at: int, **groups: dict[TopicPartition, int]) -> None:
    """Put a snapshot with offsets of groups."""
    offsets = {
        name: {each: GroupOffset(offset, 0, "") for each, offset in held.items()} for name, held in groups.items()
    }
    GroupsSnapshot(at, offsets).put(archive.store, archive.keys, at // FIVE_MINUTES * FIVE_MINUTES)


def of_deleted(archive: MadeArchive, *topics: str) -> Snapshots:
    return Snapshots.of_deleted([archive.store], archive.keys, NOW, {name: {"id"} for name in topics})


def test_each_topic_is_as_the_newest_snapshot_that_names_it(archive: MadeArchive) -> None:
    """Later snapshots lack it: the newest one of all has neither its replicas nor its configurations."""
    put_topics(archive, NOW - 5 * HOUR, t=1, u=1)
    put_topics(archive, NOW - 4 * HOUR, t=2, u=1)
    put_topics(archive, NOW - 3 * HOUR, u=2)
    put_topics(archive, NOW - 2 * HOUR, v=2)
    put_topics(archive, NOW - HOUR, "other", t=3)  # a client created it again
    found = of_deleted(archive, "t", "u").cluster
    assert found is not None
    assert {name: each.replication_factor for name, each in found.topics.items()} == {"t": 2, "u": 2}
    assert of_deleted(archive, "never").cluster is None


def test_offsets_that_kafka_deleted_with_the_topic_are_found(archive: MadeArchive) -> None:
    """Kafka deletes one group after the other, so a snapshot in between lacks some; those of long ago do not count."""
    put_topics(archive, NOW - 4 * HOUR, t=1)
    put_topics(archive, NOW - 3 * HOUR, v=1)
    put_groups(archive, NOW - 6 * HOUR, ancient={T: 1})
    put_groups(archive, NOW - 4 * HOUR, one={T: 10}, two={T: 20, U: 5})
    put_groups(archive, NOW - 4 * HOUR + FIVE_MINUTES, one={T: 11}, two={T: 21})
    put_groups(archive, NOW - 4 * HOUR + 2 * FIVE_MINUTES, two={T: 22})
    put_groups(archive, NOW - 3 * HOUR, two={U: 6})
    found = of_deleted(archive, "t").groups
    assert found is not None
    offsets = {name: {each: held.offset for each, held in group.items()} for name, group in found.groups.items()}
    assert offsets == {"one": {T: 11}, "two": {T: 22}}


def test_offsets_of_a_topic_that_was_created_again_do_not_count(archive: MadeArchive) -> None:
    """A group that committed in both would leave out records of the old one, or repeat all of them."""
    put_topics(archive, NOW - 4 * HOUR, t=1, u=1)
    put_groups(archive, NOW - 3 * HOUR - FIVE_MINUTES, g={T: 5, U: 6})
    put_topics(archive, NOW - 3 * HOUR, "other", t=1)  # of the same round as the next
    put_groups(archive, NOW - 3 * HOUR, g={T: 17, U: 7})
    put_topics(archive, NOW - 3 * HOUR + FIVE_MINUTES, "another", t=1)
    found = of_deleted(archive, "t", "u").groups
    assert found is not None
    assert {each: held.offset for each, held in found.groups["g"].items()} == {T: 5, U: 7}


@pytest.mark.parametrize(
    ("brokers", "seed", "text"),
    [("1,01", None, "--brokers=1,01"), ("1,x", None, "--brokers=1,x"), ("9,1", "09@h:1", "--seed=09@h:1")],
)
def test_one_broker_is_not_named_twice(brokers: str, seed: str | None, text: str) -> None:
    """By its number, however that is written: a seed that is a home would keep its replicas."""
    with pytest.raises(ConfigurationError, match=text):
        wanted_of(brokers, None, None, (), None, seed)
    assert wanted_of("3, 1", None, None, (), None, "9@h:1").brokers == (3, 1)


def test_files_are_placed_on_a_home_that_is_restarted() -> None:
    """It keeps them; a partition without such a home is copied from another of these brokers."""
    assert places_of((1, 2), (), 0) == ((1, 2), ())
    assert places_of((1, 2), (2, 3), 0) == ((2,), (1, 2))
    assert [places_of((1,), (2, 3), number)[0] for number in range(3)] == [(2,), (3,), (2,)]


def test_a_seed_and_restarts_exclude_each_other() -> None:
    """One broker gets the files."""
    assert wanted_of("1,2", None, None, (), None, None, "1").first == (1,)
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        wanted_of("1,2", None, None, (), None, "9@seed:9092", "1")
