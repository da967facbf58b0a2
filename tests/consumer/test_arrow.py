"""`consume_arrow`: the rows of both tiers as one table, with the positions of `consume`."""

from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, TopicPartition
from structlog.testing import capture_logs

from tests.consumer.archives import SECONDS, Both, fill, in_directory, place, read_until, ship
from tests.made_archive import batches
from ts_consumer import TieredConsumer, TierMode
from ts_reader import Archive

TOPIC = "arrow"


def tables_until(consumer: TieredConsumer, end: int, rows: int = 1000) -> pa.Table:
    """Return the rows of partition 0 below an end."""
    found: list[pa.Table] = []
    deadline = monotonic() + SECONDS
    while not found or found[-1].column("offset")[-1].as_py() < end - 1:
        assert monotonic() < deadline, sum(map(len, found))
        table = consumer.consume_arrow(rows, 0.5)
        assert table.num_rows <= rows
        found += [table] if table.num_rows else []
    return pa.concat_tables(found)


@pytest.fixture(scope="module")
def rows(both: Both) -> tuple[int, dict[int, list[tuple[Any, ...]]]]:
    """A topic whose first offsets only the archive has; its end, and the rows of the plain client."""
    fill(both.cluster, TOPIC, partitions=1)
    (shipped,) = ship(both.archive, both.cluster, TOPIC, 1)
    end = both.cluster.latest(TOPIC, 0)
    found = both.plain_rows(TOPIC, [end])
    both.cluster.delete_records(TOPIC, {0: shipped - 10})
    return end, found


def test_both_tiers_have_one_schema_and_the_readers_values(both: Both, rows: Any) -> None:
    """The archive's part equals a scan of it; the rest has the plain client's keys, values and headers."""
    end, plain = rows
    with both.consumer(TierMode.KAFKA_PREFERRED, "arrow") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        found = tables_until(consumer, end)
        assert consumer.position([TopicPartition(TOPIC, 0)])[0].offset == end
        consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition(TOPIC, 0)], 10)[0].offset == end
    archive = Archive(both.archive.location, "prod")
    scanned = pa.table(archive.scan(TOPIC, include_headers=True, include_timestamp_ms=True))
    assert found.schema == scanned.schema
    assert found.slice(0, scanned.num_rows).equals(scanned)
    headers = [
        None if each is None else [(h["key"], h["value"]) for h in each] for each in found["headers"].to_pylist()
    ]
    values = zip(
        found["offset"].to_pylist(), found["key"].to_pylist(), found["value"].to_pylist(), headers, strict=True
    )
    assert list(values) == [(row[2], row[3], row[4], row[5]) for row in plain[0]]
    times = [
        (kind + 1, time.timestamp() * 1000)
        for kind, time in zip(found["timestampType"].to_pylist(), found["timestamp"].to_pylist(), strict=True)
    ]
    assert times == [row[6] for row in plain[0]]


def test_calls_of_both_kinds_continue_each_other(both: Both, rows: Any) -> None:
    """Messages, then rows, then messages: each record once."""
    end, plain = rows
    with both.consumer(TierMode.TIERED_STORAGE_PREFERRED, "mixed") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        offsets = [message.offset() for message in consumer.consume(7, 10)]
        offsets += consumer.consume_arrow(5, 10)["offset"].to_pylist()
        offsets += [row[2] for row in read_until(consumer, {0: end})[0]]
    assert offsets == [row[2] for row in plain[0]]


def test_an_error_follows_the_rows_before_it(tmp_path: Path) -> None:
    """Then it is raised once, and the partition stays there."""
    archive = in_directory(tmp_path)
    archive.put_segment(TOPIC, 0, batches((0, 10)))
    archive.put_segment(TOPIC, 20, batches((20, 30)))
    archive.commit(TOPIC, 30, highest_base=20)
    config = {**place(archive), "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY}
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        assert tables_until(consumer, 10)["offset"].to_pylist() == list(range(10))
        with pytest.raises(KafkaException, match="offsets 10 to 19 are lost"):
            consumer.consume_arrow(10, 10)
        assert consumer.consume_arrow(10, 0.2).num_rows == 0
        assert consumer.position([TopicPartition(TOPIC, 0)])[0].offset == 10


def test_b5_times_beyond_the_column_have_one_warning(tmp_path: Path) -> None:
    """The column has its greatest time, `timestampMs` the stored one; later calls do not warn again."""
    archive, stored = in_directory(tmp_path), 1_700_000_000_000_000_000
    archive.put_segment(TOPIC, 0, batches((0, 10)) + batches((10, 20), time=stored))
    archive.commit(TOPIC, 20)
    config = {**place(archive), "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY}
    with TieredConsumer(config) as consumer, capture_logs() as events:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = tables_until(consumer, 20, 6)
    assert found["timestampMs"].to_pylist()[10:] == list(range(stored + 10, stored + 20))
    assert found["timestamp"].cast(pa.int64()).to_pylist()[10:] == [((1 << 63) - 1) // 1000 * 1000] * 10
    (warning,) = [event["message"] for event in events if event["event"] == "query_warning"]
    assert "a timestamp at or beyond a limit of its column" in warning
    assert "timestampMs" in warning


def test_the_plain_mode_has_no_arrow() -> None:
    """It is the plain client."""
    with (
        TieredConsumer({"tiered.storage.mode": "KAFKA_ONLY", "group.id": "g"}) as consumer,
        pytest.raises(NotImplementedError, match="KAFKA_ONLY"),
    ):
        consumer.consume_arrow()
