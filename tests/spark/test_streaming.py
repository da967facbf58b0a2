"""Streams: every row once, whatever happens between two batches. What Spark asks is in `streams.py`."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.made_archive import CLUSTER, batches, steps
from tests.spark.archives import Archive
from tests.spark.streams import Query
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.lineage import Lineage
from ts_common.errors import ConfigurationError, DataLoss, QueryError, StoreUnavailable
from ts_common.model import TopicPartition
from ts_common.query.query import Edge, Offsets
from ts_common.store.contract import ObjectInfo
from ts_spark.options.batch_limits import MinOffsetsDelay, Rates, limited, parse_duration
from ts_spark.options.parse import parse_options
from ts_spark.options.schema import full_schema
from ts_spark.options.spark_query import Kind
from ts_spark.source import KafkaSegmentsSource

ID_ONE, ID_TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"
EARLIEST = {"subscribe": "t", "startingOffsets": "earliest"}
LENIENT = {**EARLIEST, "failOnDataLoss": "false"}


@pytest.fixture
def two(archive: Archive) -> Archive:
    """Topic `t`: segments [0, 100) and [100, 200), of which the first is committed."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 100)
    return archive


def warnings_of(logs: list[Any]) -> list[str]:
    return [entry["message"] for entry in logs if entry["log_level"] == "warning"]


def test_batches_follow_the_commit(two: Archive) -> None:
    """What is shipped and not committed does not appear; an answer without news is the same text."""
    query = Query(two, **EARLIEST)
    assert [offset for *_, offset in query.trigger()] == list(range(100))
    assert query.trigger() == []
    two.commit("t", 200, highest_base=100)
    assert [offset for *_, offset in query.trigger()] == list(range(100, 200))
    two.put_segment("t", 200, batches((200, 230)))
    two.commit("t", 230, highest_base=200)
    query.trigger()
    assert query.offsets_of() == list(range(230))
    assert query.positions() == {"t": {"0": 230}, "~epochs": {"t": {"0": 0}}}


def test_a_stream_begins_at_latest_by_default(two: Archive) -> None:
    """As Spark's Kafka source; what comes later is read."""
    query = Query(two, subscribe="t")
    assert query.trigger() == []
    two.commit("t", 150, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(100, 150))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"startingOffsets": '{"t":{"0":42}}'}, 42),
        ({"startingOffsets": '{"t":{"0":-1}}'}, 100),
        ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
        ({"startingTimestamp": "1033"}, 33),
        ({"startingOffsetsByTimestamp": '{"t":{"0":1077}}'}, 77),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, 100),
    ],
)
def test_a_stream_begins_where_the_options_say(two: Archive, start: dict[str, str], first: int) -> None:
    """In the words of a batch query, and -1."""
    query = Query(two, subscribe="t", **start)
    query.trigger()
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(first, 200))


def test_a_start_outside_the_view_is_data_loss(two: Archive) -> None:
    """As in a batch query."""
    two.commit("t", 100, log_start=50)
    with pytest.raises(DataLoss, match="t-0: offsets 10 to 49 are lost: below the log's start 50"):
        Query(two, subscribe="t", startingOffsets='{"t":{"0":10}}').trigger()
    with pytest.raises(QueryError, match="startingOffsets: nothing for t-0"):
        Query(two, subscribe="t", startingOffsets='{"t":{"1":10}}').trigger()


@pytest.mark.parametrize("start", ["earliest", "latest", '{"t":{"0":30}}'])
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_that_is_run_again_has_the_same_rows(two: Archive, start: str, first: bool) -> None:
    """A driver killed before a batch is committed replays it from its two offsets, though the commit has moved on; also
    the first batch, of which Spark keeps the end only."""
    options = {"subscribe": "t", "startingOffsets": start}
    query = Query(two, **options)
    if not first:
        query.trigger()
        two.commit("t", 130, highest_base=100)
    query.trigger(dies=True)
    before = dict(query.sink)
    two.commit("t", 200, highest_base=100)
    query.start(**options)
    assert query.sink == before
    query.trigger()
    begin = {"earliest": 0, "latest": 100}.get(start, 30)
    assert query.offsets_of() == list(range(begin, 200))


