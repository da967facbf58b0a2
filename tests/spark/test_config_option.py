"""The option `config`: a query reads cluster, location and connection from the agent's file."""

import json
import pickle
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from dev.local.stores.moto import MotoServer
from tests.made_archive import CLUSTER, batches
from tests.spark.archives import Archive
from ts_common.endpoints.provider import EndpointProvider
from ts_common.errors import ConfigurationError, QueryError
from ts_common.store.options import AddressingStyle, Connection, Endpoint
from ts_reader.query.filters import EVERYTHING
from ts_reader.query.plan_query import plan_everywhere, plan_query
from ts_reader.query.query import Query, by_location
from ts_spark.options.parse import QueryKind, parse_options
from ts_spark.options.schema import full_schema
from ts_spark.source import KafkaSegmentsSource
from ts_spark.streaming.driver import StreamDriver

URL = "storage.service.endpoint.url"
PROVIDER = "storage.service.endpoint.provider.class"
BITS = "ts.segment.uploader.s3.prefix.entropy.bits"


def written(directory: Path, name: str = f"{CLUSTER}.properties", **settings: str) -> Path:
    path = directory / name
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def parsed(file: Path, **options: str) -> Query:
    return parse_options({"config": str(file), "subscribe": "t", **options}).query


def problems(file: Path | str, **options: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"config": str(file), "subscribe": "t", **options})
    return caught.value.problems


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A file whose topics lie in two locations; all but `pii` and `cards` in the first."""
    private = {"bucket": "private", "prefix": "base"}
    topics = {"default": {"bucket": "public"}, "topics": {"pii": private, "cards": private}}
    (tmp_path / f"{CLUSTER}.endpoints.json").write_text(json.dumps(topics))
    return written(tmp_path, **{PROVIDER: "json", BITS: "7"})


def test_the_file_names_location_cluster_and_width(tmp_path: Path) -> None:
    """A query needs it and a subscription, and nothing more."""
    archive = Archive(tmp_path / "store", entropy_bits=4)
    archive.put_segment("t", 0, batches((0, 9)))
    archive.commit("t", 9)
    file = written(tmp_path, **{URL: archive.location, BITS: "4"})
    query = parsed(file)
    assert (query.location, query.cluster, query.entropy_bits) == (archive.location, CLUSTER, 4)
    (split,) = plan_query(archive.store, query).splits
    assert [(part.start, part.end) for part in split.ranges] == [(0, 9)]


def test_a_file_without_a_width_means_none(tmp_path: Path) -> None:
    """As for the agent, where a number below 1 means none too."""
    assert parsed(written(tmp_path, **{URL: "s3://bucket/base"})).entropy_bits == 0
    assert parsed(written(tmp_path, **{URL: "s3://bucket/base", BITS: "-1"}), prefixEntropyBits="0").entropy_bits == 0


def test_each_topic_is_looked_for_where_it_lies(several: Path) -> None:
    """The provider returns the locations of the topics that the query names."""
    assert parsed(several).location == "s3://public"
    assert parsed(several, subscribe="pii,cards").location == "s3://private/base"
    assigned = parse_options({"config": str(several), "assign": '{"cards":[0]}'}).query
    assert assigned.location == "s3://private/base"


def test_topics_of_several_locations_are_one_table(tmp_path: Path) -> None:
    """Each is planned at its location, which its splits have, with the JSON offsets of its topics."""
    places = {name: Archive(tmp_path / f"store-{name}") for name in "abc"}
    for number, (name, archive) in enumerate(places.items()):
        archive.put_segment(name, 0, batches((0, 10 + number)))
        archive.commit(name, 10 + number)
    file = written(
        tmp_path, **{PROVIDER: f"{__name__}:ByTopic", "storage.service.endpoint.url": (tmp_path / "store").as_uri()}
    )
    for chosen in ({"subscribe": "c,a,b"}, {"assign": '{"a":[0],"b":[0],"c":[0]}'}):
        offsets = '{"a":{"0":1},"b":{"0":2},"c":{"0":-2}}'
        query = parse_options({"config": str(file), "startingOffsets": offsets, **chosen}).query
        plan = plan_everywhere(query, EVERYTHING)
        assert {(split.location, part.start, part.end) for split in plan.splits for part in split.ranges} == {
            (places["a"].location, 1, 10),
            (places["b"].location, 2, 11),
            (places["c"].location, 0, 12),
        }
        assert (plan.segments, plan.all_segments) == (3, 3)
        assert plan.all_bytes == sum(
            info.size for s in places.values() for info in s.store.list() if ".log" in info.key
        )
    reader = KafkaSegmentsSource({"config": str(file), "subscribe": "c,a,b"}).reader(full_schema(include_headers=False))
    rows = [row for split in reader.partitions() for b in reader.read(split) for row in b.to_pylist()]
    found = {name: [row["offset"] for row in rows if row["topic"] == name] for name in places}
    assert found == {"a": list(range(10)), "b": list(range(11)), "c": list(range(12))}
    unasked = '{"a":{"0":1},"b":{"0":2},"d":{"0":3}}'
    with pytest.raises(QueryError, match="startingOffsets: d-0, which this query does not read"):
        plan_everywhere(
            parse_options({"config": str(file), "subscribe": "a,b", "startingOffsets": unasked}).query, EVERYTHING
        )


class ByTopic(EndpointProvider):
    """A directory for each topic."""

    def location(self, topic: str) -> str:
        return f"{self.properties['storage.service.endpoint.url']}-{topic}"

    def locations(self) -> frozenset[str]:
        return frozenset(map(self.location, "abc"))


def test_topics_of_several_locations_contradict_a_path(several: Path) -> None:
    """Whichever it is: it cannot stand for all of them."""
    assert problems(several, subscribe="t,pii,cards", path="s3://public") == (
        f"path=s3://public: config={several} has s3://public for t, s3://private/base for pii and cards; "
        "drop one of the two",
    )


def test_a_pattern_is_refused_where_it_could_find_topics_in_several_locations(several: Path) -> None:
    """Topics are known by their locations' listings, and not one by the other's."""
    with pytest.raises(ConfigurationError, match=r"topics are in s3://private/base, s3://public, and a pattern is"):
        parse_options({"config": str(several), "subscribePattern": ".*"})


def test_a_pattern_needs_one_location_only(tmp_path: Path) -> None:
    """Which topics it finds is not known when the options are read."""
    file = written(tmp_path, **{URL: "s3://bucket/base"})
    assert parse_options({"config": str(file), "subscribePattern": ".*"}).query.location == "s3://bucket/base"


def test_a_topic_without_a_place_is_named(tmp_path: Path) -> None:
    """The agent does not ship it either."""
    (tmp_path / f"{CLUSTER}.endpoints.json").write_text(json.dumps({"topics": {"a": {"bucket": "abc"}}}))
    file = written(tmp_path, **{PROVIDER: "json"})
    told = problems(file, subscribe="a,b,c")
    assert [problem.partition(" has no endpoint")[0] for problem in told] == [
        f"config: {file}: topic 'b'",
        f"config: {file}: topic 'c'",
    ]


def test_values_in_both_options_and_file_must_agree(tmp_path: Path) -> None:
    """Agreement is fine, each contradiction is an error that names both."""
    file = written(tmp_path, **{URL: "s3://bucket/base/", BITS: "5"})
    same = {"path": "s3://bucket/base", "cluster": CLUSTER, "prefixEntropyBits": "5"}
    assert parsed(file, **same) == parsed(file)
    assert problems(file, path="s3://other", cluster="test", prefixEntropyBits="0") == (
        f"path=s3://other: config={file} has s3://bucket/base; drop one of the two",
        f"cluster=test: config={file} has {CLUSTER}; drop one of the two",
        f"prefixEntropyBits=0: config={file} has 5; drop one of the two",
    )


def test_a_location_that_is_missing_hides_no_contradiction(several: Path) -> None:
    """All problems at once."""
    told = [
        problem.partition(":")[0]
        for problem in problems(several, subscribe="absent", cluster="test", prefixEntropyBits="1", path="s3a://x")
    ]
    assert told == ["path=s3a", "cluster=test", "prefixEntropyBits=1"]


def test_every_error_in_the_file_is_reported_with_the_other_problems(tmp_path: Path) -> None:
    """Also if the query names no topic."""
    file = written(tmp_path, **{BITS: "many", "storage.service.endpoint.urk": "s3://bucket"})
    told = problems(file, subscribe="a b", failOnDataLoss="maybe")
    assert [problem.partition(f"{file}: ")[2].partition(":")[0] for problem in told if "config" in problem] == [
        "storage.service.endpoint.urk",
        f"{BITS}=many",
    ]
    assert [problem.partition("=")[0] for problem in told if "config" not in problem] == ["subscribe", "failOnDataLoss"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With what is expected."""
    (problem,) = problems(tmp_path / "prod.properties")
    assert f"{tmp_path}/prod.properties: there is no such file; each cluster has one" in problem


