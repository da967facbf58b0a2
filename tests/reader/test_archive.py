"""`Archive`: topics and partitions, archives in several locations, pickling, forks, and connections of its own."""

import multiprocessing
import pickle
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.s3 import Identity, S3Server
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.reader.archives import ScannedArchive
from ts_common.archive.layout import Layout
from ts_common.archive.object_keys import LOG_START_NAME
from ts_common.endpoints.provider import EndpointProvider
from ts_common.errors import AccessDenied, BucketMissing, ConfigurationError, QueryError
from ts_reader import Archive, PartitionInfo

IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g")
PROVIDER = "storage.service.endpoint.provider.class"
URL = "storage.service.endpoint.url"


def filled(archive: MadeArchive, topic: str, *sizes: int) -> MadeArchive:
    """Give a topic a partition of each number of records."""
    for partition, size in enumerate(sizes):
        archive.put_segment(topic, 0, batches((0, size)), partition=partition)
        archive.commit(topic, size, partition=partition)
    return archive


def test_topics_are_sorted_names(archive: ScannedArchive) -> None:
    """Topics without data are among them."""
    for topic in ("t", "a-1", "_b.c"):
        filled(archive, topic, 5)
    archive.put_incarnations("empty", IDS[0])
    archive.put_incarnations("events-1", IDS[0])  # not a partition of a topic `events`
    assert archive.opened.topics() == ["_b.c", "a-1", "empty", "events-1", "t"]


def test_partitions_have_their_bounds_and_sizes(archive: ScannedArchive) -> None:
    """The view begins at `log.start` and ends at the commit; bytes are those of committed segments."""
    archive.put_segment("t", 0, batches(*steps(0, 50)), partition=10)
    archive.put_segment("t", 50, batches(*steps(50, 90)), partition=10)
    archive.put_segment("t", 90, batches(*steps(90, 120)), partition=10)
    archive.commit("t", 90, partition=10, highest_base=50, log_start=20)
    filled(archive, "t", 5)
    archive.store.put(archive.partition("t", 2).prefix + LOG_START_NAME, b"%020d\n" % 42)
    size = len(batches(*steps(0, 50))) + len(batches(*steps(50, 90)))
    assert archive.opened.partitions("t") == [
        PartitionInfo("t", 0, 0, 5, 1, len(batches((0, 5))), None),
        PartitionInfo("t", 2, 42, 42, 0, 0, None),
        PartitionInfo("t", 10, 20, 90, 2, size, None),
    ]


def test_r12_a_topic_without_data_has_no_partitions_and_no_rows(archive: ScannedArchive) -> None:
    """Its list of incarnations proves that it exists."""
    archive.put_incarnations("empty", IDS[0])
    assert archive.opened.partitions("empty") == []
    scan = archive.scan("empty")
    assert (scan.to_table().num_rows, scan.to_table().schema) == (0, scan.schema)
    assert scan.estimate().segments == 0
    assert archive.rows("empty", partitions=[0, 3], starting_timestamp=5) == []


def test_partitions_are_of_one_incarnation(archive: ScannedArchive) -> None:
    """Of the newest one by default; each has its topic id."""
    filled(archive, "t", 5, 6)
    archive.put_incarnations("t", *IDS)
    assert [info.topic_id for info in archive.opened.partitions("t", incarnation="oldest")] == [IDS[0], IDS[0]]
    assert [info.end for info in archive.opened.partitions("t", incarnation=IDS[0])] == [5, 6]
    assert archive.opened.partitions("t") == []
    assert archive.opened.partitions("t", incarnation="2") == []
    assert len(archive.rows(incarnation="1")) == 11
    assert archive.rows() == []
    with pytest.raises(QueryError, match=rf"topic t: no incarnation 3; there are 1 {IDS[0]}, .*; 2 {IDS[1]}"):
        archive.opened.partitions("t", incarnation="3")
    with pytest.raises(ConfigurationError, match="incarnation='x'"):
        archive.opened.partitions("t", incarnation="x")


