"""Made `tests/data/archive-1`, once, with the code of commit ff71d9d; kept to show how. It is never run again.

`python make_archive_1.py DIRECTORY` starts two real brokers, ZooKeeper, an S3 server and an agent for each broker,
runs the cases that the fixture's README lists, and writes the fixture's files to DIRECTORY. Files are written in the
order of the functions: `before_agents`, `with_agents`, `unclean_election`, `with_a_gap`, `last_stage`, `further`.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from tests.compatibility.archive_1_files import write_brokers, write_bucket, write_expected
from tests.compatibility.archive_1_stage import (
    CLUSTER_ID,
    CODECS,
    ENTROPY_BITS,
    PROPERTIES,
    ROLLS,
    SECONDS,
    SHARED,
    TOPICS,
    TWO_REPLICAS,
    Stage,
)
from tests.every_field import TIME, every_field
from tests.faults.fleet.java_uploader import JavaUploader
from tests.faults.leaders import bases, die, high_watermark, state, wait_in_sync, wait_led, zookeeper_of
from tests.uploader.beside import BUCKET, PREFIX, archives
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import ForeignCommit
from ts_common.archive.object_keys import CACHE_DIRECTORY


def before_agents(stage: Stage) -> None:
    """A Java uploader, the cleaner, and a log without its beginning."""
    cluster = stage.cluster
    with JavaUploader(stage.of["java"], 1):
        stage.produce("java", "java", 110)
        keys = stage.of["java"].partition_keys()

        def named() -> bool:
            found, _ = read_commit(stage.of["java"].store, keys)
            return isinstance(found, ForeignCommit) and found.highest_base == bases(cluster, 1, "java")[-2]

        wait_for(named, "the Java uploader to upload all", SECONDS)
    rows = [
        Record(None if n % 13 == 0 else b"%d-" % n * 30, b"k%d" % (n if n % 9 == 0 else n % 7), timestamp=TIME + n)
        for n in range(500)
    ]
    # Not idempotent: the last batch of a living producer would keep its place.
    cluster.produce("compacted", rows, partition=0, config={"enable.idempotence": "false", "batch.size": 1000})
    wait_in_sync(cluster, "compacted", 1, 2)
    for broker in (1, 2):
        wait_for(lambda: _is_cleaned(cluster, broker), f"the cleaner of broker {broker}", SECONDS)  # noqa: B023
    cluster.alter_config("compacted", {"min.compaction.lag.ms": "9000000000000"})
    stage.produce("compacted", "dense", 160)
    stage.produce("begun-late", "early", 120)
    cut = bases(cluster, 1, "begun-late")[2]
    cluster.delete_records("begun-late", {0: cut})
    wait_for(lambda: bases(cluster, 1, "begun-late")[0] == cut, "the beginning to go", SECONDS)


def _is_cleaned(cluster: LocalCluster, broker: int) -> bool:
    checkpoint = cluster.brokers[broker].log_dirs[0] / "cleaner-offset-checkpoint"
    active = bases(cluster, broker, "compacted")[-1]
    return checkpoint.exists() and f"compacted 0 {active}" in checkpoint.read_text().splitlines()


def with_agents(stage: Stage) -> None:
    """Clean elections, transactions, every field in every codec, and the topic that is created again."""
    cluster = stage.cluster
    for topic in ("begun-late", "gap", "reborn", "appended", "old-format", "java"):
        stage.produce(topic, "first", 90)
    for topic in ("unclean", "taken-back", "unclean-later"):
        stage.produce(topic, "shared", SHARED)
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "batch.size": 1000}
        cluster.produce("fields", every_field(70 + number)[:70], partition=0, config=settings)
    for round_ in ("first", "second", "third", "fourth"):
        for topic, partition in stage.partitions(["elections"]):
            stage.produce(topic, round_, 70, partition)
        stage.ship("elections")
        for topic, partition in stage.partitions(["elections"]):
            stage.move(topic, partition)
    transactions(cluster)
    stage.ship()
    for topic in ("compacted", "java", "fields", "transactions", "old-format", "begun-late"):
        stage.move(topic)
        stage.produce(topic, "second", 90)
    transactions(cluster)
    stage.ship()
    stage.note_gone("reborn", 1)
    cluster.delete_topic("reborn")
    wait_for(lambda: _created(cluster), "reborn to be created again", SECONDS)
    stage.produce("reborn", "second-life", 90)
    stage.ship()


def _created(cluster: LocalCluster) -> bool:
    try:
        cluster.create_topic("reborn", assignment=TOPICS["reborn"][0], config=TOPICS["reborn"][1])
    except KafkaException as error:  # the brokers have forgotten it, and the controller has not yet
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def producers(cluster: LocalCluster, *names: str) -> list[Producer]:
    """Transactional ones, whose transactions last as long as Kafka lets them."""
    made = []
    for name in names:
        made.append(cluster.producer({"transactional.id": name, "batch.size": 1000, "transaction.timeout.ms": 900_000}))
        made[-1].init_transactions(SECONDS)
    return made


def send(producer: Producer, line: str, count: int) -> None:
    """Records of the transaction that is open."""
    for n in range(count):
        producer.produce("transactions", f"{line}-{n:06}-".encode() * 12, b"%d" % n, partition=0)
    producer.flush(SECONDS)


def transactions(cluster: LocalCluster) -> None:
    """Two producers in turn; an aborted and a committed transaction that reach over several segments."""
    one, two = producers(cluster, "one", "two")
    for producer in (one, two):
        producer.begin_transaction()
    send(one, "long-aborted", 40)
    send(two, "long-committed", 40)
    send(one, "long-aborted", 40)
    one.abort_transaction(SECONDS)
    send(two, "long-committed", 40)
    two.commit_transaction(SECONDS)
    for n in range(4):
        for producer in (one, two):
            producer.begin_transaction()
        send(one, f"short-committed-{n}", 3)
        send(two, f"short-aborted-{n}", 3)
        two.abort_transaction(SECONDS)
        one.commit_transaction(SECONDS)


def lose(stage: Stage, *topics: str) -> None:
    """Broker 1 alone writes what an unclean election will lose; it is shipped. Broker 2 is dead afterwards."""
    for topic, partition in stage.partitions(TWO_REPLICAS):
        wait_in_sync(stage.cluster, topic, 1, 2, partition=partition)
    for topic in topics:
        if state(stage.cluster, topic).leader != 1:
            stage.move(topic)
    die(stage.cluster, 2)
    for topic, partition in stage.partitions():
        wait_led(stage.cluster, topic, 1, partition)
    for topic in topics:
        stage.produce(topic, "dead", 90)
    stage.ship(*topics)


def elect(stage: Stage, living: Mapping[str, int]) -> None:
    """Broker 2 leads, and writes other records at the same offsets, so many of each topic."""
    die(stage.cluster, 1)
    stage.cluster.brokers[2].start()
    for topic, count in living.items():
        wait_led(stage.cluster, topic, 2)
        stage.produce(topic, "living", count)


def come_back(stage: Stage) -> None:
    """Broker 1; all replicas are in sync."""
    stage.cluster.brokers[1].start()
    for topic, partition in stage.partitions(TWO_REPLICAS):
        wait_in_sync(stage.cluster, topic, 1, 2, partition=partition)


def unclean_election(stage: Stage) -> None:
    """The agents see it; of one topic they ship both lines, of the other nothing is closed behind the election."""
    lose(stage, "unclean", "taken-back")
    elect(stage, {"unclean": 110, "taken-back": 5})
    stage.ship("unclean")
    place = "taken-back", 1, 0
    wait_for(
        lambda: stage.next_offset(place) == SHARED, "it to be taken back", SECONDS, state=lambda: stage.commit(place)
    )
    come_back(stage)
    stage.move("unclean")
    stage.produce("unclean", "after", 90)
    stage.ship()


def with_a_gap(stage: Stage) -> None:
    """Retention deletes segments while no agent runs."""
    stage.stop_agents()
    stage.note_gone("gap", 1)
    shipped = stage.next_offset(("gap", 1, 0))
    stage.produce("gap", "never-shipped", 120)
    cut = bases(stage.cluster, 1, "gap")[-2]
    assert cut > shipped
    stage.cluster.delete_records("gap", {0: cut})
    directory = stage.cluster.brokers[1].partition_directory("gap", 0)
    wait_for(lambda: min(path.name for path in directory.glob("*.log*"))[:20] == f"{cut:020d}", "it to go", SECONDS)
    stage.start_agents()
    stage.produce("gap", "behind", 90)
    stage.ship()


def last_stage(stage: Stage) -> list[Producer]:
    """Transactions that are open in the archive's last segments, and what a later unclean election will lose."""
    undecided = producers(stage.cluster, "to-be-committed", "to-be-aborted")
    for producer in undecided:
        producer.begin_transaction()
        send(producer, "undecided", 20)
    stage.produce("transactions", "beside", 60)
    stage.ship()
    lose(stage, "unclean-later")
    return undecided


