"""Options and schemas: all problems at once, each with the way out."""

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ts_common.errors import ConfigurationError, QueryError
from ts_reader.query.query import Edge, Offsets, Timestamp
from ts_spark.options.parse import DOCUMENTED, parse_options
from ts_spark.options.schema import full_schema, wanted_columns

GIVEN = {"path": "s3://bucket/base", "cluster": "prod", "subscribe": "t"}


def problems(**options: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({name: value for name, value in {**GIVEN, **options}.items() if value != "absent"})
    return caught.value.problems


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    """Earliest to latest, no headers, data loss is an error; entropy bits of the archive's layout."""
    query = parse_options(GIVEN).query
    assert (query.start, query.end) == (Edge.EARLIEST, Edge.LATEST)
    assert (query.entropy_bits, query.fail_on_data_loss) == (None, True)
    assert not parse_options(GIVEN).include_headers
    assert query.location == "s3://bucket/base"


def test_names_are_compared_without_case() -> None:
    """Spark hands them over in lower case."""
    options = parse_options({**GIVEN, "PREFIXentropybits": "5", "failondataloss": "False", "includeheaders": "true"})
    query = options.query
    assert (query.entropy_bits, query.fail_on_data_loss, options.include_headers) == (5, False, True)


def test_r02_the_isolation_level_is_named_as_in_kafka() -> None:
    """Other settings of a consumer mean nothing without a broker: one set of options serves both sources."""
    assert not parse_options(GIVEN).query.read_committed
    assert parse_options({**GIVEN, "kafka.isolation.level": "READ_COMMITTED"}).query.read_committed
    assert problems(**{"kafka.isolation.level": "serializable"}) == (
        "kafka.isolation.level=serializable: accepted are read_uncommitted, read_committed",
    )
    for_brokers = {"kafka.bootstrap.servers": "b:9092", "groupidprefix": "g", "fetchoffset.numretries": "3"}
    assert parse_options({**GIVEN, **for_brokers}).ignored == (
        "options have no effect without a broker: kafka.bootstrap.servers, groupIdPrefix, fetchOffset.numRetries"
    )


def test_every_problem_is_reported_at_once_in_documented_spelling() -> None:
    """A user mends a query once, not five times."""
    told = problems(cluster="absent", failondatalos="true", prefixentropybits="five", startingoffsets="latest")
    assert told == (
        "failondatalos: unknown option; did you mean failOnDataLoss?",
        "cluster: missing; it is the cluster's part of the keys in the store",
        "prefixEntropyBits=five: a whole number from 0 to 128 is expected",
        "startingOffsets=latest: it means latest, where no scan can start; use earliest (-2)",
    )


def test_an_option_like_no_other_is_answered_with_all_there_are() -> None:
    """If no name is close, the message lists all."""
    (told,) = problems(q="")
    assert told.startswith("q: unknown option; known: cluster, prefixEntropyBits, subscribe, ")


def test_a_wrong_location_is_one_problem_among_the_others() -> None:
    """It does not hide them."""
    told = problems(path="s3a://x/y", foo="1", subscribe=".")
    assert [problem.partition(":")[0] for problem in told] == ["foo", "subscribe='.'", "path=s3a"]


def test_several_locations_are_one_problem_among_the_others() -> None:
    """They are not called missing, and other problems stay."""
    told = problems(path="absent", paths='["s3://a/b","s3://c/d"]', foo="1")
    assert [problem.partition(";")[0] for problem in told] == [
        "foo: unknown option",
        "path: a query reads one location, and several are given",
    ]


def test_a_table_is_refused_with_one_problem() -> None:
    """Spark hands its options over twice, which would be a page of unknown ones."""
    assert problems(**{"option.cluster": "prod", "foo": "1"}) == (
        "CREATE TABLE is not supported; use CREATE TEMPORARY VIEW ... USING kafka_segments OPTIONS (...)",
    )


def test_every_option_is_named_as_spark_has_it() -> None:
    """The values are those of `ts_reader.options`, which all sides have."""
    wrong = {name for name in DOCUMENTED.values() if not name.startswith(("subscribe", "assign"))}
    told = problems(**dict.fromkeys(wrong - {"columnNameOfCorruptRecord"}, "."), columnnameofcorruptrecord="Offset")
    named = [problem.partition("=")[0] for problem in told]
    assert (len(named), {*named}) == (len(wrong), wrong)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "absent"}, "path: missing; name the location"),
        ({"subscribe": "absent", "assign": '{"..":[0]}'}, "assign='..': not a legal name of a topic"),
        ({"kafkaConsumer.pollTimeout": "5"}, "kafkaconsumer.polltimeout: unknown option; "),
        ({"minPartitions": "0"}, "minPartitions=0: a whole number, at least 1, is expected"),
        ({"paths": '["s3://a/b","s3://c/d"]'}, "a query reads one location"),
        ({"subscribe": "absent"}, "exactly one of subscribe, subscribePattern, assign is needed; nothing is given"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "names of topics are expected"),
        ({"subscribe": "a b"}, "subscribe='a b': not a legal name of a topic; for a pattern use subscribePattern"),
        ({"subscribe": "absent", "subscribepattern": "("}, "subscribePattern=(: no regular expression"),
        ({"subscribe": "absent", "assign": "[1]"}, 'assign=[1]: JSON like {"topic":[0,1]} is expected'),
        ({"subscribe": "absent", "assign": '{"t":{"0":5}}'}, "assign['t']={0: 5}: numbers of partitions are expected"),
        ({"subscribe": "absent", "assign": '{"t":[2147483648]}'}, "assign['t']=[2147483648]: numbers of partitions"),
        ({"endingoffsets": '{"t":{"0":-2}}'}, "it means earliest, where no scan can end; use latest (-1)"),
        ({"endingoffsets": "now"}, 'or one of each partition: JSON like {"topic":{"0":4711,"1":-1}}'),
    ],
)
def test_a_wrong_value_is_reported_with_what_is_accepted(options: dict[str, str], told: str) -> None:
    """Each names the option and the way out."""
    assert told in "\n".join(problems(**options))


