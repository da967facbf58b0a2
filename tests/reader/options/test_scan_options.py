"""The options of a scan, once for all sides: as Python values, and as texts with other names."""

import json
import re
from typing import Any, Final

import pytest

from ts_common.errors import ConfigurationError
from ts_reader.options.given import Given
from ts_reader.options.scan_options import (
    CLUSTER_ID,
    CONFIG,
    ENTROPY_BITS,
    INCLUDE_HEADERS,
    LOCATION_URL,
    WORKERS,
    bound_of,
    scan_query,
    stream_problems,
    subscription_of,
)
from ts_reader.query.query import (
    PYTHON,
    CorruptionMode,
    Edge,
    Offset,
    Offsets,
    Query,
    Subscription,
    Timestamp,
    Timestamps,
    View,
    Wording,
)

TEXTS: Final = Wording(
    names={"starting_offsets": "startingOffsets", "view": "aView", "mode": "aMode", "partitions": "assign"},
    has_texts=True,
    by_partition="JSON {0} {1}",
    as_pattern="subscribePattern",
    stream="a stream",
    instead_of_stream="use a batch",
)
PLACE: Final = Query("file:///x", "prod", 0, Subscription(("t",)))
EVERY: Final = (CLUSTER_ID, CONFIG, ENTROPY_BITS, INCLUDE_HEADERS, LOCATION_URL, WORKERS)
OFFSETS: Final = {
    PYTHON: '{{0: 4711, 1: "{edge}"}}, with several topics {{"orders": {{0: 4711}}}}',
    TEXTS: 'JSON 4711 "{edge}"',
}
TIME: Final = "expected a time such as 2026-11-22T06:00:00Z (UTC unless it has an offset), or @milliseconds"
COLUMN: Final = "a name is expected that no other column has"
NUMBERS: Final = "a whole number from 0 to 128 is expected"
CLUSTER: Final = (
    "the cluster's part of the keys is expected: letters, digits, '.', '_' and '-', and no dot at the beginning"
)
INCARNATION: Final = "newest, oldest, a number (1 is the oldest) or a topic id of 22 characters is expected"
SIDES: Final = pytest.mark.parametrize("wording", [PYTHON, TEXTS], ids=["python", "texts"])


def written(wording: Wording, value: Any) -> Any:
    """Return a value as a user of a side writes it."""
    if wording is PYTHON or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict) else str(value)


def read(wording: Wording, **values: Any) -> tuple[Query, list[str]]:
    """Return the query of some options, and their problems."""
    given = Given({name: written(wording, value) for name, value in values.items()}, "options", wording)
    start = bound_of(given, "starting", ["t"], [Edge.EARLIEST]) or Edge.EARLIEST
    end = bound_of(given, "ending", ["t"], [Edge.LATEST]) or Edge.LATEST
    query = scan_query(given, PLACE, PLACE.subscription, start, end, ["key", "Offset"])
    for option in EVERY:
        given.read(option)
    return query, given.problems


@SIDES
@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("starting_without_match", "skip", "accepted are error, latest"),
        ("isolation_level", "dirty", "accepted are read_uncommitted, read_committed"),
        ("view", "newest", "accepted are log, latest"),
        ("mode", "LENIENT", "accepted are FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ("corrupt_column", "offset", COLUMN),
        ("corrupt_column", "", COLUMN),
        ("max_batch_bytes", 1000, "a whole number, at least 1048576, is expected"),
        ("prefix_entropy_bits", -1, NUMBERS),
        ("prefix_entropy_bits", True, NUMBERS),
        ("prefix_entropy_bits", 4.0, NUMBERS),
        ("prefix_entropy_bits", "9" * 5000, NUMBERS),
        ("workers", 0, "a whole number, at least 1, is expected"),
        ("incarnation", "last", INCARNATION),
        ("location", "s3a://bucket", "'s3a://bucket' is the Hadoop form: write s3://bucket"),
        ("cluster", "a/b", CLUSTER),
        ("config", "a b.properties", "a file named <clusterId>.properties is expected"),
        ("starting_timestamp", "tomorrow", TIME),
        ("starting_timestamp", 1.5, TIME),
        ("starting_timestamp", True, TIME),
        ("ending_timestamp", -1, "milliseconds since 1970 are not negative"),
        ("ending_timestamp", 1 << 63, "milliseconds since 1970 are expected, of 64 bits"),
    ],
)
def test_a_wrong_value_is_one_problem(wording: Wording, option: str, value: object, expected: str) -> None:
    """It has the option as the user of a side writes it, the value, and what is accepted."""
    given = written(wording, value)
    shown = given if wording.has_texts else repr(given)
    assert read(wording, **{option: value})[1] == [f"{wording.name(option)}={shown}: {expected}"]


