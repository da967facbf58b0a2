"""`TIERED_STORAGE_ONLY` with `assign`: the archive is read, and no broker exists."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from dev.local.waiting import wait_for
from tests.consumer.archives import error_of, in_directory, offsets_of, place, read_until
from tests.made_archive import MadeArchive, batches, steps
from ts_consumer import TieredConsumer, TierMode

TOPIC, END = "clicks", 1000
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> MadeArchive:
    """Two partitions of two segments of 1 MB each."""
    made = in_directory(tmp_path_factory.mktemp("alone"))
    for partition in range(2):
        for base in (0, END // 2):
            log = batches(*steps(base, base + END // 2), value=bytes(2000))
            made.put_segment(TOPIC, base, log, partition=partition)
        made.commit(TOPIC, END, highest_base=END // 2, partition=partition)
    return made


@pytest.fixture
def consumer(archive: MadeArchive) -> Iterator[TieredConsumer]:
    """A consumer of the archive alone."""
    with TieredConsumer(configuration(archive)) as made:
        yield made


def configuration(archive: MadeArchive, **more: str) -> dict[str, str]:
    """Return a configuration without a broker."""
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {
        **place(archive),
        "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY,
        "auto.offset.reset": "earliest",
        **given,
    }


def test_every_record_once_and_in_order(consumer: TieredConsumer) -> None:
    """Of two partitions that begin at different offsets."""
    consumer.assign([FIRST, TopicPartition(TOPIC, 1, 300)])
    found = read_until(consumer, {0: END, 1: END})
    assert offsets_of(found[0]) == list(range(END))
    assert offsets_of(found[1]) == list(range(300, END))
    assert consumer.consume(1, 0.1) == []


def test_poll_returns_what_consume_returns(consumer: TieredConsumer) -> None:
    """One message for each call; the position is the offset after it."""
    consumer.assign([FIRST])
    assert consumer.position([FIRST])[0].offset == OFFSET_INVALID
    messages = [consumer.poll(5) for _ in range(3)]
    assert [message.offset() for message in messages if message is not None] == [0, 1, 2]
    assert consumer.position([FIRST])[0].offset == 3


def test_a_topic_that_the_archive_lacks_is_logged_once(archive: MadeArchive) -> None:
    """It can be one that the agent ships later; a name that no topic can have is an error."""
    with capture_logs() as logs, TieredConsumer(configuration(archive)) as consumer:
        consumer.assign([TopicPartition("later", 0), TopicPartition("later", 1)])
        wait_for(lambda: consumer.consume(1, 0.1) == [] and logs, "the line of the log")
        assert consumer.consume(1, 1.0) == []
        consumer.assign([TopicPartition("a/b", 0, 0)])
        message = wait_for(lambda: consumer.poll(1), "the error")
    assert message is not None
    assert error_of(message).code() == KafkaError._INVALID_ARG
    (line,) = [each for each in logs if each["event"] == "topic_not_archived"]
    assert (line["topic"], line["cluster"], line["location"]) == ("later", "prod", archive.location)


def test_e04_a_seek_drops_what_was_read_ahead(archive: MadeArchive) -> None:
    """The next message is the one at the new offset, also of a logical one; there is room for one reading."""
    with TieredConsumer(configuration(archive, tiered_storage_max_buffered_bytes=str(1 << 20))) as consumer:
        consumer.assign([FIRST])
        assert len(consumer.consume(10, 5)) == 10
        for offset, expected in ((990, 990), (5, 5), (OFFSET_BEGINNING, 0), (OFFSET_END - 2000 - 3 + 1, END - 3)):
            consumer.seek(TopicPartition(TOPIC, 0, offset))
            assert consumer.position([FIRST])[0].offset == OFFSET_INVALID
            message = consumer.poll(5)
            assert message is not None
            assert message.offset() == expected


def test_a_paused_partition_is_silent_and_loses_nothing(consumer: TieredConsumer) -> None:
    """The other one continues meanwhile."""
    consumer.assign([FIRST, SECOND])
    consumer.pause([FIRST])
    assert offsets_of(read_until(consumer, {1: END})[1]) == list(range(END))
    consumer.resume([FIRST])
    assert offsets_of(read_until(consumer, {0: END})[0]) == list(range(END))


def test_watermarks_and_times_are_the_archives(consumer: TieredConsumer) -> None:
    """The first record has time 1000 ms, and each next one a millisecond more."""
    consumer.assign([FIRST])
    assert consumer.get_watermark_offsets(FIRST) == (0, END)
    found = consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1000), TopicPartition(TOPIC, 1, 10_000_000)])
    assert [each.offset for each in found] == [0, -1]


def test_topics_and_partitions_are_listed_without_a_broker(consumer: TieredConsumer) -> None:
    """In the binding's form; a topic that the archive lacks has the error of a broker."""
    metadata = consumer.list_topics(timeout=10)
    assert {name: list(topic.partitions) for name, topic in metadata.topics.items()} == {TOPIC: [0, 1]}
    assert metadata.topics[TOPIC].partitions[1].leader == -1
    missing = consumer.list_topics("clikcs", timeout=10).topics["clikcs"].error
    assert missing.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_that_does_not_exist_is_an_error(archive: MadeArchive) -> None:
    """Calls raise it at once, an assignment reports an event; -1 would be a time after the last record."""
    missing = TopicPartition("clikcs", 0, 0)
    with TieredConsumer(configuration(archive, tiered_storage_report_after_ms="0")) as consumer:
        for call in (consumer.offsets_for_times, lambda each: consumer.get_watermark_offsets(*each)):
            with pytest.raises(
                KafkaException, match=r"clikcs \[0\]: the archive of cluster .* does not have"
            ) as raised:
                call([missing])
            assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        consumer.assign([missing])
        event = wait_for(lambda: consumer.poll(1), "the event")
        assert event is not None
        assert error_of(event).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("call", ["commit", "committed", "consumer_group_metadata", "memberid"])
