"""What the agent refuses at its start: one clear message that names the thing, a non-zero exit, nothing written."""

from pathlib import Path

import pytest

from dev.local.agent import write_config
from dev.local.kafka.cluster import LocalCluster
from tests.matrix import cases
from tests.uploader.beside import BUCKET
from tests.uploader.commands import Command
from ts_uploader.cli import EXIT_BROKEN, EXIT_TRY_AGAIN

URL = "storage.service.endpoint.url"
BITS = "ts.segment.uploader.s3.prefix.entropy.bits"
CLIENT = "ts.segment.uploader.kafka.client."
LEADERSHIP = "ts.segment.uploader.leadership.watcher.class"


@pytest.fixture
def command(cluster: LocalCluster, tmp_path: Path) -> Command:
    return Command(cluster, tmp_path)


def test_u21_a_missing_configuration_is_named(command: Command) -> None:
    """Which file, how such a file is named, and the option if the directory has another cluster's."""
    command.refuses(command.run(None), "prod.properties", "<clusterId>.properties")
    write_config(command.config, "test", {URL: command.location})
    command.refuses(command.run(None), "the directory has test.properties: set --cluster-id test (in TS_UPLOADER_ARG")
    forgotten = command.run(None, forgotten="--cluster-id")
    command.refuses(forgotten, f"{command.cluster.cluster_id}.properties: 1 problem", "set --cluster-id test")


def test_u21_all_configuration_problems_are_reported_at_once(command: Command) -> None:
    """An unknown key with the nearest right one, a bad regex and a bad number, in one message."""
    ended = command.run(
        {
            URL: command.location,
            "ts.segment.uploader.kafka.topics.includ": ".*",
            "ts.segment.uploader.kafka.topics.exclude": "(",
            "ts.segment.uploader.upload.thread.count": "0",
        }
    )
    command.refuses(
        ended,
        "3 problems",
        "did you mean ts.segment.uploader.kafka.topics.include?",
        "'(' is not a regular expression",
        "thread.count=0",
    )


def test_u21_an_absent_bucket_is_refused_and_not_created(command: Command) -> None:
    """Checked with HeadBucket at the start, as an identity that could create one."""
    ended = command.run({URL: "s3://nowhere-at-all/base"})
    command.refuses(ended, "s3://nowhere-at-all", "create")
    assert "nowhere-at-all" not in [b["Name"] for b in command.s3.client().list_buckets()["Buckets"]]


def test_u21_a_store_endpoint_where_nothing_listens_is_reported(command: Command) -> None:
    """An endpoint where nothing listens is reported, with the exit code that makes a supervisor start it again."""
    ended = command.run({URL: command.location}, environment={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    command.refuses(ended, "127.0.0.1:9", "start it again", code=EXIT_TRY_AGAIN)


def test_u21_another_entropy_width_than_the_bucket_holds_is_refused(command: Command) -> None:
    """Both widths are named; no reader would find a bucket half in one and half in another."""
    key = f"{command.location.rpartition('/')[2]}/101/prod/t-0/offset.wm"
    command.s3.client().put_object(Bucket=BUCKET, Key=key, Body=b"0" * 20)
    ended = command.run({URL: command.location, BITS: "5"})
    command.s3.client().delete_object(Bucket=BUCKET, Key=key)
    command.refuses(ended, BITS + "=5", "with 3 bits")


def test_u21_a_kraft_broker_that_cannot_be_reached_by_its_file_is_reported(command: Command, tmp_path: Path) -> None:
    """What of its file cannot be taken over, and what librdkafka refuses of the operator's own settings."""
    kraft = tmp_path / "server.properties"
    kraft.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={tmp_path}\n")
    ended = command.run({URL: command.location}, server_properties=kraft)
    command.refuses(ended, "listeners has no inter-broker listener", CLIENT + "bootstrap.servers")
    ended = command.run({URL: command.location, CLIENT + "no.such.key": "1"}, server_properties=kraft)
    command.refuses(ended, "listeners has no inter-broker listener")
    own = {CLIENT + "bootstrap.servers": "127.0.0.1:9", CLIENT + "no.such.key": "1"}
    ended = command.run({URL: command.location, **own}, server_properties=kraft)
    command.refuses(ended, "no.such.key", CLIENT)


def test_a_wrong_broker_file_is_reported_with_all_its_problems(command: Command, tmp_path: Path) -> None:
    """Neither log dirs nor a ZooKeeper nor an id: each is named."""
    wrong = tmp_path / "server.properties"
    wrong.write_text("listeners=PLAINTEXT://:9092\n")
    ended = command.run({URL: command.location}, server_properties=wrong)
    command.refuses(ended, "log.dirs", "zookeeper.connect", "broker.id")
    command.refuses(command.run({}, server_properties=tmp_path / "absent"), "absent", "the file does not exist")


def test_an_invalid_store_location_is_reported(command: Command) -> None:
    """The forms that are accepted are named."""
    command.refuses(command.run({URL: "ftp://bucket/base"}), "ftp://bucket/base", "s3://", "gs://")
    command.refuses(command.run({}), URL)


def test_an_http_address_already_in_use_is_reported(command: Command) -> None:
    """Two agents on one host need two ports, as the message explains."""
    taken = command.s3.port
    ended = command.run({URL: command.location}, "--http-address", f"127.0.0.1:{taken}")
    command.refuses(ended, str(taken), "another agent", "start it again", code=EXIT_TRY_AGAIN)


def test_u20_a_thread_that_dies_ends_the_process(command: Command) -> None:
    """Never half alive: a clear error, and an exit code that makes a supervisor start it again."""
    ended = command.run({URL: command.location, LEADERSHIP: "tests.uploader.dying:DyingLeadership"})
    assert ended.returncode == EXIT_BROKEN
    assert "thread_died" in ended.stderr
    assert "unforeseen" in ended.stderr


def test_an_environment_provider_of_ones_own_is_loaded(command: Command) -> None:
    """By dotted path; its cluster id names the properties file."""
    ended = command.run(None, "--environment-provider", "tests.uploader.surroundings:Renamed")
    command.refuses(ended, "renamed.properties")


_NO_PROVIDERS = ["nowhere:Nothing", "tests.uploader.surroundings:Absent", "os:PathLike", "nonsense"]


@pytest.mark.parametrize("path", cases(_NO_PROVIDERS, quick=["nowhere:Nothing"]))
def test_an_invalid_environment_provider_is_reported(command: Command, path: str) -> None:
    """No module, no such class, another kind of class, no dotted path: the option and the value are named."""
    command.refuses(command.run(None, "--environment-provider", path), "--environment-provider", path)