@pytest.mark.parametrize(("wording", "accepted"), [(PYTHON, "True and False"), (TEXTS, "true, false")])
def test_a_truth_value_is_named_as_the_side_writes_it(wording: Wording, accepted: str) -> None:
    """A text has no capital."""
    (problem,) = read(wording, include_headers="yes")[1]
    assert problem.endswith(f": accepted are {accepted}")
    assert not read(wording, include_headers=True if wording is PYTHON else "True")[1]
    (problem,) = read(PYTHON, fail_on_data_loss=1)[1]
    assert problem == "fail_on_data_loss=1: accepted are True and False"


@SIDES
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("begin", "=<VALUE>: <OFFSETS>"),
        (-3, "=<VALUE>: <OFFSETS>"),
        (True, "=<VALUE>: <OFFSETS>"),
        (1.0, "=<VALUE>: <OFFSETS>"),
        (None, "=<VALUE>: <OFFSETS>"),
        ({"t": {0: "begin"}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {0: -3}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {0: True}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {0: 1.5}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {0: None}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {0: 1 << 63}}, "['t'][0]=<ONE>: <OFFSETS>"),
        ({"t": {"x": 5}}, "['t']: 'x' is not the number of a partition"),
        ({"t": {"00": 5}}, "['t']: '00' is not the number of a partition"),
        ({"t": {1 << 31: 5}}, "['t']: 2147483648 is not the number of a partition"),
        ({"t": 5}, "['t']=5: partitions and their values are expected"),
        ({"a b": {0: 5}}, "['a b']: not a legal name of a topic"),
    ],
)
@pytest.mark.parametrize("name", ["starting_offsets", "ending_offsets"])
def test_wrong_offsets_are_a_problem(wording: Wording, name: str, value: Any, problem: str) -> None:
    """It has the topic and the partition, and how offsets are written."""
    edge = "earliest" if name == "starting_offsets" else "latest"
    shown = written(wording, value) if wording.has_texts else repr(value)
    inner = next(iter(value["t"].values())) if "ONE" in problem else ""
    one = inner if wording.has_texts and isinstance(inner, str) else repr(inner)
    expected = f"expected {edge}, an offset, or one of each partition: {OFFSETS[wording].format(edge=edge)}"
    problem = problem.replace("<VALUE>", shown).replace("<ONE>", one).replace("<OFFSETS>", expected)
    (found,) = read(wording, **{name: value})[1]
    assert found == wording.name(name) + problem


@SIDES
@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("earliest", Edge.EARLIEST, None),
        ("Earliest", Edge.EARLIEST, None),
        (-2, Edge.EARLIEST, None),
        ("LATEST", None, Edge.LATEST),
        (-1, None, Edge.LATEST),
        (5, Offset(5), Offset(5)),
        ({"t": {0: 5, 1: 0}}, Offsets({"t": {0: 5, 1: 0}}), Offsets({"t": {0: 5, 1: 0}})),
        ({"t": {0: "earliest", 1: -2}}, Offsets({"t": {0: Edge.EARLIEST, 1: Edge.EARLIEST}}), None),
        ({"t": {0: "latest", 1: -1}}, None, Offsets({"t": {0: Edge.LATEST, 1: Edge.LATEST}})),
    ],
)
def test_offsets_have_several_forms(wording: Wording, value: Any, start: object, end: object) -> None:
    """A word, Kafka's numbers for it, or an offset by partition; a scan does not start at the end."""
    for name, expected in (("starting_offsets", start), ("ending_offsets", end)):
        query, problems = read(wording, **{name: value})
        if expected is not None:
            assert (query.start if name == "starting_offsets" else query.end, problems) == (expected, [])
        elif name == "starting_offsets":
            assert all("it means latest, where no scan can start; use earliest" in each for each in problems)
        else:
            assert all("it means earliest, where no scan can end; use latest" in each for each in problems)
        assert bool(problems) == (expected is None)


