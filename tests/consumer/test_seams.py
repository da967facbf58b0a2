"""From the archive to Kafka: every record once and in order, with every field as the plain client has it."""

from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from dev.local.kafka.cluster import Record
from dev.local.waiting import wait_for
from tests.consumer.archives import PROTOCOLS, Both, Row, error_of, fill, offsets_of, read_until, row_of, ship
from tests.consumer.group import SECONDS, Member, Results
from ts_common.errors import StoreUnavailable
from ts_common.model import TopicPartition as Partition
from ts_consumer import TieredConsumer, TierMode
from ts_consumer.archive_tier import ArchivedPartition, ArchiveTier

KAFKA_FIRST, ARCHIVE_FIRST, ARCHIVE = (
    TierMode.KAFKA_PREFERRED,
    TierMode.TIERED_STORAGE_PREFERRED,
    TierMode.TIERED_STORAGE_ONLY,
)
BOTH_TIERS = (KAFKA_FIRST, ARCHIVE_FIRST)
TOPIC = "seams"


@dataclass(frozen=True)
class Filled:
    """A topic whose first half was removed from Kafka.

    Attributes:
        both: the broker and the archive.
        rows: of each partition, as the plain client had them before the removal.
        shipped: the end of each partition in the archive.
        lows: the first offset of each partition in Kafka.
    """

    both: Both
    rows: dict[int, list[Row]]
    shipped: list[int]
    lows: list[int]

    def ends(self, mode: TierMode) -> dict[int, int]:
        """Return the end of each partition that a mode reads."""
        if mode is ARCHIVE:
            return dict(enumerate(self.shipped))
        return {partition: rows[-1][2] + 1 for partition, rows in self.rows.items()}


@pytest.fixture(scope="module")
def filled(both: Both) -> Filled:
    """Kafka has the rest of the archive's offsets, and more."""
    fill(both.cluster, TOPIC)
    shipped = ship(both.archive, both.cluster, TOPIC)
    rows = both.plain_rows(TOPIC, [both.cluster.latest(TOPIC, partition) for partition in range(2)])
    lows = [end // 2 for end in shipped]
    both.cluster.delete_records(TOPIC, dict(enumerate(lows)))
    return Filled(both, rows, shipped, lows)


def check(filled: Filled, consumer: TieredConsumer, mode: TierMode) -> None:
    """Compare what a consumer reads from the start with the plain client's rows."""
    ends = filled.ends(mode)
    found = read_until(consumer, ends)
    for partition, end in ends.items():
        assert found[partition] == [row for row in filled.rows[partition] if row[2] < end]


@pytest.mark.parametrize("mode", [*BOTH_TIERS, ARCHIVE])
def test_a_manual_assignment_passes_the_seam(filled: Filled, mode: TierMode) -> None:
    """From the archive's first record to Kafka's last one."""
    with filled.both.consumer(mode, f"manual-{mode}") as consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(2)])
        check(filled, consumer, mode)


def test_at_most_one_segment_beyond_kafkas_start_is_read_from_the_archive(filled: Filled) -> None:
    """Brokers have the rest, so a service that fell behind returns to them."""
    with filled.both.consumer(KAFKA_FIRST, "returns") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        read_until(consumer, {0: filled.ends(KAFKA_FIRST)[0]})
        found = consumer.tier_statistics()
    assert found is not None
    end = next(base for base in archived_bases(filled.both, TOPIC) if base >= filled.lows[0])
    assert end < filled.shipped[0]
    assert found.archive_records == len([row for row in filled.rows[0] if row[2] < end])
    assert (found.to_history, found.to_live) == (1, 1)


def archived_bases(both: Both, topic: str) -> list[int]:
    """Return the base offsets of the archived segments of partition 0, ascending."""
    prefix = both.archive.keys.partition(Partition(topic, 0)).prefix
    names = (info.key.removeprefix(prefix) for info in both.archive.store.list(prefix))
    return sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "mode", [KAFKA_FIRST, *(pytest.param(mode, marks=pytest.mark.full) for mode in (ARCHIVE_FIRST, ARCHIVE))]
)
def test_a_member_of_a_group_passes_the_seam_and_commits(filled: Filled, mode: TierMode, protocol: str) -> None:
    """The next member of the group continues after the last record."""
    group = f"member-{mode}-{protocol}"
    with TieredConsumer(filled.both.config(mode, group) | PROTOCOLS[protocol]) as consumer:
        consumer.subscribe([TOPIC])
        check(filled, consumer, mode)
        consumer.commit(asynchronous=False)
        wanted = [TopicPartition(TOPIC, partition) for partition in range(2)]
        committed = {each.partition: each.offset for each in consumer.committed(wanted, 10)}
    assert committed == filled.ends(mode)


