"""Options as a job gives them to Spark's Kafka source, and where `kafka_segments` answers otherwise.

Every case gives the same dict of options to both sources. A case without a difference has equal rows, or an error in
both. docs/spark.md has the reason of each difference.
"""

import json
from dataclasses import dataclass, field
from typing import Final

CLICKS: Final = {"subscribe": "clicks"}


@dataclass(frozen=True)
class Case:
    """One set of options.

    Attributes:
        name: of the case.
        options: in addition to those that every case has.
        differs: the row of the table of differences; None where both answer the same.
        rows: whether rows are expected of this source; False for an error.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    differs: str | None = None
    rows: bool = True


def offsets(*of_clicks: int) -> str:
    """JSON for the partitions of `clicks`."""
    return json.dumps({"clicks": dict(enumerate(of_clicks))})


def times(*of_clicks: int) -> str:
    """The same with timestamps."""
    return offsets(*of_clicks)


def error(name: str, options: dict[str, str], differs: str | None = None) -> Case:
    return Case(name, options, differs, rows=False)


def cases(early: int, middle: int, late: int) -> list[Case]:
    """All of them.

    Args:
        early: a timestamp in ms, of a record near the start of every partition of `clicks`.
        middle: of one in the middle.
        late: later than every record.
    """
    strategy, of_each = "startingOffsetsByTimestampStrategy", "startingOffsetsByTimestamp"
    from_late = {**CLICKS, "startingTimestamp": str(late)}
    nine = offsets(9, 9, 9)
    return [
        Case("one topic", CLICKS),
        Case("several topics, with spaces", {"subscribe": "clicks , page_views"}),
        Case("a topic twice", {"subscribe": "clicks,clicks"}),
        Case("a pattern of whole names", {"subscribePattern": "click.*"}),
        Case("a pattern with alternatives", {"subscribePattern": "page|clicks"}),
        Case("a pattern inside a name", {"subscribePattern": "lick"}),
        Case("a pattern with an anchor", {"subscribePattern": "^page_v"}),
        Case("a pattern without a match", {"subscribePattern": "nothing.*"}),
        error("a pattern in Java's syntax", {"subscribePattern": r"\p{Lower}+icks"}, "pattern syntax"),
        Case("one partition", {"assign": '{"clicks":[1]}'}),
        Case("two partitions of two topics", {"assign": '{"clicks":[0,2],"page_views":[0]}'}),
        error("a partition that is not there", {"assign": '{"clicks":[0,9]}'}, "absent partition"),
        error("a topic that is not there", {"subscribe": "clickz"}),
        error("two subscriptions", {**CLICKS, "subscribePattern": "c.*"}),
        error("no subscription", {}),
        error("an empty subscription", {"subscribe": " "}),
        Case("from earliest to latest", {**CLICKS, "startingOffsets": "earliest", "endingOffsets": "latest"}),
        Case("words in capitals", {**CLICKS, "startingOffsets": "EARLIEST", "endingOffsets": "LATEST"}),
        Case("offsets", {**CLICKS, "startingOffsets": offsets(10, 20, 30), "endingOffsets": offsets(40, 50, 60)}),
        Case("-2 and -1", {**CLICKS, "startingOffsets": offsets(-2, 5, -2), "endingOffsets": offsets(-1, 50, -1)}),
        error("a batch from latest", {**CLICKS, "startingOffsets": "latest"}),
        error("a batch from -1", {**CLICKS, "startingOffsets": offsets(-1, 0, 0)}),
        error("a batch to earliest", {**CLICKS, "endingOffsets": "earliest"}),
        error("a batch to -2", {**CLICKS, "endingOffsets": offsets(-2, 9, 9)}),
        error("a partition that JSON leaves out", {**CLICKS, "startingOffsets": offsets(0, 0)}),
        error("a partition too many in JSON", {**CLICKS, "startingOffsets": offsets(0, 0, 0, 0)}),
        error("offset -3", {**CLICKS, "startingOffsets": offsets(0, 0, -3)}),
        error("no JSON", {**CLICKS, "startingOffsets": '{"clicks":{"0":1}'}),
        error(
            "a start beyond the end",
            {**CLICKS, "startingOffsets": offsets(0, 90, 0), "endingOffsets": offsets(9, 80, 9)},
        ),
        Case("a start at the end", {**CLICKS, "startingOffsets": nine, "endingOffsets": nine}),
        error("a start beyond latest", {**CLICKS, "startingOffsets": offsets(0, 99_999, 0)}),
        Case(
            "a start beyond latest, losses allowed",
            {**CLICKS, "startingOffsets": offsets(0, 99_999, 0), "failOnDataLoss": "false"},
            "start beyond latest",
        ),
        error("an end beyond latest", {**CLICKS, "endingOffsets": offsets(9, 99_999, 9)}, "end beyond latest"),
        Case(
            "an end beyond latest, losses allowed",
            {**CLICKS, "endingOffsets": offsets(9, 99_999, 9), "failOnDataLoss": "false"},
        ),
        Case("from a time", {**CLICKS, "startingTimestamp": str(middle)}),
        Case("from a time of each", {**CLICKS, of_each: times(early, middle, early)}),
        Case("to a time", {**CLICKS, "endingTimestamp": str(middle)}),
        Case("to a time of each", {**CLICKS, "endingOffsetsByTimestamp": times(early, middle, late)}),
        Case("to a time without a record so late", {**CLICKS, "endingTimestamp": str(late)}),
        error("from a time without a record so late", from_late),
        Case(
            "the same, with the strategy",
            {**from_late, strategy: "LATEST"},
        ),
        error(
            "the strategy and an end before it",
            {
                **CLICKS,
                "startingTimestamp": str(late),
                "startingOffsetsByTimestampStrategy": "latest",
                "endingOffsets": offsets(9, 9, 9),
            },
        ),
        error("a strategy that is none", {**CLICKS, strategy: "first"}),
        Case(
            "a time wins over times of each and offsets",
            {
                **CLICKS,
                "startingTimestamp": str(middle),
                of_each: times(early, early, early),
                "startingOffsets": nine,
            },
        ),
        Case(
            "times of each win over offsets",
            {
                **CLICKS,
                of_each: times(middle, middle, middle),
                "startingOffsets": nine,
            },
        ),
        error(
            "a time beyond the ending one", {**CLICKS, "startingTimestamp": str(middle), "endingTimestamp": str(early)}
        ),
        error("a negative time", {**CLICKS, "startingTimestamp": "-5"}),
        Case("headers", {**CLICKS, "includeHeaders": "true"}),
        Case("tombstones", {"subscribe": "accounts"}),
        Case("the broker's time", {"subscribe": "appended", "includeHeaders": "true"}),
        Case("a topic without records", {"subscribe": "page_empty"}),
        Case("committed", {"subscribe": "tx", "kafka.isolation.level": "read_committed"}),
        Case("uncommitted", {"subscribe": "tx", "kafka.isolation.level": "read_uncommitted"}),
        Case("more tasks", {**CLICKS, "minPartitions": "5"}),
        error("no task", {**CLICKS, "minPartitions": "0"}),
        Case("smaller tasks", {**CLICKS, "maxRecordsPerPartition": "50"}),
        error("tasks of no size", {**CLICKS, "maxRecordsPerPartition": "0"}),
        Case("losses told by a word in capitals", {**CLICKS, "failOnDataLoss": "TRUE"}),
        error("losses told by no word", {**CLICKS, "failOnDataLoss": "maybe"}),
        Case("a group", {**CLICKS, "kafka.group.id": "g"}),
        Case("a prefix of groups", {**CLICKS, "groupIdPrefix": "g"}),
        Case("retries", {**CLICKS, "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "5"}),
        Case("settings of the consumer", {**CLICKS, "kafka.max.poll.records": "10", "kafka.fetch.max.bytes": "100000"}),
        Case(
            "a stream's limits",
            {**CLICKS, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "1m"},
        ),
        error("a typing mistake", {**CLICKS, "startingOffset": "earliest"}, "unknown option"),
        Case("records that DeleteRecords took", {"subscribe": "purged"}, "deleted records"),
    ]