@SIDES
def test_timestamps_differ_by_partition(wording: Wording) -> None:
    """As times in words too."""
    query, problems = read(wording, starting_timestamp={"t": {0: 7, 1: "@9"}}, ending_timestamp="1970-01-01T00:00:01Z")
    assert (query.start, query.end, problems) == (Timestamps({"t": {0: 7, 1: 9}}), Timestamp(1000), [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t":', "Expecting value"),
        ("[1]", "a JSON object is expected"),
        ('{"t":{"0":1},"t":{"0":2}}', "a name occurs twice in one object"),
        ('{"t":' * 100_000, "nested more than 32 levels deep"),
    ],
)
def test_a_text_that_is_no_json_object_is_a_problem(text: str, reason: str) -> None:
    """With what is expected."""
    (problem,) = read(TEXTS, starting_offsets=text)[1]
    assert problem.startswith(f"startingOffsets={text}: expected earliest, an offset, or one of each partition: JSON ")
    assert reason in problem


@SIDES
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"starting_offsets": 5}, "it starts at earliest, because a newest record may be anywhere; drop the start"),
        ({"starting_offsets": {"t": {0: 5, 1: -2}}}, "it starts at earliest"),
        ({"starting_timestamp": 5}, "it starts at earliest"),
        ({"mode": "PERMISSIVE"}, "a corrupt batch has no newest record; use <MODE> FAILFAST or DROPMALFORMED"),
    ],
)
def test_the_newest_records_start_at_earliest_and_are_whole(
    wording: Wording, values: dict[str, Any], problem: str
) -> None:
    """The rule is one for all sides, and names what each side writes."""
    (found,) = read(wording, view="latest", **values)[1]
    view, mode = ("aView=latest", "aMode") if wording.has_texts else ("view='latest'", "mode")
    assert found.startswith(f"{view}: {problem.replace('<MODE>', mode)}")
    for start in ("earliest", {"t": {0: -2}}):
        assert not read(wording, view="latest", starting_offsets=start)[1]


def test_a_stream_has_no_newest_records_no_former_incarnation_and_one_location() -> None:
    """Each problem has the way out of its side."""
    assert stream_problems(Given({}, "options", TEXTS), View.LATEST, "1", ()) == [
        "aView=latest: it needs an end, and a stream has none; use a batch",
        "incarnation: a stream reads the newest one; drop it, or use a batch",
    ]
    assert stream_problems(Given({}, "options"), View.LOG, "newest", ()) == []


@SIDES
def test_words_are_accepted_in_any_case(wording: Wording) -> None:
    """Absent options have defaults."""
    values = {"view": "Latest", "mode": "dropMalformed", "isolation_level": "READ_COMMITTED"}
    query, problems = read(wording, **values, starting_without_match="LATEST", incarnation="Oldest")
    assert (query.view, query.tolerance.mode, query.read_committed) == (View.LATEST, CorruptionMode.DROPMALFORMED, True)
    assert (query.start_without_match, query.incarnation, problems) == (Edge.LATEST, "1", [])
    query, _ = read(wording, mode="PERMISSIVE", corrupt_column="raw", max_batch_bytes=1 << 20)
    assert (query.tolerance.column, query.limit.most) == ("raw", 1 << 20)
    query, _ = read(wording)
    assert (query.start, query.end, query.fail_on_data_loss) == (Edge.EARLIEST, Edge.LATEST, True)


def test_partitions_and_topics_have_the_names_of_a_side() -> None:
    """Also the way to write a pattern."""
    given = Given({}, "options", TEXTS)
    subscription_of(given, ["a b"], {"a b": [-1]}, "partitions")
    subscription_of(given, re.compile("t"), [1])
    assert given.problems == [
        "assign='a b': not a legal name of a topic; for a pattern use subscribePattern",
        "assign['a b']=[-1]: numbers of partitions are expected, as in [0, 3]",
        "assign: a pattern reads all partitions; name the topics, or drop it",
    ]
    with pytest.raises(ConfigurationError, match="options: 3 problems"):
        given.check()
