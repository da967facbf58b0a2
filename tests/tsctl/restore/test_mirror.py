"""MirrorMaker copies a plan from an endpoint into a running cluster: what it would not copy, and its progress."""

import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from dev.local.jars import LINES, Line
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.kafka.mirror_maker import MirrorMaker
from dev.local.oracle import OracleRecord, dump
from tests.endpoint.running import running
from tests.every_field import every_field
from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.tsctl.restore.test_loss import part
from tests.tsctl.running import Ended, Run, runner
from ts_common.archive.restored import Ended as EndedTransaction
from ts_common.archive.restored import Outcome
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, ClusterSnapshot, GroupOffset, GroupsSnapshot, Topic
from ts_common.errors import ConfigurationError, CorruptData, QueryError, TransientError
from ts_common.model import TopicPartition
from tsctl.restore.documents import Created, GroupsPlan, RestorePlan, TopicPlan
from tsctl.restore.mirror import (
    POSITIONS,
    Facts,
    begin_untranslated,
    check_copied,
    mirror_properties,
    positions,
    prepare,
    problems_of,
    stable_end,
)
from tsctl.restore.new_cluster import PERMISSIVE, NewCluster
from tsctl.restore.partition_plan import Hole, PartitionPlan
from tsctl.restore.restore_directory import RestoreDirectory
from tsctl.verify.kafka_cluster import KafkaCluster, KafkaRecord, KafkaTopic

ORDERS = TopicPartition("orders", 0)
COPIED: Final = b'["MirrorSourceConnector",{"cluster":"source","partition":%d,"topic":"orders"}]'
_SECONDS: Final = 240
_PLAIN, _TRANSACTIONS, _COMPACTED, _APPENDED, _LARGE = "plain", "transactions", "compacted", "appended", "large.one"
_COUNTS: Final = {_PLAIN: 3, _TRANSACTIONS: 1, _COMPACTED: 1, _APPENDED: 1, _LARGE: 1}
_CONFIGURATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    _COMPACTED: {"cleanup.policy": "compact"},
    _APPENDED: {"message.timestamp.type": "LogAppendTime"},
    _LARGE: {"max.message.bytes": "8000000", "message.timestamp.after.max.ms": str((1 << 63) - 1)},
}
_GROUP_OFFSETS: Final = {
    TopicPartition(_PLAIN, 0): 700,
    TopicPartition(_PLAIN, 1): 0,
    TopicPartition(_TRANSACTIONS, 0): 60,
}
# One transaction for each poll: small ones make the copy slow enough to kill it in the middle.
_SLOW: Final = "source.consumer.max.poll.records=5\ntarget.producer.transaction.timeout.ms=10000\n"


def plan_of(topic: PartitionPlan, name: str = "orders", cluster: str = CLUSTER) -> RestorePlan:
    """Return a plan of a topic with one partition."""
    topics = {name: TopicPlan(name, {0: topic}, {})}
    return RestorePlan("p", 1, cluster, (), None, topics, GroupsPlan("none", None, {}), ())


def facts_of(**differing: Any) -> Facts:
    """Return what both clusters report if the target has the empty topic `orders`, as `mirror` creates it."""
    topic = {"orders": KafkaTopic(None, (0,))}
    facts = Facts(CLUSTER, topic, {ORDERS: (0, 10)}, {}, topic, frozenset(), {"orders": PERMISSIVE})
    return replace(facts, **differing)