def test_r12b_a_topic_that_never_was_is_an_error(archive: ScannedArchive) -> None:
    """With the nearest name that exists."""
    filled(archive, "page_views", 5)
    reads: list[Callable[[str], Any]] = [archive.opened.partitions, lambda topic: archive.scan(topic).estimate()]
    for read in reads:
        with pytest.raises(QueryError, match=r"topic page_view: .* has no such topic; did you mean page_views\?"):
            read("page_view")
    with pytest.raises(QueryError, match="partitions: the store has no partition 3 of topic page_views, only 0"):
        archive.rows("page_views", partitions=[0, 3])


@pytest.mark.parametrize(("bits", "named"), [(3, "prefix_entropy_bits=3"), (0, "no prefix_entropy_bits")])
def test_r12b_the_entropy_width_that_has_the_cluster_is_named(tmp_path: Path, bits: int, named: str) -> None:
    """A cluster that the store does not have is an error too, and so is a directory that is missing."""
    location = filled(MadeArchive(tmp_path / "store", bits), "t", 5).location
    wrong = Archive(location, CLUSTER, prefix_entropy_bits=5)
    match = f"has no objects of cluster prod with prefix_entropy_bits=5; found with {named}: set that option"
    reads: list[Callable[[Archive], Any]] = [
        Archive.topics,
        lambda archive: archive.partitions("t"),
        lambda archive: archive.scan("t").to_table(),
    ]
    for read in reads:
        with pytest.raises(QueryError, match=match):
            read(wrong)
        with pytest.raises(QueryError, match=r"has no objects of cluster test; it has .*; check the location"):
            read(Archive(location, "test"))
        with pytest.raises(BucketMissing):
            read(Archive(location + "/missing", CLUSTER))


def test_u41_the_entropy_width_is_read_from_the_archive(tmp_path: Path) -> None:
    """A width that is given and wrong is an error with the right one."""
    archive = MadeArchive(tmp_path / "store", 3)
    filled(archive, "t", 5)
    archive.store.put(archive.keys.layout, Layout(3, CLUSTER, 1).encode())
    opened = Archive(archive.location, CLUSTER)
    assert opened.topics() == ["t"]
    assert [info.end for info in opened.partitions("t")] == [5]
    assert opened.scan("t").to_table().num_rows == 5
    with pytest.raises(QueryError, match=r"prefix_entropy_bits=5: .* set prefix_entropy_bits=3$"):
        Archive(archive.location, CLUSTER, prefix_entropy_bits=5).topics()


class ByTopic(EndpointProvider):
    """A directory for each topic whose name begins with a, b or c."""

    def location(self, topic: str) -> str:
        if topic[0] not in "abc":
            raise ConfigurationError(self.cluster_id, [f"topic {topic!r} has no endpoint"])
        return f"{self.properties[URL]}-{topic[0]}"

    def locations(self) -> frozenset[str]:
        return frozenset(map(self.location, "abc"))


@pytest.fixture
def several(tmp_path: Path) -> tuple[Path, dict[str, MadeArchive]]:
    """Return a file whose topics are in three directories, and these; the third has nothing."""
    file = tmp_path / f"{CLUSTER}.properties"
    file.write_text(f"{PROVIDER}={__name__}:ByTopic\n{URL}={(tmp_path / 'store').as_uri()}\n")
    stores = {name: MadeArchive(tmp_path / f"store-{name}") for name in "abc"}
    filled(stores["a"], "a1", 10)
    filled(stores["a"], "a2", 20, 21)
    filled(stores["b"], "b1", 30)
    filled(stores["b"], "a1", 5)  # topics where the file does not place them
    filled(stores["a"], "b9", 5)
    return file, stores


def sizes(archive: Archive, topic: Any, **arguments: Any) -> dict[str, int]:
    """Return the number of rows of each topic of a scan."""
    names = archive.scan(topic, columns=["topic"], **arguments).to_table()["topic"].to_pylist()
    return {name: names.count(name) for name in sorted(set(names))}


