"""The options of a stream: what is rejected, and what has no effect."""

import pytest
from structlog.testing import capture_logs

from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, Query
from ts_common.errors import ConfigurationError
from ts_reader.query.query import Edge, Offsets
from ts_spark.options.parse import QueryKind, parse_options
from ts_spark.options.schema import full_schema
from ts_spark.source import KafkaSegmentsSource


def stream_problems(**options: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"path": "s3://bucket/base", "cluster": "prod", "subscribe": "t", **options}, QueryKind.STREAM)
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
    assert parse_options(given, QueryKind.STREAM).query.start is Edge.LATEST
    query = parse_options({**given, "startingOffsets": '{"t":{"0":-1,"1":-2,"2":5}}'}, QueryKind.STREAM).query
    assert query.start == Offsets({"t": {0: Edge.LATEST, 1: Edge.EARLIEST, 2: 5}})
    assert stream_problems(view="latest") == ("view=latest: it needs an end, and a stream has none; use spark.read",)
    (told,) = stream_problems(startingOffsets="first")
    assert told.startswith("startingOffsets=first: expected earliest or latest, an offset, or one of each partition")


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


def test_a_stream_warns_once_of_options_for_brokers(two: Archive) -> None:
    """One set of options serves a stream from a broker too."""
    with capture_logs() as logs:
        query = Query(two, **EARLIEST, **{"kafka.group.id": "g", "groupIdPrefix": "g"})
        query.trigger()
        query.trigger()
    told = [line["message"] for line in logs if line["log_level"] == "warning"]
    assert told == ["options have no effect without a broker: kafka.group.id, groupIdPrefix"]