class Reading:
    """What a cluster answers: of `orders-0` no record and its bounds, and records of MirrorMaker's positions."""

    def __init__(self, bounds: tuple[int, int], *positions: tuple[bytes, bytes]) -> None:
        self._bounds = {ORDERS: bounds, POSITIONS: (0, len(positions))}
        self._positions = positions

    def topics(self) -> dict[str, KafkaTopic]:
        return {each.topic: KafkaTopic(None, (0,)) for each in self._bounds}

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {each: self._bounds[each] for each in partitions}

    def settings(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        return dict.fromkeys(topics, PERMISSIVE)

    def records(self, partition: TopicPartition, *_: object) -> Iterator[KafkaRecord]:
        for number, (key, value) in enumerate(self._positions if partition == POSITIONS else ()):
            yield KafkaRecord(number, 0, 0, key, value, None)


def cluster_of(reading: Reading, archive: str = CLUSTER) -> NewCluster:
    """Return a cluster with these answers."""
    return cast("NewCluster", SimpleNamespace(reading=reading, cluster_id=lambda: archive))


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("cleanup.policy", "compact", "refuses records without a key"),
        ("cleanup.policy", "compact,delete", "refuses records without a key"),
        ("retention.ms", "604800000", "deletes old records"),
        ("retention.bytes", "1000000000", "deletes old records"),
        ("message.timestamp.type", "LogAppendTime", "replaces the timestamps"),
        ("message.timestamp.before.max.ms", "86400000", "refuses older records"),
        ("message.timestamp.after.max.ms", "3600000", "refuses later records"),
        ("max.message.bytes", "1048588", "refuses larger batches"),
    ],
)
def test_a_setting_of_the_target_that_refuses_or_removes_records_is_a_problem(
    setting: str, value: str, why: str
) -> None:
    """Each with its value, the reason, and what to set."""
    facts = facts_of(settings={"orders": {**PERMISSIVE, setting: value}})
    (found,) = problems_of(plan_of(part(0, 10, 5)), facts)
    assert f"topic orders: {setting}={value} in the target: " in found
    assert why in found
    assert f"set {PERMISSIVE[setting]} until the last step" in found


@pytest.mark.parametrize(
    ("plan", "facts", "expected"),
    [
        (plan_of(part(0, 10, 5)), facts_of(), None),
        (plan_of(part(0, 10, 5)), facts_of(existing={}, settings={}), None),
        (
            plan_of(part(0, 10, 5)),
            facts_of(settings={"orders": {**PERMISSIVE, "max.message.bytes": "2147483647"}}),
            None,
        ),
        (plan_of(part(0, 0)), facts_of(served={}), None),  # the archive has no segment of it
        (plan_of(part(0, 10, 5)), facts_of(archive="test"), "it serves test"),
        (plan_of(part(0, 10, 5)), facts_of(served={}), "the endpoint lacks"),
        (plan_of(part(0, 10, 5)), facts_of(existing={"orders": KafkaTopic(None, (0, 1))}), "has 2 partitions"),
        (plan_of(part(0, 10, 5)), facts_of(used=frozenset({ORDERS})), "the target has records"),
        (plan_of(replace(part(0, 10, 5), stored_end=20)), facts_of(), "without --at and --end"),
        (plan_of(part(0, 10, None)), facts_of(), "records without timestamps"),
        (plan_of(part(0, 10, 5)), facts_of(stops={ORDERS: "CORRUPT_MESSAGE"}), "start it with --on-hole=skip"),
        (plan_of(part(0, 10, 5)), facts_of(bounds={ORDERS: (0, 12)}), None),
        (plan_of(part(0, 10, 5)), facts_of(bounds={ORDERS: (0, 7)}), "the endpoint serves offsets 0 to 7"),
        (plan_of(part(0, 10, 5)), facts_of(bounds={ORDERS: (3, 10)}), "the endpoint serves offsets 3 to 10"),
        (plan_of(part(0, 10, 5)), facts_of(has_positions=True), "MirrorMaker has copied into the target before"),
    ],
)
def test_what_mirror_maker_would_not_copy_is_a_problem(plan: RestorePlan, facts: Facts, expected: str | None) -> None:
    """One problem for each fault, and none without one."""
    found = list(problems_of(plan, facts))
    assert len(found) == (expected is not None), found
    assert expected is None or expected in found[0]