def test_without_a_subscription_there_is_no_group(consumer: TieredConsumer, call: str) -> None:
    """The error is the one that librdkafka has for it."""
    consumer.assign([FIRST])
    with pytest.raises(KafkaException) as raised:
        getattr(consumer, call)(*([[FIRST]] if call == "committed" else []))
    assert raised.value.args[0].code() == KafkaError._UNKNOWN_GROUP


def test_new_segments_follow(tmp_path: Path) -> None:
    """A consumer at the end waits, and gets them after their commit."""
    archive = in_directory(tmp_path)
    archive.put_segment(TOPIC, 0, batches((0, 10)))
    archive.commit(TOPIC, 10, highest_base=0)
    with TieredConsumer(configuration(archive)) as consumer:
        consumer.assign([FIRST])
        found = read_until(consumer, {0: 10})
        archive.put_segment(TOPIC, 10, batches((10, 20)))
        archive.commit(TOPIC, 20, highest_base=10)
        assert offsets_of(read_until(consumer, {0: 20}, found)[0]) == list(range(20))


def test_a_partition_without_an_archive_waits_for_it(tmp_path: Path) -> None:
    """The topic can be one that the agent ships later."""
    archive = in_directory(tmp_path)
    archive.put_segment("other", 0, batches((0, 10)))
    archive.commit("other", 10, highest_base=0)
    with TieredConsumer(configuration(archive)) as consumer:
        consumer.assign([FIRST])
        assert consumer.poll(0.5) is None
        archive.put_segment(TOPIC, 0, batches((0, 10)))
        archive.commit(TOPIC, 10, highest_base=0)
        assert offsets_of(read_until(consumer, {0: 10})[0]) == list(range(10))


@pytest.fixture
def with_hole(tmp_path: Path) -> MadeArchive:
    """Offsets 10 to 19 are lost."""
    archive = in_directory(tmp_path)
    archive.put_segment(TOPIC, 0, batches((0, 10)), end=10)
    archive.put_segment(TOPIC, 20, batches((20, 30)))
    archive.commit(TOPIC, 30, highest_base=20)
    return archive


def test_a_hole_is_an_error_and_the_partition_stays_there(with_hole: MadeArchive) -> None:
    """All records below it are handed out first; a seek leads on."""
    with TieredConsumer(configuration(with_hole)) as consumer:
        consumer.assign([FIRST])
        assert [message.offset() for message in consumer.consume(10, 10)] == list(range(10))
        events = wait_for(lambda: consumer.consume(1, 0.2), "the error")
        assert error_of(events[0]).code() == KafkaError._BAD_MSG
        assert "offsets 10 to 19 are lost" in error_of(events[0]).str()
        assert "tiered.storage.on.hole=pass" in error_of(events[0]).str()
        assert consumer.consume(1, 0.5) == []
        assert consumer.position([FIRST])[0].offset == 10
        consumer.seek(TopicPartition(TOPIC, 0, 20))
        assert offsets_of(read_until(consumer, {0: 30})[0]) == list(range(20, 30))


