"""Arguments of a scan: one error lists all problems, each with name, value and what is accepted."""

import re
from datetime import datetime
from typing import Any

import pytest

from tests.made_archive import CLUSTER
from ts_common.errors import ConfigurationError
from ts_reader import Archive, Scan
from ts_reader.query.query import CorruptionMode, Edge, Offsets, Subscription, Timestamp, Timestamps, View

S3 = "s3://bucket/base"
PARTITIONS = "numbers of partitions are expected, as in [0, 3]"
COLUMNS = "key, value, topic, partition, offset, timestamp, timestampType"
WHOLE_OFFSETS = "'orders': {0: 1}"


def scan(topic: Any = "t", **arguments: Any) -> Scan:
    return Archive(S3, CLUSTER).scan(topic, **arguments)


def scan_problems(topic: Any = "t", **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        scan(topic, **arguments)
    assert caught.value.source == "arguments of scan"
    return caught.value.problems


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": 5}, "topic=5: a name, several names or a compiled pattern is expected"),
        ({"topic": None}, "topic=None: a name, several names or a compiled pattern is expected"),
        ({"topic": []}, "topic=[]: a name, several names or a compiled pattern is expected"),
        ({"topic": ["t", ["u"]]}, "topic=['u']: a name, several names or a compiled pattern is expected"),
        ({"topic": b"t"}, "topic=b't': a name, several names or a compiled pattern is expected"),
        ({"topic": "a b"}, "topic='a b': not a legal name of a topic; for a pattern use re.compile(...)"),
        ({"topic": ["t", "x*"]}, "topic='x*': not a legal name of a topic; for a pattern use re.compile(...)"),
        (
            {"topic": re.compile(b"t")},
            "topic=re.compile(b't'): a pattern of text is expected, and this one is of bytes",
        ),
        (
            {"topic": re.compile("t"), "partitions": [0]},
            "partitions: a pattern reads all partitions; name the topics, or drop it",
        ),
        ({"partitions": 0}, f"partitions=0: {PARTITIONS}"),
        ({"partitions": "0"}, f"partitions='0': {PARTITIONS}"),
        ({"partitions": []}, f"partitions=[]: {PARTITIONS}"),
        ({"partitions": [0, -1]}, f"partitions=[0, -1]: {PARTITIONS}"),
        ({"partitions": [True]}, f"partitions=[True]: {PARTITIONS}"),
        ({"partitions": {"t": 3}}, f"partitions['t']=3: {PARTITIONS}"),
        ({"partitions": {"t": [0], "u": [0]}}, "partitions: ['u'] are not topics of this scan"),
        ({"topic": ["t", "u"], "partitions": {"t": [0]}}, "partitions: nothing for u"),
        ({"columns": "key"}, f"columns='key': a list of names is expected; there are {COLUMNS}"),
        ({"columns": 5}, f"columns=5: a list of names is expected; there are {COLUMNS}"),
        ({"columns": ["keys"]}, "columns: 'keys' is no column; did you mean key?"),
        ({"columns": ["zz"]}, f"columns: 'zz' is no column; there are {COLUMNS}"),
        ({"columns": [["zz"]]}, f"columns: ['zz'] is no column; there are {COLUMNS}"),
        ({"columns": ["headers"]}, "columns: pass include_headers=True to have headers"),
        ({"columns": ["key", "key"]}, "columns=['key', 'key']: each name once"),
        ({"columns": ["_corrupt_record"]}, f"columns: '_corrupt_record' is no column; there are {COLUMNS}"),
        ({"include_headers": "yes"}, "include_headers='yes': accepted are True and False"),
        (
            {"corrupt_column": "value_error"},
            "corrupt_column='value_error': a name is expected that no other column has",
        ),
        ({"memory_limit": 1 << 20}, "memory_limit=1048576: a whole number, at least 134217728, is expected"),
        ({"memory_limit": "1 GB"}, "memory_limit='1 GB': a whole number, at least 134217728, is expected"),
    ],
)
def test_a_wrong_argument_of_a_scan_is_one_problem(arguments: dict[str, Any], problem: str) -> None:
    """It names the argument, its value and what is accepted, and no other problem follows from it."""
    assert scan_problems(**arguments) == (problem,)