def test_positions_of_an_earlier_copy_are_a_problem() -> None:
    """MirrorMaker would continue behind the last record of a topic that was deleted since, and copy nothing."""
    target = cluster_of(Reading((0, 0), (COPIED % 0, b'{"offset":9}')))
    with pytest.raises(ConfigurationError, match="would continue there"):
        prepare(plan_of(part(0, 10, 5)), cluster_of(Reading((0, 10))), target)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (cluster_of(Reading((0, 10)), "test"), "it serves test"),
        (cluster_of(Reading((0, 4))), "serves offsets 0 to 4, the plan has 0 to 10"),
        (cluster_of(Reading((4, 10))), "serves offsets 4 to 10, the plan has 0 to 10"),
    ],
)
def test_an_endpoint_of_other_records_does_not_show_that_all_is_copied(source: NewCluster, text: str) -> None:
    """It has no record from the position on, because it has another archive, another incarnation, or lost some."""
    target = cluster_of(Reading((0, 4), (COPIED % 0, b'{"offset":3}')))
    with pytest.raises(QueryError, match=text):
        check_copied(plan_of(part(0, 10, 5)), Created("p", "kafka", {"orders": None}), source, target)


@pytest.mark.parametrize("name", ["__consumer_offsets", ".hidden", "app-internal", "app.internal", "heartbeats"])
def test_a_topic_that_mirror_maker_leaves_out_is_a_problem(name: str) -> None:
    """Lines of Kafka differ in these names, so each name that one of them leaves out is refused."""
    facts = facts_of(served={name: KafkaTopic(None, (0,))}, existing={}, settings={})
    (found,) = problems_of(plan_of(part(0, 10, 5), name), facts)
    assert "leaves such names out" in found


def test_records_behind_an_open_transaction_are_not_expected() -> None:
    """MirrorMaker waits at the first offset of the transaction, as each consumer of committed records does."""
    ended = tuple(EndedTransaction(7, 0, first, Outcome.ABORT) for first in (8, 5))
    assert stable_end(replace(part(0, 10, 5), ended=ended)) == 5
    assert stable_end(part(0, 10, 5)) == 10


def test_names_are_regular_expressions_that_match_themselves(tmp_path: Path) -> None:
    """A dot is a dot; what separates expressions matches any character; further settings replace ours."""
    plan = plan_of(part(0, 10, 5), "a.b")
    groups = GroupsPlan("none", None, {"one, two": {TopicPartition("a.b", 0): 1}})
    text = mirror_properties(replace(plan, groups=groups), "e:1", "t:1", {"tasks.max": "9"})
    assert "source->target.topics=a[.]b\n" in text
    assert "source->target.groups=one..two\n" in text
    assert "tasks.max=9\n" in text
    assert "tasks.max=4" not in text


