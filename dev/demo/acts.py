"""The demo, act by act. `tell` runs all of it; each act prints what it does."""

import os
import shutil
import sys
import time
from contextlib import ExitStack, closing

from confluent_kafka import KafkaException

from dev.demo.answers import DemoFailedError, tell_answer
from dev.demo.doors import Doors, Endpoint
from dev.demo.ending import raise_if_ended
from dev.demo.journal import Journal
from dev.demo.producing import CODECS, close_segments, produce
from dev.demo.query import Question
from dev.demo.records import DAY_MS, HOUR_MS, Day
from dev.demo.screen import Screen
from dev.demo.shipping import Archive, Shipped, Watch, active_bases, size_of, wait_for_shipping, wait_for_tail
from dev.demo.spark_runner import QueryFailedError, ask
from dev.local import jdk
from dev.local.agent import AgentProcess, write_config
from dev.local.apt import ToolMissingError
from dev.local.environment import isolate
from dev.local.jars import BuildFailedError
from dev.local.kafka.cluster import LocalCluster, WaitTimedOutError
from dev.local.kafka.topics import NotDeliveredError
from dev.local.ports import NoFreePortError
from dev.local.process import ServerDiedError
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys
from ts_common.errors import TieredStorageError
from ts_common.store.factory import open_store
from ts_reader import Archive as Reader

TOPIC = "page_views"
PARTITIONS = 3
CLUSTER = "demo"
BUCKET = "archive"
LOCATION = f"s3://{BUCKET}/kafka"
ENTROPY_BITS = 5

_LEAST_SHIPPED = 0.99
_KIB = 1 << 10
_SMALL_DEMO = 200_000  # records; a smaller demo has smaller segments, so that some close while it produces
# segment.ms compares timestamps of records, and those of the demo span a day: at first no segment closes by time.
_NOT_BY_TIME = {"segment.ms": str(7 * DAY_MS)}
_CLOSING_CONFIG = {"segment.ms": "60000"}


_FAILURES = (
    *(DemoFailedError, QueryFailedError, NotDeliveredError, ServerDiedError, WaitTimedOutError),
    *(ToolMissingError, BuildFailedError, NoFreePortError, TieredStorageError, KafkaException, OSError),
)