def test_all_wrong_arguments_of_a_scan_are_one_error() -> None:
    """Each has its own line, also where a value has control characters."""
    problems = scan_problems(
        ["a b", "c\nd"],
        partitions=[-1],
        columns=["keys"],
        starting_offsets="begin",
        ending_timestamp="tomorrow",
        starting_without_match="x",
        isolation_level="x",
        include_headers=None,
        incarnation="x",
        view="x",
        mode="x",
        corrupt_column="topic",
        fail_on_data_loss="x",
        max_batch_bytes=1.5,
        memory_limit=0,
    )
    names = ["topic", "topic", "partitions", "starting_offsets", "ending_timestamp", "view", "mode", "corrupt_column"]
    names += ["starting_without_match", "fail_on_data_loss", "isolation_level", "incarnation", "max_batch_bytes"]
    names += ["include_headers", "columns", "memory_limit"]
    assert [re.split("[=:]", problem)[0] for problem in problems] == names
    with pytest.raises(ConfigurationError) as caught:
        scan(["a b", "c\nd"], view="x")
    assert str(caught.value).splitlines() == [
        "arguments of scan: 3 problems",
        "  - topic='a b': not a legal name of a topic; for a pattern use re.compile(...)",
        r"  - topic='c\nd': not a legal name of a topic; for a pattern use re.compile(...)",
        "  - view='x': accepted are log, latest",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"starting_offsets": {0: 5}, "starting_timestamp": 5},
            "starting_offsets and starting_timestamp: give one of the two",
        ),
        (
            {"ending_offsets": {0: 5}, "ending_timestamp": 5},
            "ending_offsets and ending_timestamp: give one of the two",
        ),
    ],
)
def test_arguments_that_contradict_are_a_problem(arguments: dict[str, Any], problem: str) -> None:
    """It names both."""
    assert scan_problems(**arguments) == (problem,)


def test_words_are_accepted_in_any_case_and_columns_in_any_order() -> None:
    """A scan has its columns in the order of the argument, without it in the order of Spark's source."""
    found = scan(
        view="Latest", mode="dropMalformed", isolation_level="READ_COMMITTED", starting_without_match="LATEST"
    ).query
    assert (found.view, found.tolerance.mode, found.read_committed) == (View.LATEST, CorruptionMode.DROPMALFORMED, True)
    assert found.start_without_match is Edge.LATEST
    assert scan(columns=("offset", "key")).schema.names == ["offset", "key"]
    assert ", ".join(scan().schema.names) == COLUMNS
    assert scan(include_headers=True).schema.names[-1] == "headers"
    permissive = scan(include_headers=True, mode="PERMISSIVE", corrupt_column="raw")
    assert permissive.schema.names[-2:] == ["headers", "raw"]
    assert permissive.query.tolerance.column == "raw"
    assert scan(columns=[]).schema.names == []


@pytest.mark.parametrize(
    ("topic", "partitions", "expected"),
    [
        ("t", None, Subscription(("t",))),
        (["u", "t", "u"], None, Subscription(("u", "t"))),
        (("t",), [3, 0, 3], Subscription(assigned={"t": (0, 3)})),
        (["t", "u"], range(2), Subscription(assigned={"t": (0, 1), "u": (0, 1)})),
        (["t", "u"], {"u": {1}, "t": iter([0])}, Subscription(assigned={"t": (0,), "u": (1,)})),
        (re.compile("^t"), None, Subscription(pattern=re.compile("^t"))),
    ],
)
def test_topics_and_partitions_have_several_forms(topic: Any, partitions: Any, expected: Subscription) -> None:
    """Partitions are given for each topic, or once for all."""
    assert scan(topic, partitions=partitions).query.subscription == expected


def test_offsets_of_one_topic_need_no_topic() -> None:
    """For one topic, the partitions are enough."""
    assert scan(starting_offsets={0: 5, 1: "earliest"}).query.start == Offsets({"t": {0: 5, 1: Edge.EARLIEST}})
    assert scan_problems(ending_offsets={-1: 5}) == ("ending_offsets['t']: -1 is not the number of a partition",)
    assert scan_problems(ending_offsets={True: 5}) == (
        "ending_offsets[True]=5: partitions and their values are expected",
    )


def test_offsets_of_several_topics_are_given_by_topic() -> None:
    """Partitions alone do not name a topic."""
    offsets = {"t": {0: 5}, "u": {0: "earliest", 1: 7}}
    found = scan(["t", "u"], starting_offsets=offsets).query.start
    assert found == Offsets({"t": {0: 5}, "u": {0: Edge.EARLIEST, 1: 7}})
    for topic in (["t", "u"], re.compile("t")):
        assert scan_problems(topic, starting_offsets={0: 5}) == (
            f"starting_offsets: partitions of several topics need their topics: {{{WHOLE_OFFSETS}}}",
        )


MOMENT = datetime(2026, 11, 1, 12, 30, 0, 500_000)
MILLISECONDS = 1_793_536_200_500


@pytest.mark.parametrize("value", [MOMENT, "2026-11-01T12:30:00.5", MILLISECONDS])
def test_timestamps_have_several_forms(value: Any) -> None:
    """As of `milliseconds_of`; they can differ by partition and topic."""
    whole = scan(starting_timestamp=value, ending_timestamp=value).query
    assert (whole.start, whole.end) == (Timestamp(MILLISECONDS), Timestamp(MILLISECONDS))
    by_partition = scan(starting_timestamp={0: value, 3: 0}).query.start
    assert by_partition == Timestamps({"t": {0: MILLISECONDS, 3: 0}})
    by_topic = scan(["t", "u"], ending_timestamp={"t": {0: value}, "u": {1: value}}).query.end
    assert by_topic == Timestamps({"t": {0: MILLISECONDS}, "u": {1: MILLISECONDS}})