def further(stage: Stage, undecided: list[Producer]) -> None:
    """What the agents, ended by now, never saw: other leaders, and segments that are not shipped."""
    elect(stage, {"unclean-later": 110})
    come_back(stage)
    send(undecided[1], "undecided", 20)
    undecided[0].commit_transaction(SECONDS)
    undecided[1].abort_transaction(SECONDS)
    for topic in ("fields", "transactions", "old-format", "java", "taken-back"):
        stage.move(topic)
    stage.move("elections", 1)
    for number, (topic, partition) in enumerate(stage.partitions()):
        if topic == "fields":
            stage.cluster.produce(topic, every_field(100)[:100], partition=0, config={"batch.size": 1000})
        stage.produce(topic, "further", 100 + number, partition)
    transactions(stage.cluster)
    stage.produce("transactions", "end", 60)


def wait_checkpointed(stage: Stage) -> None:
    """Wait until all records are below the high watermark in each leader's checkpoint."""
    for topic, partition in stage.partitions():
        end, leader = stage.cluster.latest(topic, partition), state(stage.cluster, topic, partition).leader
        wait_for(
            lambda: high_watermark(stage.cluster, leader, topic, partition) == end,  # noqa: B023
            f"the checkpoint of {topic}-{partition}",
            SECONDS,
        )