def test_e04_members_that_join_and_leave_in_the_middle_of_history_lose_nothing(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is stored once and in order, whichever member owns its partition."""
    monkeypatch.setattr("tests.consumer.group._WORK_SECONDS", 0.05)
    topic = "shared"
    fill(both.cluster, topic)
    lows = [end // 2 for end in ship(both.archive, both.cluster, topic)]
    ends = [both.cluster.latest(topic, partition) for partition in range(2)]
    offsets = {partition: offsets_of(rows) for partition, rows in both.plain_rows(topic, ends).items()}
    both.cluster.delete_records(topic, dict(enumerate(lows)))
    config = both.config(KAFKA_FIRST, topic, heartbeat_interval_ms=200) | PROTOCOLS["cooperative"]
    results = Results()
    first = Member("first", config, topic, results)
    wait_for(lambda: results.count() > 0, "the first member to begin", SECONDS)
    first.hold()
    assert results.count() < sum(lows)
    second = Member("second", config, topic, results)
    wait_for(lambda: {*results.owners().values()} == {first, second}, "each to own one", SECONDS, state=results.owners)
    first.resume()
    first.close()
    wait_for(lambda: results.count() >= sum(map(len, offsets.values())), "all records", SECONDS, state=results.owners)
    second.close()
    assert {partition: [offset for offset, _ in results.rows["first", partition]] for partition in range(2)} == offsets
    assert results.problems == []


def test_a_committed_offset_that_kafka_removed_is_read_from_the_archive(filled: Filled) -> None:
    """The plain client would begin again at Kafka's start, and lose the records between."""
    group, at = "behind", filled.lows[0] // 2
    plain = Consumer({"bootstrap.servers": filled.both.cluster.bootstrap, "group.id": group})
    plain.commit(offsets=[TopicPartition(TOPIC, 0, at)], asynchronous=False)
    plain.close()
    with filled.both.consumer(KAFKA_FIRST, group) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        found = read_until(consumer, {0: filled.ends(KAFKA_FIRST)[0]})
    assert found[0] == filled.rows[0][at:]


@pytest.mark.parametrize("mode", BOTH_TIERS)
def test_seeks_move_the_consumer_between_tiers(filled: Filled, mode: TierMode) -> None:
    """Into the archive, into Kafka, and back: the next record is the one at the offset."""
    low, end = filled.lows[0], filled.ends(mode)[0]
    with filled.both.consumer(mode, f"seek-{mode}") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        for offset in (end - 1, 0, low, low - 1, filled.shipped[0], 3):
            consumer.seek(TopicPartition(TOPIC, 0, offset))
            (message,) = wait_for(partial(consumer.consume, 1, 0.5), f"offset {offset}")
            assert message.error() is None, message.error()
            assert message.offset() == offset
            assert consumer.position([TopicPartition(TOPIC, 0)])[0].offset == offset + 1


def test_watermarks_and_times_are_those_of_both_tiers(filled: Filled) -> None:
    """The archive has the start, and Kafka the end."""
    end = filled.ends(KAFKA_FIRST)[0]
    with filled.both.consumer(KAFKA_FIRST, "questions") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10) == (0, end)
        times = [filled.rows[0][1][6][1], filled.rows[0][-1][6][1] + 10**9]
        found = consumer.offsets_for_times([TopicPartition(TOPIC, 0, time) for time in times], 10)
        first = next(row[2] for row in filled.rows[0] if row[6][1] >= times[0])
        assert [each.offset for each in found] == [first, -1]


