"""docs/consumer.md: its example reads a topic from the archive and from Kafka."""

import pytest

from tests.consumer.archives import Both, fill, ship
from tests.docs.commands import CHECKOUT, blocks

(EXAMPLE,) = blocks(CHECKOUT / "docs/consumer.md", "From confluent_kafka in three lines", language="python")


def test_the_example_prints_the_first_archived_record(both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka no longer has it."""
    fill(both.cluster, "page_views", partitions=1, rounds=2)
    (shipped,) = ship(both.archive, both.cluster, "page_views", 1)
    both.cluster.delete_records("page_views", {0: shipped})
    text = EXAMPLE.text.replace("broker:9092", both.cluster.bootstrap)
    exec(compile(text.replace("s3://bucket/base/prefix", both.archive.location), "docs/consumer.md", "exec"), {})
    assert capsys.readouterr().out.startswith("page_views 0 ")