def tell(records: int) -> int:
    """Run the demo with this many records, and return its exit status: 0 or 1."""
    screen = Screen()
    isolate()
    cluster = LocalCluster(s3=True, buckets=(BUCKET,), name="demo")
    try:
        with ExitStack() as running:
            screen.section("ZooKeeper, a Kafka broker and an S3 server start on free loopback ports", "start")
            with screen.waiting("they start"):
                running.enter_context(cluster)
            os.environ.update(cluster.s3.environment() if cluster.s3 else {})
            _introduce(screen, cluster)
            agent = _start_agent(screen, cluster)
            running.callback(agent.kill)
            journal = Journal(cluster.directory / "journal")
            store = running.enter_context(closing(open_store(LOCATION)))
            archive = Archive(store, ClusterKeys(CLUSTER, ENTROPY_BITS), TOPIC, PARTITIONS)
            day = Day(int(time.time() * 1000) // DAY_MS * DAY_MS - 2 * DAY_MS, records)

            _produce_and_ship(screen, cluster, agent, journal, archive, day)
            shipped = _close_and_ship(screen, cluster, agent, journal, archive, day)
            _report(screen, cluster, journal, shipped)
            _show_the_tail(screen, journal)
            journal.close()
            _delete_the_broker(screen, cluster, agent)
            _ask_spark(screen, cluster, journal, day)
            _open_doors(screen, cluster, journal, day, running)
            _what_next(screen)
    except KeyboardInterrupt:
        shutil.rmtree(cluster.logs, ignore_errors=True)
        raise
    except _FAILURES as error:
        print(f"\nThe demo failed: {error}\nAll logs are kept in {cluster.logs}", file=sys.stderr)
        return 1
    screen.end(f"All servers are stopped and all files deleted. Time: {screen.times()}.")
    return 0


def _introduce(screen: Screen, cluster: LocalCluster) -> None:
    broker, zookeeper, s3 = cluster.brokers[1], cluster.zookeeper, cluster.s3
    screen.say(f"Kafka 3.9 on {broker.bootstrap}, ZooKeeper on {zookeeper and zookeeper.connect}")
    screen.say(f"S3 on {s3 and s3.endpoint} (SeaweedFS), bucket {BUCKET}")


def _start_agent(screen: Screen, cluster: LocalCluster) -> AgentProcess:
    config_dir = cluster.directory / "conf"
    settings = {
        "storage.service.endpoint.url": LOCATION,
        "ts.segment.uploader.s3.prefix.entropy.bits": str(ENTROPY_BITS),
        "ts.segment.uploader.kafka.topics.include": TOPIC,
        "ts.segment.uploader.tail.interval.ms": "1000",
    }
    write_config(config_dir, CLUSTER, settings)
    broker = cluster.brokers[1]
    agent = AgentProcess(cluster.directory / "agent", cluster.logs, config_dir, broker.server_properties, CLUSTER)
    screen.section("The agent starts on the broker's host; its configuration is four lines", "agent")
    screen.code([f"{key}={value}" for key, value in settings.items()])
    agent.start()
    screen.say(f"It answers on http://{agent.address}/healthz and /metrics.")
    return agent


def _produce_and_ship(
    screen: Screen, cluster: LocalCluster, agent: AgentProcess, journal: Journal, archive: Archive, day: Day
) -> None:
    screen.section(f"{day.count:,} records are produced, and the agent ships each segment that closes", "produce")
    codecs = ", ".join(CODECS)
    segment_kib = 1024 if day.count >= _SMALL_DEMO else 128
    screen.say(f"Topic {TOPIC}: {PARTITIONS} partitions, segments of {segment_kib} KiB.")
    screen.say("Records with keys, headers and the timestamps of one day.")
    screen.say(f"Three producers, one codec each ({codecs}). Acknowledged records are written to a journal.")
    cluster.create_topic(TOPIC, PARTITIONS, config={**_NOT_BY_TIME, "segment.bytes": str(segment_kib * _KIB)})
    with screen.bars() as bars:
        watch = Watch(bars, [*cluster.servers, agent], journal, archive, day.count)
        try:
            produce(cluster, TOPIC, day, journal, watch.sometimes)
        except Exception:
            raise_if_ended()  # the producer's binding answers a signal with a TypeError
            raise
        wait_for_shipping(archive, active_bases(cluster.brokers[1], TOPIC, PARTITIONS), watch.show)
    screen.say(f"The agent sent {size_of(agent.metrics()['ts_uploader_bytes_total'])}, indexes included.")


def _close_and_ship(
    screen: Screen, cluster: LocalCluster, agent: AgentProcess, journal: Journal, archive: Archive, day: Day
) -> dict[int, Shipped]:
    screen.section("The last segments close: segment.ms is lowered, and one more record is produced", "close")
    cluster.alter_config(TOPIC, _CLOSING_CONFIG)
    close_segments(cluster, TOPIC, day, range(PARTITIONS), journal)
    with screen.bars() as bars:
        watch = Watch(bars, [*cluster.servers, agent], journal, archive, day.count + PARTITIONS)
        return wait_for_shipping(archive, active_bases(cluster.brokers[1], TOPIC, PARTITIONS), watch.show)


def _report(screen: Screen, cluster: LocalCluster, journal: Journal, shipped: dict[int, Shipped]) -> None:
    """Print the table of partitions, and check that at least 99 % of the records were shipped."""
    active = active_bases(cluster.brokers[1], TOPIC, PARTITIONS)
    rows: list[list[int | str]] = []
    for number in range(PARTITIONS):
        end, there = journal.ends.get(number, 0), shipped[number]
        below = min(there.next_offset, end)
        waiting = max(0, active[number] - below)
        rows.append(
            [number, journal.counts[number], below, end - below - waiting, waiting, there.segments, size_of(there.size)]
        )
    total, below = journal.total, sum(int(row[2]) for row in rows)
    columns = ("partition", "produced", "shipped", "in the active segment", "closed, not shipped", "segments", "stored")
    screen.table(columns, rows)
    # Round down: 98.996 must not be shown as 99.
    share = below * 10_000 // total / 100
    screen.say(f"{below:,} of {total:,} records are shipped in segments: {share:.2f} %.", "bold")
    if below < _LEAST_SHIPPED * total:
        raise DemoFailedError(f"only {share:.2f} % of the records were shipped, 99 % were expected")


def _show_the_tail(screen: Screen, journal: Journal) -> None:
    """Wait for the live tail.

    Raises:
        DemoFailedError: readers do not return each acknowledged record.
    """
    with screen.waiting("the live tail is shipped"):
        ends = wait_for_tail(Reader(LOCATION, cluster=CLUSTER), TOPIC, journal.ends)
    if ends != journal.ends:
        raise DemoFailedError(f"readers return the offsets below {ends}; below {journal.ends} were acknowledged")
    screen.say(f"The live tail has the others: readers return all {journal.total:,}.")


def _delete_the_broker(screen: Screen, cluster: LocalCluster, agent: AgentProcess) -> None:
    screen.section("Agent, broker and ZooKeeper are stopped, and the broker's data is deleted", "delete")
    broker, zookeeper = cluster.brokers[1], cluster.zookeeper
    servers = [agent, broker, *([] if zookeeper is None else [zookeeper])]
    with screen.waiting("they stop"):
        for server in servers:
            server.stop()
    log = sum(path.stat().st_size for path in broker.log_dirs[0].rglob(f"*{LOG_SUFFIX}"))
    for server in servers[1:]:
        shutil.rmtree(server.directory)
    left = [server.name for server in servers if server.alive]
    left += [str(server.directory) for server in servers[1:] if server.directory.exists()]
    if left:
        raise DemoFailedError(f"still there after stopping and deleting: {', '.join(left)}")
    screen.say(f"Deleted {broker.directory}, with {size_of(log)} of log.")
    screen.say("Only the S3 server runs now.")


def _ask_spark(screen: Screen, cluster: LocalCluster, journal: Journal, day: Day) -> None:
    screen.section("Spark reads the topic from the store", "query")
    noon = day.start_ms + DAY_MS // 2
    question = Question(
        location=LOCATION,
        cluster=CLUSTER,
        entropy_bits=ENTROPY_BITS,
        topic=TOPIC,
        ends=[journal.ends.get(number, 0) for number in range(PARTITIONS)],
        first_ms=noon,
        end_ms=noon + HOUR_MS,
        journal=str(journal.directory),
        scratch=str(cluster.directory / "spark"),
    )
    screen.code(
        [
            'spark.read.format("kafka_segments")',
            f'  .option("cluster", "{CLUSTER}").option("prefixEntropyBits", {ENTROPY_BITS})',
            f'  .option("subscribe", "{TOPIC}").option("includeHeaders", "true")',
            f'  .load("{LOCATION}")',
        ]
    )
    answered = set()
    with ask(question, cluster.logs / "spark.log") as answers:
        while True:
            with screen.waiting("Spark works"):
                facts = next(answers, None)
            if facts is None:
                break
            answered.add(facts["answer"])
            tell_answer(screen, question, facts)
    if "comparison" not in answered:
        raise QueryFailedError(f"the Spark program ended without comparing; it answered {sorted(answered)}")


def _open_doors(
    screen: Screen,
    cluster: LocalCluster,
    journal: Journal,
    day: Day,
    running: ExitStack,
) -> None:
    doors = Doors(
        screen=screen,
        directory=cluster.directory,
        logs=cluster.logs,
        config=cluster.directory / "conf",
        location=LOCATION,
        cluster=CLUSTER,
        topic=TOPIC,
        ends=[journal.ends.get(number, 0) for number in range(PARTITIONS)],
        journal=journal.directory,
    )
    screen.section("SQL reads it, by DuckDB in one process", "sql")
    with screen.waiting("DuckDB works"):
        doors.sql()
    screen.section("A table of Parquet files is made of it, each record once", "table")
    with screen.waiting("the table is made"):
        doors.table()
    screen.section("A Kafka client reads it, from an endpoint without a broker", "client")
    endpoint = Endpoint(cluster.directory / "endpoint", cluster.logs, doors.config)
    running.callback(endpoint.kill)
    with screen.waiting("the endpoint starts"):
        endpoint.start()
    noon = day.start_ms + DAY_MS // 2
    doors.client(endpoint, noon, noon + HOUR_MS)
    screen.section("A drill restores the topic into a throw-away broker, at its offsets", "drill")
    with screen.waiting("the drill works"):
        doors.drill()
    if is_kept():
        _keep(screen, cluster, doors, endpoint)


def is_kept() -> bool:
    """Whether DEMO_KEEP wants the servers to stay until Enter."""
    return os.environ.get("DEMO_KEEP", "") not in {"", "0"}


# In one line, for a shell.
_SPARK = (
    'from pyspark.sql import SparkSession as S; print(S.builder.getOrCreate().read.format("kafka_segments")'
    f'.option("cluster", "{CLUSTER}").option("subscribe", "{TOPIC}").load("{LOCATION}").count())'
)


def _keep(screen: Screen, cluster: LocalCluster, doors: Doors, endpoint: Endpoint) -> None:
    screen.section("The S3 server and the endpoint stay until Enter", "kept")
    screen.say("In another terminal, in this directory:")
    variables = {**(cluster.s3.environment() if cluster.s3 else {}), **jdk.variables()}
    screen.code([*(f"export {name}={value}" for name, value in variables.items()), "export PATH=$PWD/.venv/bin:$PATH"])
    screen.code(
        [
            f"tsctl ls --config {doors.shown}",
            f"tsctl cat {TOPIC} --config {doors.shown} --max 3",
            f'tsctl sql --config {doors.shown} --value json "SELECT * FROM {TOPIC} LIMIT 3"',
            f"tsctl tables status --file {os.path.relpath(doors.directory / 'tables.yaml')}",
            f"kcat -b {endpoint.bootstrap} -C -t {TOPIC} -c 3    # Debian's package kcat, or any Kafka client",
            f"python -c '{_SPARK}'",
        ]
    )
    screen.say("Enter ends the demo.")
    sys.stdin.readline()


def _what_next(screen: Screen) -> None:
    screen.section("What to try next", "next")
    for text, command in (
        ("more records:", "DEMO_RECORDS=5000000 make demo"),
        ("the tests, on the same real servers:", "make test"),
        (
            "your own broker (docs/configuration.md, docs/store.md):",
            ".venv/bin/ts-uploader run CONFIG_DIR --server-properties /etc/kafka/server.properties",
        ),
        (
            "part of a topic, in your own Spark (docs/spark.md):",
            """spark.read.format("kafka_segments").option("startingOffsets", '{"page_views":{"0":100}}')...""",
        ),
    ):
        screen.say(text)
        screen.code([command])
