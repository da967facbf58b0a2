"""Arguments of a scan: one error lists all problems, each with name, value and what is accepted."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.made_archive import CLUSTER
from ts_common.errors import ConfigurationError
from ts_reader import Archive, Scan
from ts_reader.query.policies import Mode, View
from ts_reader.query.query import Edge, Offset, Offsets, Subscription, Timestamp, Timestamps

S3 = "s3://bucket/base"
PARTITIONS = "numbers of partitions are expected, as in [0, 3]"
OFFSETS = (
    'expected "{edge}", an offset, or one of each partition: {{0: 4711, 1: "{edge}"}}, with several topics '
    '{{"orders": {{0: 4711}}}}'
)
TIME = "expected a time such as 2026-11-22T06:00:00Z (UTC unless it has an offset), or @milliseconds"
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
        ({"topic": "a b"}, "topic='a b': not a legal name of a topic; for a pattern pass re.compile('a b')"),
        ({"topic": ["t", "x*"]}, "topic='x*': not a legal name of a topic; for a pattern pass re.compile('x*')"),
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
        ({"starting_without_match": "skip"}, "starting_without_match='skip': accepted are error, latest"),
        ({"starting_without_match": None}, "starting_without_match=None: accepted are error, latest"),
        ({"isolation_level": "dirty"}, "isolation_level='dirty': accepted are read_uncommitted, read_committed"),
        ({"include_headers": "yes"}, "include_headers='yes': accepted are True and False"),
        ({"fail_on_data_loss": 1}, "fail_on_data_loss=1: accepted are True and False"),
        ({"view": "newest"}, "view='newest': accepted are log, latest"),
        ({"mode": "LENIENT"}, "mode='LENIENT': accepted are failfast, dropmalformed, permissive"),
        ({"corrupt_column": "key"}, "corrupt_column='key': a name is expected that no other column has"),
        ({"corrupt_column": ""}, "corrupt_column='': a name is expected that no other column has"),
        ({"corrupt_column": None}, "corrupt_column=None: a name is expected that no other column has"),
        ({"corrupt_column": 5}, "corrupt_column=5: a name is expected that no other column has"),
        ({"max_batch_bytes": 1000}, "max_batch_bytes=1000: a whole number, at least 1048576, is expected"),
        ({"max_batch_bytes": True}, "max_batch_bytes=True: a whole number, at least 1048576, is expected"),
        ({"memory_limit": 1 << 20}, "memory_limit=1048576: a whole number, at least 134217728, is expected"),
        ({"memory_limit": "1 GB"}, "memory_limit='1 GB': a whole number, at least 134217728, is expected"),
        (
            {"incarnation": "last"},
            "incarnation='last': newest, oldest, a number (1 is the oldest) or a topic id of 22 characters is expected",
        ),
        (
            {"incarnation": 0},
            "incarnation=0: newest, oldest, a number (1 is the oldest) or a topic id of 22 characters is expected",
        ),
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
        "  - topic='a b': not a legal name of a topic; for a pattern pass re.compile('a b')",
        r"  - topic='c\nd': not a legal name of a topic; for a pattern pass re.compile('c\nd')",
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
        (
            {"view": "latest", "starting_offsets": {0: 5}},
            'view="latest": it starts at earliest, because a newest record may be anywhere; drop the starting bound',
        ),
        (
            {"view": "latest", "starting_timestamp": 5},
            'view="latest": it starts at earliest, because a newest record may be anywhere; drop the starting bound',
        ),
        (
            {"view": "latest", "mode": "PERMISSIVE"},
            'view="latest": a corrupt batch has no newest record; use mode="FAILFAST" or "DROPMALFORMED"',
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
    assert (found.view, found.tolerance.mode, found.read_committed) == (View.LATEST, Mode.DROPMALFORMED, True)
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


@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("earliest", Edge.EARLIEST, None),
        ("Earliest", Edge.EARLIEST, None),
        (-2, Edge.EARLIEST, None),
        ("latest", None, Edge.LATEST),
        ("LATEST", None, Edge.LATEST),
        (-1, None, Edge.LATEST),
        (5, Offset(5), Offset(5)),
        ({0: 5, 1: 0}, Offsets({"t": {0: 5, 1: 0}}), Offsets({"t": {0: 5, 1: 0}})),
        ({0: "earliest", 1: -2}, Offsets({"t": {0: Edge.EARLIEST, 1: Edge.EARLIEST}}), None),
        ({0: "latest", 1: -1}, None, Offsets({"t": {0: Edge.LATEST, 1: Edge.LATEST}})),
        ({"t": {0: 5}}, Offsets({"t": {0: 5}}), Offsets({"t": {0: 5}})),
    ],
)
def test_offsets_have_several_forms(value: Any, start: object, end: object) -> None:
    """A word, Kafka's numbers for it, or an offset by partition; a scan does not start at the end."""
    problems: list[str] = []
    for name, expected in (("starting_offsets", start), ("ending_offsets", end)):
        if expected is None:
            problems += scan_problems(**{name: value})
        else:
            query = scan(**{name: value}).query
            assert (query.start if name == "starting_offsets" else query.end) == expected
    way = "start" if start is None else "end"
    assert all(problem.endswith(f": a scan cannot {way} there") for problem in problems)
    assert bool(problems) == (None in (start, end))