def test_killed_20_times_every_row_arrives_once(two: Archive) -> None:
    """Before and after the sink has a batch, while the commit moves on."""
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="7")
    for number in range(20):
        two.commit("t", 100 + 5 * number, highest_base=100)
        query.trigger(dies=number % 3 != 0)
        query.start(**EARLIEST, maxOffsetsPerTrigger="7")
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(195))
    assert len(query.sink) == 21


def test_new_partitions_and_topics_begin_at_their_first_offset(two: Archive) -> None:
    """Also where a stream began at latest, and where the pattern matches only later; the rest goes on."""
    query = Query(two, subscribePattern="t|late", startingOffsets="latest")
    query.trigger()
    two.put_segment("t", 40, batches((40, 50)), partition=1)
    two.commit("t", 50, partition=1, log_start=40, highest_base=40)
    two.put_segment("late", 0, batches((0, 5)))
    two.commit("late", 5)
    two.commit("t", 120, highest_base=100)
    query.trigger(dies=True)
    query.start(subscribePattern="t|late")
    assert query.trigger() == []
    assert query.offsets_of("t", 1) == list(range(40, 50))
    assert query.offsets_of("late") == list(range(5))
    assert query.offsets_of() == list(range(100, 120))
    assert query.positions()["~began"] == {"late": {"0": 0}, "t": {"1": 40}}


def test_a_pattern_may_match_nothing_yet_and_a_name_may_not(two: Archive) -> None:
    """Topics that are to come need a pattern; a wrong name is told as in a batch query."""
    query = Query(two, subscribePattern="u.*")
    assert query.trigger() == []
    two.put_segment("u1", 0, batches((0, 5)))
    two.commit("u1", 5)
    query.trigger()
    assert query.offsets_of("u1") == list(range(5))
    with pytest.raises(QueryError, match=r"topic x: .* does not hold it; it holds t, u1"):
        Query(two, subscribe="x").trigger()
    with pytest.raises(QueryError, match="assign: the store holds no partition 3 of topic t, only 0"):
        Query(two, assign='{"t":[0,3]}').trigger()


def test_only_assigned_partitions_are_followed(two: Archive) -> None:
    """A partition that appears beside them is not read."""
    query = Query(two, assign='{"t":[0]}', startingOffsets="earliest")
    two.put_segment("t", 0, batches((0, 5)), partition=1)
    two.commit("t", 5, partition=1)
    query.trigger()
    assert {partition for _, partition, _ in query.rows()} == {0}


def test_max_offsets_per_trigger_are_shared_out(two: Archive) -> None:
    """By how far each partition is behind, and at least one offset of each, as Spark's Kafka source does."""
    two.put_segment("t", 0, batches((0, 10)), partition=1)
    two.commit("t", 10, partition=1)
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="11")
    sizes = []
    while rows := query.trigger():
        sizes.append((sum(partition == 0 for _, partition, _ in rows), sum(partition == 1 for _, partition, _ in rows)))
    assert sizes[0] == (10, 1)
    assert all(0 < first + second <= 12 for first, second in sizes)
    assert query.offsets_of() == list(range(100))
    assert query.offsets_of("t", 1) == list(range(10))


def test_limits_count_from_the_checkpoint_after_a_restart(two: Archive) -> None:
    """Spark does not say where the query stands when it asks for more."""
    options = {**EARLIEST, "maxOffsetsPerTrigger": "30"}
    query = Query(two, **options)
    query.trigger()
    query.start(**options)
    assert [offset for *_, offset in query.trigger()] == list(range(30, 60))


def test_limits_are_those_of_sparks_kafka_source() -> None:
    """Shares are rounded down, small ones up to one offset; what fell stays as it is."""
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert limited(10, {a: 0, b: 100, c: 50}, {a: 900, b: 200, c: 40}) == {a: 9, b: 101, c: 40}
    assert limited(10, {a: 0, b: 5}, {a: 4, b: 6}) == {a: 4, b: 6}
    assert limited(3, {a: 0, b: 0, c: 0}, {a: 9, b: 9, c: 9}) == {a: 1, b: 1, c: 1}


def test_min_offsets_per_trigger_wait_but_not_for_ever() -> None:
    """The first batch comes at once, others with enough offsets or after the delay."""
    patience = MinOffsetsDelay(Rates(least_offsets=50, longest_wait_milliseconds=1000))
    asked = [(1, 0), (49, 10), (50, 20), (1, 1019), (1, 1020)]
    assert [patience.waits(available, now) for available, now in asked] == [False, True, False, True, False]


