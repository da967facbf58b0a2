"""Names in a bucket are chosen by its writers: none makes `tsctl` write outside of the given directory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.log_format.build import batch, record
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from tsctl.exit_codes import ExitCode

BUCKET = "outside-names"
NAMES = ("..", ".", "../up", "/etc/up", "t/../../up", "t~../../up", "<script>", "~", "")


@pytest.fixture(scope="module")
def named(moto_server: MotoServer) -> Iterator[tuple[str, ...]]:
    """Return an archive of topic `t`, with its objects repeated as if topics of all these names existed."""
    with pytest.MonkeyPatch.context() as patch, closing(moto_server.client()) as s3:
        for name, value in moto_server.environment().items():
            patch.setenv(name, value)
        s3.create_bucket(Bucket=BUCKET)
        archive = Archive(f"s3://{BUCKET}/base")
        archive.put_segment("t", 0, batch(0, [record(0)]), index=b"", timeindex=b"")
        archive.put_incarnations("t", "an-id")
        archive.commit("t", 1)
        for info in list(archive.store.list()):
            body, found = archive.store.get(info.key)
            for name in NAMES:
                other = info.key.replace("/t-0/", f"/{name}-0/").replace("/t/", f"/{name}/")
                s3.put_object(Bucket=BUCKET, Key=f"base/{other}", Body=body, Metadata=dict(found.metadata))
        archive.store.close()
        yield ("--url", f"s3://{BUCKET}/base", "--cluster", "prod")


def test_no_name_in_a_bucket_leads_out_of_the_directory(named: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Any of the names may be requested; the topic next to them is fetched as usual."""
    place = tmp_path / "in" / "here"
    place.mkdir(parents=True)
    for name in NAMES:
        run("get", name, place, *named)
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(place)} == {tmp_path / "in"}
    assert not Path("/etc/up-0").exists()
    assert {path.name for path in place.iterdir()} <= {"t-0"}  # `.` is a pattern too
    assert run("get", "t", place / "t", *named).code == ExitCode.FINE
    assert (place / "t" / "t-0" / f"{0:020d}.log").exists()


def test_a_name_that_kafka_would_reject_is_not_listed_as_a_topic(named: tuple[str, ...], run: Run) -> None:
    """A listing shows the topic, and no name that Kafka would reject."""
    ended = run("ls", *named, "--json")
    assert ended.code in {ExitCode.FINE, ExitCode.FOUND}, ended.err
    assert [topic["topic"] for topic in ended.document["topics"]] == ["t"]


def test_a_reader_of_a_bucket_that_is_not_there_gets_readers_advice(named: tuple[str, ...], run: Run) -> None:
    """The message names the location to check; it does not advise creating a bucket."""
    assert named
    for command in (("ls",), ("verify",), ("cat", "t")):
        ended = run(*command, "--url", "s3://nowhere-at-all/base", "--cluster", "prod")
        assert ended.code == ExitCode.REFUSED
        assert "check its name and the endpoint" in ended.err
        assert "create" not in ended.err