def check_met(stage: Stage) -> None:
    """The archive holds what the fixture is for."""
    names = {info.key for info in stage.of["elections"].store.list()}

    def has(pattern: str) -> bool:
        return any(fnmatch(name, f"*/{pattern}") for name in names)

    assert has("gap-0/gaps/*.json")
    assert has("unclean-0/*.e[0-9]*.log")
    assert has("transactions-0/*.txnindex")
    assert has("reborn~*/*.log")
    assert has("begun-late-0/log.start")
    assert not has("begun-late-0/00000000000000000000.log")
    commit = stage.commit(("transactions", 1, 0))
    assert commit is not None
    assert commit.last_stable_offset is not None
    assert commit.last_stable_offset < commit.next_offset
    assert stage.next_offset(("taken-back", 1, 0)) == SHARED
    assert stage.next_offset(("unclean-later", 1, 0)) > SHARED


def main(target: Path) -> None:
    """All of it."""
    target.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="archive-1-"))
    properties = {PREFIX + "kafka.topics.include": ",".join(TOPICS)}
    with (
        LocalCluster(
            brokers=2, s3=True, buckets=[BUCKET], properties=PROPERTIES, broker_properties=ROLLS, name="archive-1"
        ) as cluster,
        archives(cluster, directory) as archive_of,
        zookeeper_of(cluster).client() as client,
    ):
        named = {"cluster_id": CLUSTER_ID, "entropy_bits": ENTROPY_BITS, "properties": properties}
        stage = Stage(cluster, client, {topic: archive_of(topic, **named) for topic in TOPICS})
        for topic, (assignment, config) in TOPICS.items():
            cluster.create_topic(topic, assignment=assignment, config=config)
        before_agents(stage)
        stage.start_agents()
        with_agents(stage)
        unclean_election(stage)
        with_a_gap(stage)
        undecided = last_stage(stage)
        store = stage.of["elections"].store
        wait_for(
            lambda: sum(CACHE_DIRECTORY in info.key for info in store.list()) > len(TOPICS) // 2,
            "cache objects",
            SECONDS,
        )
        stage.stop_agents()
        check_met(stage)
        write_bucket(stage, target / "bucket.tar.xz")
        shown = stage.shown()
        ends = {place: stage.next_offset(place) for place in shown}
        further(stage, undecided)
        write_expected(target / "expected.jsonl.gz", {"archive": shown, "later": stage.shown()}, ends)
        # Its cleaner ended at another offset than broker 1's, which shipped that part: only later records are equal.
        stage.move("compacted")
        wait_checkpointed(stage)
        write_brokers(stage, target / "brokers.tar.xz")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