def test_settings_of_java_clients_are_no_problem_of_finish(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--mirror-config` can have them for both clusters; the file is MirrorMaker's, and not librdkafka's."""
    plan = plan_of(part(0, 0))
    plan.save(RestoreDirectory.plan_file(tmp_path))
    restored = RestoreDirectory(tmp_path)
    Created("p", "kafka", {"orders": None}).save(restored.created_file)
    restored.mirror_file.write_text(mirror_properties(plan, "e:1", "t:1", {"sasl.jaas.config": "x required;"}))
    monkeypatch.setattr("tsctl.restore.mirror.check_copied", lambda *_: None)
    ended = runner(capfd)("restore", "finish", tmp_path, "--bootstrap-server", "127.0.0.1:1")
    assert (ended.code, "MirrorMaker has copied all records" in ended.out) == (0, True), ended


def test_topics_are_created_and_groups_set_unless_there_is_a_problem(one_broker: LocalCluster, tmp_path: Path) -> None:
    """A repeated call is accepted; a hole where the endpoint stops, and a compacted topic, write nothing.

    The archive has no segment of the second partition.
    """
    archive = MadeArchive(tmp_path / "archive")
    for base in (0, 20):
        archive.put_segment("mirrored", base, batches((base, base + 10)))
    archive.commit("mirrored", 30, highest_base=20)
    partition, empty = TopicPartition("mirrored", 0), TopicPartition("mirrored", 1)
    parts = {0: part(0, 30, 5), 1: part(0, 0)}
    groups = GroupsPlan("a snapshot of metadata", 1, {"readers": {partition: 25, empty: 0}})
    plan = replace(plan_of(parts[0]), topics={"mirrored": TopicPlan("mirrored", parts, {})}, groups=groups)
    parts = {**parts, 0: replace(parts[0], lost=(Hole(10, 20, "no object has them"),))}
    with_hole = replace(plan, topics={"mirrored": TopicPlan("mirrored", parts, {})})
    target = NewCluster(one_broker.bootstrap, {})
    with running(archive.location, tmp_path, options=["--groups", "memory"]) as [endpoint]:
        source = NewCluster(endpoint.address, {})
        with pytest.raises(ConfigurationError, match=r"mirrored-0: the endpoint stops at lost offsets"):
            prepare(with_hole, source, target)
        assert "mirrored" not in target.reading.topics()
        assert source.reading.group_offsets("readers") == {}
        created = prepare(plan, source, target)
        assert created == prepare(plan, source, target)
        assert source.reading.group_offsets("readers") == {partition: 25}
        found = target.reading.settings(["mirrored"])["mirrored"]
        assert {name: found[name] for name in PERMISSIVE} == PERMISSIVE
        assert begin_untranslated(plan, target) == 2
        assert target.reading.group_offsets("readers") == {partition: 0, empty: 0}
        assert begin_untranslated(plan, target) == 0
        with pytest.raises(TransientError, match="mirrored-0: offsets below 0 of 30"):
            check_copied(plan, created, source, target)
        with pytest.raises(QueryError, match="topic mirrored: another id"):
            check_copied(plan, replace(created, topics={"mirrored": "x"}), source, target)
        one_broker.alter_config("mirrored", {"cleanup.policy": "compact"})
        with pytest.raises(ConfigurationError, match=r"cleanup\.policy=compact"):
            prepare(plan, source, target)
    with running(archive.location, tmp_path, options=["--groups", "memory", "--on-hole", "skip"]) as [endpoint]:
        with pytest.raises(ConfigurationError, match="1 problem") as refused:  # the compaction alone
            prepare(with_hole, NewCluster(endpoint.address, {}), target)
        assert "lost offsets" not in str(refused.value)


def test_a_position_counts_if_the_copying_connector_wrote_it(one_broker: LocalCluster) -> None:
    """The newest for each partition; a removed one does not count, and foreign bytes have one clear error."""
    one_broker.create_topic(POSITIONS.topic)
    target = KafkaCluster(one_broker.bootstrap, {})
    assert positions(target) == {}

    def written(*records: tuple[bytes, bytes | None]) -> dict[TopicPartition, int]:
        one_broker.produce(POSITIONS.topic, [Record(value, key=key) for key, value in records], partition=0)
        return positions(target)

    copied, other = COPIED % 0, COPIED % 1
    group = b'["MirrorCheckpointConnector",{"group":"g","partition":0,"topic":"orders"}]'
    assert written((copied, b'{"offset":7}'), (copied, b'{"offset":9}'), (group, b'{"offset":0}')) == {ORDERS: 10}
    assert written((other, b'{"offset":1}'), (other, None)) == {ORDERS: 10}
    for key in (b"\xff", b"[]", b'["MirrorSourceConnector",{}]', b"[" * 5000):
        with pytest.raises(CorruptData, match=r"mm2-offsets.source.internal-0, offset \d+: not (JSON|a position)"):
            written((key, b"{}"))
        one_broker.delete_records(POSITIONS.topic, {0: one_broker.latest(POSITIONS.topic, 0)})


@dataclass(frozen=True)
class Old:
    """A lost cluster's archive, and what consumers read from the cluster below the open transaction."""

    archive: MadeArchive
    records: Mapping[TopicPartition, list[OracleRecord]]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    """Fill a broker, put its segments and snapshots into an archive, and remove the broker."""
    archive = MadeArchive(tmp_path_factory.mktemp("mirrored"))
    with LocalCluster(mode="kraft", name="old") as cluster:
        _fill(cluster)
        partitions = [TopicPartition(topic, number) for topic, count in _COUNTS.items() for number in range(count)]
        for each in partitions:
            stable = cluster.latest(each.topic, each.partition, committed=True)
            archive.ship_whole(cluster.brokers[1].partition_directory(each.topic, each.partition), stable)
        records = by_partition(dump(cluster.bootstrap, [*_COUNTS], "read_committed"))
    now = int(time.time() * 1000)
    # By its own retention, the old cluster would have removed these records before they were archived.
    configurations = {**_CONFIGURATIONS, _PLAIN: {"retention.ms": "604800000"}}
    topics = {name: Topic(None, ((1,),) * count, configurations.get(name, {})) for name, count in _COUNTS.items()}
    ClusterSnapshot(now, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, now // HOUR * HOUR)
    groups = {"reports": {each: GroupOffset(offset, 0, "") for each, offset in _GROUP_OFFSETS.items()}}
    GroupsSnapshot(now, groups).put(archive.store, archive.keys, now // FIVE_MINUTES * FIVE_MINUTES)
    yield Old(archive, records)
    archive.store.close()


def by_partition(records: Iterable[OracleRecord]) -> dict[TopicPartition, list[OracleRecord]]:
    """Return the records of each partition, in their order."""
    found: dict[TopicPartition, list[OracleRecord]] = defaultdict(list)
    for each in records:
        found[TopicPartition(each.topic, each.partition)].append(each)
    return found


def _fill(cluster: LocalCluster) -> None:
    """Write records that a default topic refuses, deletes or changes, and a transaction that is open at the end."""
    for topic, count in _COUNTS.items():
        cluster.create_topic(topic, partitions=count, config=_CONFIGURATIONS.get(topic, {}))
    for number, codec in enumerate(("none", "zstd", "lz4")):
        cluster.produce(_PLAIN, every_field(2500), partition=number, config={"compression.type": codec})
    cluster.produce(_COMPACTED, [Record(b"%d" % n, key=b"%d" % (n % 40)) for n in range(300)], partition=0)
    cluster.produce(_APPENDED, [Record(b"%d" % n) for n in range(100)], partition=0)
    later = int(time.time() * 1000) + 90 * 86_400_000
    large = [Record(b"x" * 5_000_000, timestamp=later), Record(b"after")]
    one_each = {"compression.type": "zstd", "message.max.bytes": 8_000_000, "batch.size": 1}
    cluster.produce(_LARGE, large, partition=0, config=one_each)
    producer, late = (cluster.producer({"transactional.id": name}) for name in ("one", "late"))
    for each in (producer, late):
        each.init_transactions(_SECONDS)
    for number in range(40):
        if number == 30:
            late.begin_transaction()
            late.produce(_TRANSACTIONS, b"open", partition=0)
            late.flush(_SECONDS)
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(_TRANSACTIONS, b"%d" % number, b"k", partition=0)
        producer.flush(_SECONDS)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(_SECONDS)


@pytest.mark.full
@pytest.mark.parametrize("line", LINES)
def test_a_copy_that_was_killed_twice_has_each_record_once(
    line: Line, old: Old, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In order, with key, value, headers and timestamp; groups repeat records and miss none; nothing was deleted."""
    directory = tmp_path / "restore"
    with (
        running(old.archive.location, tmp_path, options=["--groups", "memory"]) as [endpoint],
        LocalCluster(mode="kraft", line=line, name="target") as target,
    ):
        steps = Steps(runner(capfd), directory, endpoint.address, target)
        steps.plan(old.archive.location)
        settings = tmp_path / "further.properties"
        settings.write_text(_SLOW)
        started = steps.mirror("--mirror-config", settings)
        assert started.code == 1, started  # an open transaction
        assert "transactions-0: NOT COPIED: offsets" in started.out
        assert (directory / "mirror.properties").stat().st_mode & 0o777 == 0o600
        with mirror_maker(line, tmp_path, directory / "mirror.properties") as copying:
            for share in (4, 2):
                least = sum(map(len, old.records.values())) // share
                wait_for(lambda: steps.ends() > least, "a part of the copy", _SECONDS)  # noqa: B023  (called at once)
                copying.kill()
                assert steps.finish().code == 75
                copying.start()
            wait_for(lambda: steps.finish().code == 0, "the copy", _SECONDS, state=steps.finish)
            assert steps.groups().keys() == _GROUP_OFFSETS.keys()
            wait_for(lambda: steps.groups()[TopicPartition(_PLAIN, 0)] > 0, "MirrorMaker to translate", _SECONDS)
        found = by_partition(dump(target.bootstrap, [*_COUNTS], "read_committed"))
        assert {each: list(map(content, records)) for each, records in found.items()} == {
            each: list(map(content, records)) for each, records in old.records.items()
        }
        for partition, offset in steps.groups().items():
            before = sum(each.offset < _GROUP_OFFSETS[partition] for each in old.records[partition])
            assert offset <= found[partition][before].offset
        assert steps.finish("--configurations").code == 2
        assert steps.finish("--configurations", "--approve").code == 0
        described = KafkaCluster(target.bootstrap, {}).settings([_COMPACTED, _APPENDED])
        assert described[_COMPACTED]["cleanup.policy"] == "compact"
        assert described[_APPENDED]["message.timestamp.type"] == "LogAppendTime"


def content(record: OracleRecord) -> tuple[object, ...]:
    """Return what a copy keeps of a record; another log has other offsets, and append times are its own times there."""
    return record.timestamp, record.key, record.value, record.headers


@contextmanager
def mirror_maker(line: Line, directory: Path, settings: Path) -> Iterator[MirrorMaker]:
    """Run MirrorMaker with the written settings, and end it."""
    process = MirrorMaker(line, directory / "mirror-maker", settings)
    process.start()
    try:
        yield process
    except BaseException as error:
        error.add_note(process.tail(200))
        raise
    finally:
        process.kill()
        shutil.rmtree(process.directory)


class Steps:
    """The commands of a logical restore.

    Args:
        run: runs `tsctl` in this process.
        directory: of the plan.
        endpoint: its address.
        target: the running cluster.
    """

    def __init__(self, run: Run, directory: Path, endpoint: str, target: LocalCluster) -> None:
        self._run = run
        self._directory = directory
        self._endpoint = endpoint
        self._target = target

    def plan(self, location: str) -> None:
        """Make the plan."""
        ended = self._run("restore", "plan", self._directory, "--brokers", 1, "--url", location, "--cluster", CLUSTER)
        assert ended.code == 0, ended

    def mirror(self, *arguments: object) -> Ended:
        """Create the topics, and write MirrorMaker's settings."""
        servers = ("--source", self._endpoint, "--target", self._target.bootstrap)
        return self._run("restore", "mirror", self._directory, *servers, *arguments)

    def finish(self, *arguments: object) -> Ended:
        """Check the copy, and with an argument set the configurations."""
        return self._run("restore", "finish", self._directory, "--bootstrap-server", self._target.bootstrap, *arguments)

    def ends(self) -> int:
        """Return the sum of the partitions' end offsets in the target."""
        return sum(self._target.latest(topic, n) for topic, count in _COUNTS.items() for n in range(count))

    def groups(self) -> dict[TopicPartition, int]:
        """Return the group's offsets in the target."""
        return KafkaCluster(self._target.bootstrap, {}).group_offsets("reports")
