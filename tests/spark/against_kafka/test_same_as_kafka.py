"""`kafka_segments` compared with Spark's own Kafka source: the same options, the same topics, a real broker."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.bench.measuring.java_parts import spark_kafka_jars
from dev.local.kafka.cluster import LocalCluster, Record
from tests.spark.against_kafka.cases import Case, cases
from tests.spark.archives import Archive

ROOT = Path(__file__).parents[3]
COUNT = 300  # records of each partition
STEP = 1000  # milliseconds between two of them
SECONDS = 900
EMPTY = {  # both sources return no rows for these, and rows for all others
    "a pattern without a match",
    "a start at the end",
    "the same, with the strategy",
    "a topic without records",
}
_SEGMENTS = {"segment.bytes": "3000", "index.interval.bytes": "1000"}

Answer = dict[str, Any]


def records(begin: int, count: int = COUNT, *, headers: bool = False) -> list[Record]:
    """A record a second."""
    return [
        Record(
            f"value {number}".encode() if number % 7 else None,
            key=b"%d" % number,
            headers=[("n", b"%d" % number), ("none", None)] if headers and number % 3 else [],
            timestamp=begin + number * STEP,
        )
        for number in range(count)
    ]


def fill(cluster: LocalCluster, begin: int) -> list[str]:
    """The topics of the cases; their names."""
    for partition, codec in enumerate(("none", "gzip", "zstd")):
        if not partition:
            cluster.create_topic("clicks", partitions=3, config=_SEGMENTS)
        config = {"compression.type": codec, "batch.size": 500}
        cluster.produce("clicks", records(begin, headers=True), partition=partition, config=config)
    for name, extra in {
        "page_views": {"compression.type": "lz4"},
        "accounts": {},
        "appended": {"message.timestamp.type": "LogAppendTime"},
        "purged": {},
    }.items():
        cluster.create_topic(name, config={**_SEGMENTS, **extra})
        cluster.produce(name, records(begin), partition=0, config={"batch.size": 500})
    cluster.create_topic("page_empty", config=_SEGMENTS)
    cluster.create_topic("tx", config=_SEGMENTS)
    producer = cluster.producer({"transactional.id": "tx", "batch.size": 500})
    producer.init_transactions(60)
    for number in range(30):
        producer.begin_transaction()
        for record in records(begin, 20):
            producer.produce("tx", value=record.value, key=record.key, partition=0, timestamp=record.timestamp or 0)
        producer.flush()
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(60)
    return ["clicks", "page_views", "accounts", "appended", "purged", "page_empty", "tx"]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Case, Answer, Answer]]]:
    """Each case, with what this source and Spark's answer."""
    begin = int(time.time() * 1000) - 3_600_000
    with LocalCluster(name="against-kafka") as cluster:
        names = fill(cluster, begin)
        archive = Archive(tmp_path_factory.mktemp("archive"))
        log_dir = cluster.brokers[1].log_dirs[0]
        ends: dict[str, dict[str, int]] = {name: {} for name in names}
        for directory in log_dir.iterdir():
            topic, _, partition = directory.name.rpartition("-")
            if topic in ends:
                closed = len(list(directory.glob("*.log"))) > 1
                ends[topic][partition] = archive.ship(directory) if closed else 0
                if not closed:
                    archive.commit(topic, 0, partition=int(partition))
        cluster.delete_records("purged", {0: 100})
        options = {
            **archive.options(),
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafkaConsumer.pollTimeoutMs": "3000",
        }
        asked = cases(begin + 20 * STEP, begin + 100 * STEP, begin + 10 * 3_600_000)
        question = {
            "jars": [str(jar) for jar in spark_kafka_jars()],
            "options": options,
            "next": ends,
            "cases": [case.options for case in asked],
        }
        run = subprocess.run(
            [sys.executable, "-m", "tests.spark.against_kafka.process"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            check=False,
        )
        assert run.returncode == 0, run.stderr[-4000:]
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        yield [(case, line["ours"], line["kafka"]) for case, line in zip(asked, lines, strict=True)]


@pytest.mark.full
def test_the_same_options_give_the_same_rows_or_an_error_in_both(
    answered: list[tuple[Case, Answer, Answer]],
) -> None:
    """But for what the page's table of differences names."""
    wrong = [
        f"{case.name} ({case.differs}): {ours} here, {kafka} there"
        for case, ours, kafka in answered
        if case.rows != ("rows" in ours)
        or (case.differs is None and (ours != kafka if case.rows else "error" not in kafka))
        or (case.differs is not None and case.rows and ours == kafka)
    ]
    assert not wrong, "\n".join(wrong)
    empty = {case.name for case, ours, _ in answered if ours.get("rows") == 0}
    assert empty <= EMPTY


@pytest.mark.full
def test_the_page_names_every_difference_and_no_other(answered: list[tuple[Case, Answer, Answer]]) -> None:
    """Each case that differs has a row; the names of these rows are bold."""
    page = (ROOT / "docs/spark.md").read_text()
    table = page.partition("### Differences")[2].partition("\n#")[0]
    named = set(re.findall(r"^\| \*\*(.+?)\*\*", table, re.MULTILINE))
    assert {case.differs for case, _, _ in answered if case.differs} == named