def test_topics_of_several_locations_are_one_archive(several: tuple[Path, dict[str, MadeArchive]]) -> None:
    """Each is read where the file places it, by name, by partition and by a pattern over all locations."""
    file, stores = several
    archive = Archive(config=file)
    assert archive.topics() == ["a1", "a2", "b1"]
    assert [(info.topic, info.end) for info in archive.partitions("b1")] == [("b1", 30)]
    assert [info.end for info in archive.partitions("a1")] == [10]
    assert sizes(archive, ["b1", "a2"]) == {"a2": 41, "b1": 30}
    assert sizes(archive, ["b1", "a2"], partitions={"a2": [1], "b1": [0]}) == {"a2": 21, "b1": 30}
    assert sizes(archive, ["a1", "b1"], starting_offsets={"a1": {0: 4}, "b1": {0: "earliest"}}) == {"a1": 6, "b1": 30}
    assert sizes(archive, re.compile("1")) == {"a1": 10, "b1": 30}
    assert sizes(archive, re.compile("^a")) == {"a1": 10, "a2": 41}
    assert sizes(archive, re.compile("x")) == {}
    stores["b"].put_incarnations("c-1", IDS[0])  # a pattern reads no topic `c`
    stores["c"].put_incarnations("c-1", IDS[0])
    assert sizes(archive, re.compile("1|^c")) == {"a1": 10, "b1": 30}
    with pytest.raises(QueryError, match="2 problems"):
        archive.scan(["a1", "x1", "y"])
    assert stores["a"].location in repr(archive)


def test_a_pattern_over_several_locations_is_matched_when_the_scan_is_planned(
    several: tuple[Path, dict[str, MadeArchive]],
) -> None:
    """A scan sends no request; planned again, it finds the topics of then."""
    file, stores = several
    scan = Archive(config=file).scan(re.compile("^[bc]"), columns=["topic"])
    filled(stores["c"], "c1", 3)
    assert scan.to_table().num_rows == 33
    filled(stores["c"], "c2", 4)
    assert scan.to_table().num_rows == 33
    assert pickle.loads(pickle.dumps(scan)).planned_again().to_table().num_rows == 37


def test_r12b_several_locations_without_the_cluster_are_an_error(
    several: tuple[Path, dict[str, MadeArchive]],
) -> None:
    """The same as of one."""
    file, _ = several
    other = file.with_name("test.properties")
    other.write_text(file.read_text())
    with pytest.raises(QueryError, match=r"has no objects of cluster test; it has .*; check the location"):
        Archive(config=other).topics()


def test_archives_and_scans_can_be_pickled(several: tuple[Path, dict[str, MadeArchive]], tmp_path: Path) -> None:
    """A scan keeps its plan; it needs no file."""
    file, stores = several
    for archive in (Archive(stores["a"].location, CLUSTER, prefix_entropy_bits=0, workers=1), Archive(config=file)):
        copy = pickle.loads(pickle.dumps(archive))
        assert repr(copy) == repr(archive)
        assert [info.end for info in copy.partitions("a2")] == [20, 21]
        unplanned, planned = archive.scan(["a1", "a2"]), archive.scan(["a1", "a2"])
        planned.estimate()
        copies = [pickle.loads(pickle.dumps(scan)) for scan in (unplanned, planned, unplanned.dataset())]
        stores["a"].put_segment("a1", 10, batches((10, 12)))
        stores["a"].commit("a1", 12, highest_base=10)
        assert [scan.to_table().num_rows for scan in copies] == [53, 51, 53]
        stores["a"].commit("a1", 10)
    assert [info.end for info in pickle.loads(pickle.dumps(Archive(config=file))).partitions("b1")] == [30]
    pickled = pickle.dumps(Archive(config=file).scan("b1"))
    file.unlink()
    assert pickle.loads(pickled).to_table().num_rows == 30