def test_a_batch_that_waits_is_no_news(two: Archive) -> None:
    """The answer is the offset where the query stands."""
    query = Query(two, **EARLIEST, minOffsetsPerTrigger="60", maxTriggerDelay="10m")
    query.trigger()
    two.commit("t", 150, highest_base=100)
    assert query.trigger() == []
    two.commit("t", 160, highest_base=100)
    assert len(query.trigger()) == 60


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("70", 70)]
)
def test_durations_are_in_sparks_spelling(text: str, milliseconds: int) -> None:
    """A bare number is milliseconds."""
    assert parse_duration(text) == milliseconds


def test_an_idle_stream_looks_once_a_second(two: Archive) -> None:
    """Spark asks again at once without a trigger interval, and each look is some requests."""
    query = Query(two, **EARLIEST)
    query.trigger()
    query.trigger()
    assert query.pauses == []
    query.now += 0.25
    query.trigger()
    assert query.pauses == [0.75]
    query.now += 5
    query.trigger()
    assert query.pauses == [0.75]


def test_segments_are_described_once(two: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.log` never changes: later batches ask for the metadata of new ones only."""
    asked: list[str] = []

    def noted(key: str) -> ObjectInfo:
        asked.append(key)
        return head(key)

    query = Query(two, **EARLIEST)
    query.trigger()
    store = query._driver._store
    head = store.head
    monkeypatch.setattr(store, "head", noted)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert asked == [f"{CLUSTER}/t-0/00000000000000000100.log"]


def elected(archive: Archive, end: int) -> None:
    """An unclean election in topic `t` at offset 60; the new leader's log goes on to `end`."""
    archive.put_segment("t", 60, batches((60, 140), epoch=1, value=b"new"))
    archive.commit("t", end, epochs=((0, 0), (1, 60)), highest_base=60)


@pytest.mark.parametrize("end", [60, 100, 140])
def test_u26_what_an_election_took_back_is_data_loss(two: Archive, end: int) -> None:
    """Whether the next offset lies below the stream's position when it looks again, at it, or above it already."""
    query = Query(two, **EARLIEST)
    query.trigger()
    elected(two, end)
    told = "t-0: offsets 60 to 99 are lost: an election removed them after they were read"
    with pytest.raises(DataLoss, match=told):
        query.trigger()
    with capture_logs() as logs:
        query.start(**LENIENT)
        assert query.trigger() == []
        query.trigger()
        elected(two, 140)
        query.trigger()
    assert warnings_of(logs) == [told]
    assert query.offsets_of() == [*range(100), *range(60, 140)]
    assert all(row["value"] == b"new" for number in (2, 3) for row in query.sink.get(number, []))


def test_u30_a_commit_that_is_rebuilt_below_the_stream_brings_no_row_twice(two: Archive) -> None:
    """It went back further than the run that it lost, on the same line: the stream waits until it has passed."""
    query = Query(two, **EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(100))
    two.commit("t", 60)
    query.trigger()
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_u26_an_election_before_a_batch_is_run_again_is_data_loss(two: Archive) -> None:
    """The batch ends where the logs part, and the next one goes on there: nothing of the new log is read twice."""
    query = Query(two, **EARLIEST)
    query.trigger(dies=True)
    elected(two, 140)
    with pytest.raises(DataLoss, match="t-0: offsets 60 to 99 are lost: an election removed them"):
        query.start(**EARLIEST)
    query.start(**LENIENT)
    for _ in range(3):
        query.trigger()
    assert query.offsets_of() == list(range(140))


@pytest.mark.parametrize("is_written", [True, False])
def test_u26_a_stream_follows_a_log_start_that_went_down(two: Archive, is_written: bool) -> None:
    """An empty replica won: `log.start` goes down from 50 with a new lineage, and nothing of the new log is missed.

    The same where the agent was killed between the commit and `log.start`.
    """
    keys = two.partition("t")
    two.commit("t", 100, log_start=50)
    query = Query(two, **LENIENT)
    query.trigger()
    two.put_segment("t", 0, batches((0, 140), epoch=1, value=b"new"), variant=True)
    lineage = Lineage(1, 0, 100)
    commit = Commit(0, 140, 1, EpochHistory(((1, 0),)), None, None, 1, 0, "nonce", lineage=lineage)
    two.store.put(keys.commit, commit.encode())
    if is_written:
        two.store.put(keys.log_start, LogStart(0, lineage).encode())
    with capture_logs() as logs:
        query.trigger()
        query.trigger()
    assert warnings_of(logs) == ["t-0: offsets 0 to 99 are lost: an election removed them after they were read"]
    assert query.offsets_of() == [*range(50, 100), *range(140)]


def test_an_election_that_lost_nothing_of_the_stream_is_none(two: Archive) -> None:
    """A new epoch from the stream's position on."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_segment("t", 100, batches((100, 130), epoch=1), variant=True)
    two.commit("t", 130, epochs=((0, 0), (1, 100)), highest_base=100)
    assert len(query.trigger()) == 30


def test_what_retention_took_is_data_loss(two: Archive) -> None:
    """The log's start passed the stream: an error, or on from there."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.store.delete([two.partition("t").log_start])
    two.commit("t", 200, log_start=150, highest_base=100)
    with pytest.raises(DataLoss, match="t-0: offsets 100 to 149 are lost: below the log's start 150"):
        query.trigger()
    query.start(**LENIENT)
    assert query.offsets_of() == [*range(100), *range(150, 200)]


def test_r03_a_hole_is_data_loss(two: Archive) -> None:
    """As in a batch query; what is behind it is read."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_segment("t", 300, batches((300, 310)))
    two.commit("t", 310, highest_base=300)
    with pytest.raises(DataLoss, match="t-0: offsets 200 to 299 are lost: no object in the store holds them"):
        query.trigger()
    query.start(**LENIENT)
    assert query.offsets_of() == [*range(200), *range(300, 310)]


def created_again(archive: Archive) -> None:
    """Topic `t` anew: its records are longer than what the stream has read."""
    archive.put_incarnations("t", ID_ONE, ID_TWO)
    new = Archive(archive.location)
    plain = new.keys
    later = plain.partition(TopicPartition("t", 0), plain.later_incarnation("t", ID_TWO))
    archive.put_segment("source", 0, batches((0, 300), value=b"new"))
    archive.commit("source", 300)
    prefix = archive.partition("source").prefix
    for info in list(archive.store.list(prefix)):
        data, held = archive.store.get(info.key)
        archive.store.put(info.key.replace(prefix, later.prefix), data, metadata=held.metadata)


@pytest.mark.parametrize("id_known", [True, False])
def test_u09_a_topic_that_is_created_again_is_not_read_from_the_middle(two: Archive, id_known: bool) -> None:
    """Its offsets begin anew: data loss that names both, or the new one from its first offset."""
    if id_known:
        two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger()
    created_again(two)
    told = (
        f"topic t was deleted and created again (topic id {ID_ONE if id_known else 'none'}, now {ID_TWO}): records of "
        "the former one from offset 100 of t-0 on are not read"
    )
    with pytest.raises(DataLoss) as caught:
        query.trigger()
    assert told in str(caught.value)
    with capture_logs() as logs:
        query.start(**LENIENT)
        query.trigger()
        assert query.trigger() == []
    assert warnings_of(logs) == [told]
    assert query.offsets_of() == [*range(100), *range(300)]
    assert all(row["value"] == b"new" for row in query.sink[1])


def test_r11_a_batch_of_a_former_incarnation_is_run_again_from_it(two: Archive) -> None:
    """A topic that is created again between planning a batch and running it changes nothing about that batch."""
    two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger(dies=True)
    before = dict(query.sink)
    created_again(two)
    query.start(**EARLIEST)
    assert query.sink == before


def test_a_replaced_topic_id_is_no_new_incarnation(two: Archive) -> None:
    """An operator let a second id continue the life (KAFKA-14190): the stream goes on, also over a restart."""
    two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger()
    known, _ = read_incarnations(two.store, two.keys, "t")
    two.store.put(two.keys.incarnations("t"), known.adopted(ID_TWO, 5).encode())
    two.commit("t", 200, highest_base=100)
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(200))
    assert query.positions()["~topicIds"] == {"t": ID_ONE}


def test_the_first_topic_id_that_is_seen_is_no_new_incarnation(two: Archive) -> None:
    """A cluster that learns of topic ids."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_incarnations("t", ID_ONE)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))
    assert query.positions()["~topicIds"] == {"t": ID_ONE}


@pytest.mark.parametrize("gone", ["offset.wm", "everything", "incarnations"])
def test_u30_what_is_gone_is_told_and_never_read_twice(two: Archive, gone: str) -> None:
    """An error; or a warning, and the position stays for what comes back."""
    two.put_incarnations("t", ID_ONE)
    two.put_segment("other", 0, batches((0, 5)))
    two.commit("other", 5)
    options = {"subscribe": "t,other", "startingOffsets": "earliest"}
    query = Query(two, **options)
    query.trigger()
    keys = two.partition("t")
    taken = {
        "offset.wm": [keys.commit],
        "incarnations": [two.keys.incarnations("t")],
        "everything": [*(info.key for info in two.store.list(keys.prefix)), two.keys.incarnations("t")],
    }[gone]
    held = [(key, *two.store.get(key)) for key in taken]
    two.store.delete(taken)
    with pytest.raises(DataLoss, match=r"t(-0)?\b.* missing from the store"):
        query.trigger()
    query.start(**{**options, "failOnDataLoss": "false"})
    two.commit("other", 4)
    two.put_segment("other", 5, batches((5, 9)))
    two.commit("other", 9, highest_base=5)
    assert query.trigger() == [("other", 0, offset) for offset in range(5, 9)]
    for key, data, info in held:
        two.store.put(key, data, metadata=info.metadata)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_r02_a_stream_of_committed_records_ends_at_the_last_stable_offset(two: Archive) -> None:
    """And goes on when it moves; one that is lower than before takes nothing back."""
    options = {**EARLIEST, "kafka.isolation.level": "read_committed"}
    two.commit("t", 100, last_stable_offset=70)
    query = Query(two, **options)
    query.trigger()
    two.commit("t", 150, highest_base=100, last_stable_offset=60)
    assert query.trigger() == []
    two.commit("t", 150, highest_base=100, last_stable_offset=120)
    query.trigger()
    assert query.offsets_of() == list(range(120))


def test_a_java_uploaders_commit_moves_a_stream(two: Archive) -> None:
    """It names a segment and no end."""
    two.store.put(two.partition("t").commit, b"%020d" % 0)
    query = Query(two, **EARLIEST)
    query.trigger()
    assert query.trigger() == []
    two.store.put(two.partition("t").commit, b"%020d" % 100)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_r09_a_query_that_the_store_failed_goes_on_after_a_restart(
    two: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes through, and the checkpoint is as good as before."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.commit("t", 200, highest_base=100)

    def fails(key: str) -> None:
        raise StoreUnavailable(f"{key}: 503")

    monkeypatch.setattr(query._driver._store, "open", fails)
    with pytest.raises(StoreUnavailable, match="503"):
        query.trigger()
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(200))


def test_an_offset_without_ids_and_epochs_is_one(two: Archive) -> None:
    """A checkpoint may hold positions only, as that of Spark's Kafka source."""
    query = Query(two, **EARLIEST)
    query.offsets, query.committed = ['{"t": {"0": 70}}'], 1
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(70, 100))


@pytest.mark.parametrize("text", ['{"version": 1}', '{"t": [1]}', '{"a b": {"0": 1}}'])
def test_another_sources_checkpoint_is_refused(two: Archive, text: str) -> None:
    """With the way out."""
    query = Query(two, **EARLIEST)
    query.offsets = [text]
    with pytest.raises(QueryError, match=r"the checkpoint holds no offset of kafka_segments .*; start with another"):
        query.start(**EARLIEST)


def test_limits_and_sparks_wrapper_are_refused_together(two: Archive) -> None:
    """It asks a restarted query for its end before it shows where it stands; the query would go back."""
    query = Query(two, **EARLIEST, maxOffsetsPerTrigger="30")
    query.trigger()
    query.trigger()
    restarted = Query(two, **EARLIEST, maxOffsetsPerTrigger="30")
    restarted._driver.latest_offset()
    with pytest.raises(QueryError, match=r"maxOffsetsPerTrigger .* cannot be combined with"):
        restarted._driver.plan(query.positions(), query.positions())


def stream_problems(**options: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"path": "s3://bucket/base", "cluster": "prod", "subscribe": "t", **options}, Kind.STREAM)
    return caught.value.problems


def test_options_of_a_stream() -> None:
    """Ends are refused, unknown names are answered with the nearest, all at once."""
    assert stream_problems(endingOffsets="latest", endingTimestamp="7", maxOfsetsPerTrigger="5") == (
        "maxofsetspertrigger: unknown option; did you mean maxOffsetsPerTrigger?",
        "endingOffsets: a stream has no end; drop it, or use spark.read",
        "endingTimestamp: a stream has no end; drop it, or use spark.read",
    )
    assert stream_problems(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4", maxTriggerDelay="soon") == (
        "maxTriggerDelay=soon: a time like 500ms, 30s, 15m or 2h is expected",
        "minOffsetsPerTrigger=5: it is above maxOffsetsPerTrigger=4",
    )
    given = {"path": "s3://bucket/base", "cluster": "prod", "subscribe": "t"}
    assert parse_options(given, Kind.STREAM).query.start is Edge.LATEST
    query = parse_options({**given, "startingOffsets": '{"t":{"0":-1,"1":-2,"2":5}}'}, Kind.STREAM).query
    assert query.start == Offsets({"t": {0: Edge.LATEST, 1: Edge.EARLIEST, 2: 5}})
    (told,) = stream_problems(startingOffsets="first")
    assert 'earliest or latest or JSON like {"topic":{"0":23,"1":-2}} is expected' in told


def test_options_of_a_stream_are_ignored_by_a_batch(two: Archive) -> None:
    """The reader logs one warning."""
    rates = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "kafka.group.id": "g"}
    reader = KafkaSegmentsSource(two.options(subscribe="t", **rates)).reader(full_schema(include_headers=False))
    with capture_logs() as logged:
        reader.partitions()
    assert [event["message"] for event in logged if event["log_level"] == "warning"] == [
        "options have no effect without a broker: kafka.group.id; "
        "in a batch query: maxOffsetsPerTrigger, minOffsetsPerTrigger"
    ]


def test_a_query_whose_position_spark_tells_goes_on_from_there(two: Archive) -> None:
    """Spark 4.2 hands over where each batch starts: of a restarted query, where the checkpoint ends."""
    two.commit("t", 200, highest_base=100)
    driver = Query(two, **EARLIEST, maxOffsetsPerTrigger="80")._driver
    begin = driver.initial_offset()
    first = driver.latest_offset(begin)
    assert (begin["t"], first["t"]) == ({"0": 0}, {"0": 80})
    restarted = Query(two, **EARLIEST, maxOffsetsPerTrigger="80")._driver
    assert restarted.latest_offset(first)["t"] == {"0": 160}
    assert restarted.latest_offset(first, unlimited=True)["t"] == {"0": 200}
    assert driver.most_offsets == 80


def test_available_now_ends_where_the_archive_was_when_it_began(two: Archive) -> None:
    """In as many batches as the limit makes, without waiting for more; what is shipped meanwhile comes later."""
    options = {**EARLIEST, "maxOffsetsPerTrigger": "40", "minOffsetsPerTrigger": "30"}
    driver = Query(two, **options)._driver
    driver.stop_where_it_is()
    stands, ends = driver.initial_offset(), []
    two.commit("t", 200, highest_base=100)
    while (end := driver.latest_offset(stands)) != stands:
        driver.plan(stands, end)
        ends.append(end["t"]["0"])
        stands = end
    assert ends == [40, 80, 100]
    again = Query(two, **options)._driver
    again.stop_where_it_is()
    assert again.latest_offset(stands)["t"] == {"0": 140}


@pytest.mark.parametrize("starts", [{}, {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}])
def test_available_now_does_not_end_below_a_beginning_that_was_found_later(
    two: Archive, starts: dict[str, str]
) -> None:
    """A segment that is shipped between the two is no loss."""
    driver = Query(two, subscribe="t", **starts)._driver
    driver.stop_where_it_is()
    two.commit("t", 200, highest_base=100)
    stands = driver.initial_offset()
    assert driver.latest_offset(stands)["t"] == stands["t"] == {"0": 200}


def test_a_stream_warns_once_of_options_for_brokers(two: Archive) -> None:
    """One set of options serves a stream from a broker too."""
    with capture_logs() as logs:
        query = Query(two, **EARLIEST, **{"kafka.group.id": "g", "groupIdPrefix": "g"})
        query.trigger()
        query.trigger()
    told = [line["message"] for line in logs if line["log_level"] == "warning"]
    assert told == ["options have no effect without a broker: kafka.group.id, groupIdPrefix"]