def test_a_stream_reads_one_location_and_the_newest_incarnation(several: Path) -> None:
    """It is rejected before it starts. If all topics are in one location, it reads the file as a batch query does."""
    given = {"config": str(several), "subscribe": "t,pii"}
    with pytest.raises(ConfigurationError) as caught:
        parse_options({**given, "incarnation": "oldest"}, QueryKind.STREAM)
    assert caught.value.problems == (
        "incarnation: a stream reads the newest one; drop it, or use spark.read",
        "config: a stream reads one location, and the topics are in several (pii in s3://private/base): "
        "start one for each location",
    )
    assert parse_options({**given, "subscribe": "pii,cards"}, QueryKind.STREAM).query.location == "s3://private/base"


S3 = "storage.service.endpoint.s3."


def test_the_file_configures_the_s3_connection(tmp_path: Path) -> None:
    """Connection, not storage: topics that are stored differently in one place are read as one."""
    connection = {"region": "eu-west-1", "addressing.style": "path"}
    content = {
        "endpoints": {"one": {"bucket": "archive", "s3": connection}},
        "default": {"bucket": "other"},
        "topics": {"a": "one", "b": {"endpoint": "one", "s3": {"storage.class": "STANDARD_IA", "acl": "private"}}},
    }
    (tmp_path / f"{CLUSTER}.endpoints.json").write_text(json.dumps(content))
    file = written(tmp_path, **{PROVIDER: "json", S3 + "tags": "team=data"})
    spoken = Connection(region="eu-west-1", addressing_style=AddressingStyle.PATH)
    query = parsed(file, subscribe="a,b")
    assert (query.location, query.connection, query.topics_elsewhere) == ("s3://archive", spoken, ())
    both = parsed(file, subscribe="b,t")
    assert (both.connection, both.topics_elsewhere) == (spoken, ((Endpoint("s3://other"), ("t",)),))
    assert [part.connection for part in by_location(both)] == [spoken, Connection()]
    assert problems(file, subscribe="b", path="s3://elsewhere") == (
        f"path=s3://elsewhere: config={file} has s3://archive; drop one of the two",
    )


def test_a_service_that_only_the_file_names_is_read(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On the driver, in the tasks, which receive the connection from Spark, and on a stream's driver."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"read-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket)
    archive = Archive(f"s3://{bucket}/base")
    archive.put_segment("t", 0, batches((0, 9)))
    archive.commit("t", 9)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    said = {S3 + "endpoint.url": moto_server.endpoint, S3 + "addressing.style": "path", S3 + "storage.class": "X"}
    options = {"config": str(written(tmp_path, **{URL: archive.location}, **said)), "subscribe": "t"}
    reader = KafkaSegmentsSource(options).reader(full_schema(include_headers=False))
    splits = pickle.loads(pickle.dumps(reader.partitions()))
    rows = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(9))
    stream = StreamDriver(parse_options({**options, "startingOffsets": "earliest"}, QueryKind.STREAM))
    try:
        (split,) = stream.plan(stream.initial_offset(), stream.latest_offset())
    finally:
        stream.stop()
    assert split.connection == Connection(AddressingStyle.PATH, moto_server.endpoint)