def test_offsets_of_several_topics_are_given_by_topic() -> None:
    """Partitions alone do not name a topic."""
    offsets = {"t": {0: 5}, "u": {0: "earliest", 1: 7}}
    found = scan(["t", "u"], starting_offsets=offsets).query.start
    assert found == Offsets({"t": {0: 5}, "u": {0: Edge.EARLIEST, 1: 7}})
    for topic in (["t", "u"], re.compile("t")):
        assert scan_problems(topic, starting_offsets={0: 5}) == (
            f"starting_offsets: partitions of several topics need their topics: {{{WHOLE_OFFSETS}}}",
        )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("begin", "='begin': <OFFSETS>"),
        (-3, "=-3: <OFFSETS>"),
        (True, "=True: <OFFSETS>"),
        (1.0, "=1.0: <OFFSETS>"),
        (None, "=None: <OFFSETS>"),
        ([5], "=[5]: <OFFSETS>"),
        ({0: "begin"}, "['t'][0]='begin': <OFFSETS>"),
        ({0: -3}, "['t'][0]=-3: <OFFSETS>"),
        ({0: True}, "['t'][0]=True: <OFFSETS>"),
        ({0: 1.5}, "['t'][0]=1.5: <OFFSETS>"),
        ({0: None}, "['t'][0]=None: <OFFSETS>"),
        ({-1: 5}, "['t']: -1 is not the number of a partition"),
        ({"t": {"0": 5}}, "['t']: '0' is not the number of a partition"),
        ({"t": {True: 5}}, "['t']: True is not the number of a partition"),
        ({"t": 5}, "['t']=5: partitions and their values are expected"),
        ({True: 5}, "[True]=5: partitions and their values are expected"),
    ],
)
@pytest.mark.parametrize("name", ["starting_offsets", "ending_offsets"])
def test_wrong_offsets_are_a_problem(name: str, value: Any, problem: str) -> None:
    """The message names topic and partition."""
    edge = "earliest" if name == "starting_offsets" else "latest"
    problem = problem.replace("<OFFSETS>", OFFSETS.format(edge=edge))
    assert scan_problems(**{name: value}) == (name + problem,)


MOMENT = datetime(2026, 11, 1, 12, 30, 0, 500_000)
MILLISECONDS = 1_793_536_200_500


@pytest.mark.parametrize(
    "value",
    [
        MOMENT,
        MOMENT.replace(tzinfo=UTC),
        MOMENT.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-8))),
        "2026-11-01T12:30:00.5",
        "2026-11-01 12:30:00.500Z",
        "2026-11-01T13:30:00.5+01:00",
        MILLISECONDS,
        f"@{MILLISECONDS}",
    ],
)
def test_timestamps_have_several_forms(value: Any) -> None:
    """A naive one is UTC, whatever the zone of the machine; they can differ by partition and topic."""
    whole = scan(starting_timestamp=value, ending_timestamp=value).query
    assert (whole.start, whole.end) == (Timestamp(MILLISECONDS), Timestamp(MILLISECONDS))
    by_partition = scan(starting_timestamp={0: value, 3: 0}).query.start
    assert by_partition == Timestamps({"t": {0: MILLISECONDS, 3: 0}})
    by_topic = scan(["t", "u"], ending_timestamp={"t": {0: value}, "u": {1: value}}).query.end
    assert by_topic == Timestamps({"t": {0: MILLISECONDS}, "u": {1: MILLISECONDS}})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("tomorrow", f"='tomorrow': {TIME}"),
        (1.5, f"=1.5: {TIME}"),
        (True, f"=True: {TIME}"),
        (-1, "=-1: milliseconds since 1970 are not negative"),
        ([5], f"=[5]: {TIME}"),
        ({0: "x"}, f"['t'][0]='x': {TIME}"),
        ({0: None}, f"['t'][0]=None: {TIME}"),
        ({"t": "x"}, "['t']='x': partitions and their values are expected"),
    ],
)
@pytest.mark.parametrize("name", ["starting_timestamp", "ending_timestamp"])
def test_wrong_timestamps_are_a_problem(name: str, value: Any, problem: str) -> None:
    """The message names topic and partition."""
    assert scan_problems(**{name: value}) == (name + problem,)


@pytest.mark.parametrize(("value", "expected"), [("oldest", "1"), ("Newest", "newest"), (2, "2"), ("A" * 22, "A" * 22)])
def test_an_incarnation_is_a_word_a_number_or_a_topic_id(value: Any, expected: str) -> None:
    """As Spark's option."""
    assert scan(incarnation=value).query.incarnation == expected
