"""Snapshots of the commits of a stream's topics."""

import re

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_reader.following.commit_snapshot import CommitSnapshot, Observer
from ts_reader.query.query import Query, Subscription

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"
ZERO = TopicPartition("t", 0)
TOPIC = Subscription(("t",))


def observer(archive: MadeArchive, subscription: Subscription = TOPIC, **fields: object) -> Observer:
    values = {"subscription": subscription, **fields}
    return Observer(archive.store, Query(archive.location, CLUSTER, 0, **values))  # type: ignore[arg-type]  # one dict for several types


def ends(look: CommitSnapshot) -> dict[str, tuple[int, int]]:
    return {str(partition): (end.next_offset, end.shown) for partition, end in look.ends.items()}


@pytest.fixture
def one(archive: MadeArchive) -> MadeArchive:
    """Return an archive with the topic `t`: one partition with the segment [0, 100)."""
    archive.put_segment("t", 0, batches((0, 100)))
    archive.commit("t", 100)
    return archive


def test_a_snapshot_has_the_commits_of_its_moment(one: MadeArchive) -> None:
    """Later commits, partitions and topics of a pattern are in the next one."""
    watching = observer(one, Subscription(pattern=re.compile("^[tu]$")))
    assert ends(watching.look(is_first=True)) == {"t-0": (100, 100)}
    for topic, partition in (("t", 1), ("u", 0)):
        one.put_segment(topic, 0, batches((0, 5)), partition=partition)
        one.commit(topic, 5, partition=partition)
    one.put_segment("t", 100, batches((100, 120)))
    one.commit("t", 120, highest_base=100)
    assert ends(watching.look(is_first=False)) == {"t-0": (120, 120), "t-1": (5, 5), "u-0": (5, 5)}


def test_r02_committed_records_end_at_the_last_stable_offset(one: MadeArchive) -> None:
    """The commit's, or that of the view if the commit lacks it."""
    one.commit("t", 100, last_stable_offset=40)
    assert ends(observer(one, read_committed=True).look(is_first=True)) == {"t-0": (100, 40)}
    one.commit("t", 100)
    assert ends(observer(one, read_committed=True).look(is_first=True)) == {"t-0": (100, 100)}
    one.store.put(one.partition("t").commit, b"%020d" % 0)
    assert ends(observer(one).look(is_first=True)) == {"t-0": (100, 100)}


def test_only_the_first_look_needs_what_the_query_names(one: MadeArchive) -> None:
    """A topic or partition that disappears later is for the caller to judge."""
    for subscription, told in (
        (Subscription(("t", "x")), "topic x: .* has no such topic"),
        (Subscription(assigned={"t": (0, 3)}), "partitions: the store has no partition 3 of topic t, only 0"),
    ):
        watching = observer(one, subscription)
        with pytest.raises(QueryError, match=told):
            watching.look(is_first=True)
        assert ends(watching.look(is_first=False)) == {"t-0": (100, 100)}


def test_a_snapshot_is_of_the_newest_incarnation(one: MadeArchive) -> None:
    """Keys of a former one are found by its id, and of one that the store lacks not at all."""
    watching = observer(one)
    assert (watching.look(is_first=True).topic_ids, watching.look(is_first=True).topics["t"].is_first) == ({}, True)
    one.put_incarnations("t", FIRST, SECOND)
    topic = watching.look(is_first=False).topics["t"]
    assert (topic.topic_id, topic.is_first, topic.ends) == (SECOND, False, {})
    assert watching.keys_of([ZERO], FIRST) == watching.keys_of([ZERO], None) == [one.partition("t")]
    assert watching.keys_of([ZERO], "AAAAAAAAAAAAAAAAAAAA-w") is None