def test_by_option_a_hole_is_passed_over(with_hole: MadeArchive) -> None:
    """The lost offsets are counted."""
    with TieredConsumer(configuration(with_hole, tiered_storage_on_hole="pass")) as consumer:
        consumer.assign([FIRST])
        assert offsets_of(read_until(consumer, {0: 30})[0]) == [*range(10), *range(20, 30)]


def test_an_offset_below_the_archive_follows_the_reset_policy(tmp_path: Path) -> None:
    """`earliest` continues at the archive's start, and `error` is an error of the partition."""
    archive = in_directory(tmp_path)
    archive.put_segment(TOPIC, 50, batches((50, 60)))
    archive.commit(TOPIC, 60, highest_base=50, log_start=50)
    with TieredConsumer(configuration(archive)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 7)])
        assert offsets_of(read_until(consumer, {0: 60})[0]) == list(range(50, 60))
    with TieredConsumer(configuration(archive, auto_offset_reset="error")) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 7)])
        (event,) = wait_for(lambda: consumer.consume(1, 0.2), "the error")
        assert error_of(event).code() == KafkaError._AUTO_OFFSET_RESET
        assert "offset 7 was removed" in error_of(event).str()


def test_a_store_that_is_away_is_an_event_and_reading_continues(tmp_path: Path) -> None:
    """The event appears once, after the time that is configured, and no record is lost or repeated."""
    archive = in_directory(tmp_path)
    directory = tmp_path / "archive"
    archive.put_segment(TOPIC, 0, batches((0, 10)))
    archive.commit(TOPIC, 10, highest_base=0)
    away = directory.with_name("away")
    directory.rename(away)
    with TieredConsumer(configuration(archive) | {"tiered.storage.report.after.ms": "2500"}) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        (event,) = wait_for(lambda: consumer.consume(1, 0.2), "the event")
        assert event.error() is not None
        away.rename(directory)
        assert offsets_of(read_until(consumer, {0: 10})[0]) == list(range(10))


def test_a_closed_consumer_refuses_calls(archive: MadeArchive) -> None:
    """As the plain client; a second close does nothing."""
    consumer = TieredConsumer(configuration(archive))
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize(("has_commit", "code"), [(False, "no-commit"), (True, "commit-damaged")])
def test_a_partition_whose_commit_is_lost_is_an_error_or_passed_over(
    tmp_path: Path, has_commit: bool, code: str
) -> None:
    """It has segments and no commit, or a good commit and a damaged `log.start`; the other partition is read."""
    archive = in_directory(tmp_path)
    for partition in range(2):
        archive.put_segment(TOPIC, 0, batches((0, 10)), partition=partition)
    archive.commit(TOPIC, 10)
    if has_commit:
        archive.commit(TOPIC, 10, partition=1)
        archive.store.put(archive.partition(TOPIC, 1).log_start, b"what is this")
    archive.age(16 * 60)
    with TieredConsumer(configuration(archive)) as consumer:
        consumer.assign([SECOND])
        events = wait_for(lambda: consumer.consume(1, 0.2), "the error")
        assert error_of(events[0]).code() == KafkaError._BAD_MSG
        assert f"offsets 0 and later are not shown: {code}" in error_of(events[0]).str()
        with pytest.raises(KafkaException, match=code):
            consumer.get_watermark_offsets(SECOND)
    with (
        capture_logs() as logs,
        TieredConsumer(configuration(archive, tiered_storage_on_hole="pass")) as consumer,
    ):
        consumer.assign([FIRST, SECOND])
        assert offsets_of(read_until(consumer, {0: 10})[0]) == list(range(10))
        wait_for(lambda: [entry for entry in logs if entry["event"] == "partition_lost"], "the warning")
        archive.commit(TOPIC, 10, partition=1)
        archive.put_segment(TOPIC, 10, batches((10, 20)), partition=1)
        archive.commit(TOPIC, 20, partition=1, highest_base=10)
        assert offsets_of(read_until(consumer, {1: 20})[1]) == list(range(20))


def test_a_mistyped_cluster_is_an_error_with_the_clusters_of_the_store(archive: MadeArchive, tmp_path: Path) -> None:
    """With `earliest` the consumer would begin at Kafka's log start; an empty store only waits."""
    with TieredConsumer({**configuration(archive), "kafka.cluster.id": "pord"}) as consumer:
        consumer.assign([FIRST])
        error = error_of(wait_for(lambda: consumer.consume(1, 0.2), "the error")[0])
        assert error.code() == KafkaError._INVALID_ARG
        assert f"kafka.cluster.id=pord: {archive.location} has no such cluster; it has prod" in error.str()
        assert consumer.consume(1, 0.5) == []  # once