def counted(archive: Archive, results: "multiprocessing.SimpleQueue[Any]") -> None:
    results.put((archive.topics(), archive.scan("t").to_table().num_rows))


def test_an_archive_is_used_after_a_fork(archive: ScannedArchive) -> None:
    """Also where the parent has read it."""
    filled(archive, "t", 5, 6)
    opened = archive.opened
    assert opened.scan("t").to_table().num_rows == 11
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=counted, args=(opened, results))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert results.get() == (["t"], 11)
    assert opened.scan("t").to_table().num_rows == 11


PROGRAM = """
import sys
from ts_reader import Archive
archive = Archive(sys.argv[1], "prod")
print(archive.scan("t", ending_offsets={0: 9}, fail_on_data_loss=False).to_table().num_rows)
"""


def test_a_program_that_configures_no_logs_gets_warnings_on_standard_error(archive: ScannedArchive) -> None:
    """Standard output is the program's own."""
    filled(archive, "t", 5)
    run = subprocess.run([sys.executable, "-c", PROGRAM, archive.location], capture_output=True, text=True, check=True)
    assert run.stdout == "5\n"
    assert "query_warning" in run.stderr
    assert "t-0: offsets 5 to 8 are not in the store" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def storage_options(server: S3Server, who: Identity) -> dict[str, Any]:
    return {
        "endpoint_url": server.endpoint,
        "region": "us-east-1",
        "addressing_style": "path",
        "access_key_id": who.access_key,
        "secret_access_key": who.secret_key,
    }


def test_credentials_of_its_own_reach_the_store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has another endpoint and wrong keys; no text about the archive has the secret."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    location = f"s3://{s3_server.create_bucket('reader')}/{uuid.uuid4().hex}"
    made = MadeArchive(location)
    filled(made, "t", 5, 6)
    made.store.close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(AccessDenied):
        Archive(location, CLUSTER).topics()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    archive = Archive(location, CLUSTER, storage_options=storage_options(s3_server, s3_server.restricted))
    scan = archive.scan("t")
    assert archive.topics() == ["t"]
    assert [info.end for info in archive.partitions("t")] == [5, 6]
    assert scan.to_table().num_rows == 11
    assert pickle.loads(pickle.dumps(scan)).to_table().num_rows == 11
    assert pickle.loads(pickle.dumps(archive)).scan("t").to_table().num_rows == 11
    hidden = Identity(s3_server.restricted.access_key, "hushed-secret")
    wrong = Archive(location, CLUSTER, storage_options=storage_options(s3_server, hidden))
    with pytest.raises(AccessDenied) as caught:
        wrong.scan("t").to_table()
    texts = [f(each) for f in (repr, str) for each in (archive, scan, scan.query, scan.dataset(), wrong, caught.value)]
    texts += [repr(scan.to_batches()), repr(caught.value.__cause__)]
    assert not any(secret in text for text in texts for secret in (s3_server.restricted.secret_key, hidden.secret_key))


def test_a_secret_is_in_no_error_of_the_arguments() -> None:
    """Neither of a misspelt option nor of one with another problem."""
    options = {
        "secret_acces_key": "hushed-1",
        "secret_access_key": b"hushed-2",
        "session_token": "hushed-3",
        "proxy": "ftp://user:hushed-4@proxy:3128",
        "endpoint_url": "https://user:hushed-5@s3_server.example.com",
        "external_id": "hushed 6",
    }
    with pytest.raises(ConfigurationError) as caught:
        Archive("s3://user:hushed-7@bucket", CLUSTER, storage_options=options)
    assert len(caught.value.problems) == 7
    assert "hushed" not in str(caught.value)
    assert "hushed" not in repr(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        Archive("s3://bucket", CLUSTER, storage_options={"access_key_id": "who", "secret_access_key": ["hushed"]})
    assert "hushed" not in str(caught.value)