def test_brokers_continue_after_history_while_the_store_is_away(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the offset, and compare the leader epoch of the record before it."""
    look, looks = ArchiveTier.look, list[Partition]()

    def look_once(tier: ArchiveTier, partition: Partition) -> ArchivedPartition | None:
        looks.append(partition)
        if len(looks) > 1:
            raise StoreUnavailable("503 Slow Down")
        return look(tier, partition)

    monkeypatch.setattr(ArchiveTier, "look", look_once)
    with filled.both.consumer(KAFKA_FIRST, "away", tiered_storage_report_after_ms="100") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        assert read_until(consumer, {0: filled.ends(KAFKA_FIRST)[0]})[0] == filled.rows[0]
    assert len(looks) > 1


def test_a_reader_that_retention_passes_again_and_again_does_not_swing(both: Both) -> None:
    """Each look at the archive leads to the end of one of its segments, whatever retention removes meanwhile."""
    topic = "swing"
    fill(both.cluster, topic, partitions=1, rounds=3)
    end = both.cluster.latest(topic, 0)
    rows = both.plain_rows(topic, [end])[0]
    (shipped,) = ship(both.archive, both.cluster, topic, 1)
    found: dict[int, list[Row]] = {0: []}
    config = both.config(KAFKA_FIRST, "swing", queued_max_messages_kbytes=64, fetch_message_max_bytes=4096)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        low = 0
        while low < shipped:
            found[0] += [row_of(message) for message in wait_for(partial(consumer.consume, 5, 0.5), "messages")]
            consumer.pause([TopicPartition(topic, 0)])  # librdkafka drops what it has fetched
            low = max(low, min(found[0][-1][2] + 15, shipped))
            both.cluster.delete_records(topic, {0: low})  # retention is always ahead
            consumer.resume([TopicPartition(topic, 0)])
        assert read_until(consumer, {0: end}, found)[0] == rows
        statistics = consumer.tier_statistics()
    assert statistics is not None
    assert 0 < statistics.to_history <= len(archived_bases(both, topic))
    assert statistics.to_live <= statistics.to_history + 1


def test_an_archive_that_ends_below_kafkas_log_is_waited_for(both: Both) -> None:
    """Nothing is skipped; the records follow when the agent has shipped them."""
    topic = "gap"
    fill(both.cluster, topic, partitions=1, rounds=2)
    (shipped,) = ship(both.archive, both.cluster, topic, 1)
    fill_more = [Record(b"x" * 150_000) for _ in range(20)]
    both.cluster.produce(topic, fill_more, partition=0)
    end = both.cluster.latest(topic, 0)
    rows = both.plain_rows(topic, [end])[0]
    with both.consumer(KAFKA_FIRST, "gap") as consumer:
        directory = both.cluster.brokers[1].partition_directory(topic, 0)
        last = max(int(path.stem) for path in directory.glob("*.log"))
        assert last > shipped
        copies = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
        both.cluster.delete_records(topic, {0: last})
        consumer.assign([TopicPartition(topic, 0)])
        found = read_until(consumer, {0: shipped})
        assert consumer.consume(1, 1.0) == []
        restored = both.cluster.directory / "restored" / directory.name
        restored.mkdir(parents=True)
        for name, data in copies.items():
            (restored / name).write_bytes(data)
        both.archive.ship(restored)
        assert read_until(consumer, {0: end}, found)[0] == rows


def test_the_archive_of_a_former_topic_of_that_name_is_not_read(both: Both) -> None:
    """Its topic id differs from the one that brokers have, so its offsets are those of other records."""
    topic = "again"
    fill(both.cluster, topic, partitions=1)
    ship(both.archive, both.cluster, topic, 1)
    both.archive.put_incarnations(topic, "AAAAAAAAAAAAAAAAAAAAAQ")
    both.cluster.delete_records(topic, {0: 7})
    with both.consumer(ARCHIVE_FIRST, "again") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first = wait_for(lambda: consumer.consume(1, 0.5), "a message")[0]
        assert first.error() is None
        assert first.offset() == 7


def test_the_plain_mode_is_the_plain_client(filled: Filled) -> None:
    """`KAFKA_ONLY` reads what Kafka has, and callbacks get the wrapper."""
    owners = []
    with filled.both.consumer(TierMode.KAFKA_ONLY, "plain-mode") as consumer:
        consumer.subscribe([TOPIC], on_assign=lambda owner, _: owners.append(owner))
        found = read_until(consumer, filled.ends(TierMode.KAFKA_ONLY))
    assert owners == [consumer]
    assert offsets_of(found[0])[0] == filled.lows[0]


def test_errors_of_brokers_are_events(both: Both) -> None:
    """An unknown topic is reported as the plain client reports it."""
    with both.consumer(KAFKA_FIRST, "unknown", allow_auto_create_topics="false") as consumer:
        consumer.subscribe(["no-such-topic"])
        (event,) = wait_for(lambda: consumer.consume(1, 0.5), "the event")
        assert error_of(event).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
