"""docs/consumer.md: its examples read a topic from the archive and from Kafka."""

import os

import pytest

from dev.local.kafka.cluster import Record
from tests.consumer.archives import FILLER, Both, fill, ship
from tests.docs.commands import CHECKOUT, blocks

PAGE = CHECKOUT / "docs/consumer.md"
(EXAMPLE,) = blocks(PAGE, "From confluent_kafka in three lines", language="python")
(HOUR,) = blocks(PAGE, "An hour of history, without a broker", language="python")


def test_the_example_prints_the_first_archived_record(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka no longer has it."""
    fill(both.cluster, "page_views", partitions=1, rounds=2)
    (shipped,) = ship(both.archive, both.cluster, "page_views", 1)
    both.cluster.delete_records("page_views", {0: shipped})
    text = EXAMPLE.text.replace("broker:9092", both.cluster.bootstrap)
    exec(compile(text.replace("s3://bucket/base/prefix", both.archive.location), "docs/consumer.md", "exec"), {})
    assert capsys.readouterr().out.startswith("page_views 0 ")


def test_the_example_of_an_hour_prints_its_records(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """Three of four records are in that hour, and the archive has them all."""
    begin = 1735689600000
    times = [begin - 1, begin, begin + 1, begin + 3_599_999]
    later = [Record(os.urandom(FILLER), timestamp=begin + 3_600_000)] * 8  # they close the segment
    both.cluster.create_topic("hour", partitions=1, config={"segment.bytes": str(1 << 20)})
    both.cluster.produce("hour", [*(Record(b"%d" % at, timestamp=at) for at in times), *later], partition=0)
    ship(both.archive, both.cluster, "hour", 1)
    text = HOUR.text.replace("s3://bucket/base/prefix", both.archive.location).replace("page_views", "hour")
    exec(compile(text, "docs/consumer.md", "exec"), {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [["0", f"{offset}", f"b'{times[offset]}'"] for offset in (1, 2, 3)]