def test_json_offsets_have_words_for_the_ends() -> None:
    """-2 is earliest and -1 is latest; timestamps have precedence over offsets."""
    query = parse_options(
        {**GIVEN, "startingoffsets": '{"t":{"0":23,"1":-2}}', "endingoffsets": '{"t":{"0":-1}}'}
    ).query
    assert query.start == Offsets({"t": {0: 23, 1: Edge.EARLIEST}})
    assert query.end == Offsets({"t": {0: Edge.LATEST}})
    query = parse_options(
        {**GIVEN, "startingoffsets": "earliest", "startingtimestamp": "0", "endingtimestamp": "7"}
    ).query
    assert (query.start, query.end) == (Timestamp(0), Timestamp(7))


def test_a_schema_that_cannot_be_read_is_refused_with_every_reason() -> None:
    """Names as they are spelled, types as they are."""
    schema = StructType(
        [
            StructField("Offset", LongType()),
            StructField("value", StringType()),
            StructField("headers", IntegerType()),
            StructField("key", BinaryType(), nullable=False),
        ]
    )
    with pytest.raises(QueryError) as caught:
        wanted_columns(schema, include_headers=False)
    assert str(caught.value) == (
        "kafka_segments: the schema is not valid: Offset: no such column; did you mean offset?; "
        'value: string; it is binary: cast it in the query; headers: set option("includeHeaders", "true") to have '
        "this column"
    )
    full = full_schema(include_headers=True)
    assert wanted_columns(full, include_headers=True) == tuple(full.fieldNames())


def test_every_option_is_documented() -> None:
    """The page and the parser have the same names."""
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    (told,) = problems(q="")
    names = told.rpartition("known: ")[2].split(", ")
    assert [name for name in names if f"`{name}`" not in page] == []
