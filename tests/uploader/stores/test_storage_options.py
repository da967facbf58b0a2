"""An agent stores objects with the configured options; the server itself is queried for each object."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.stores.moto import MotoServer
from tests.matrix import cases
from tests.uploader.commands import Command
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records
from ts_common.archive.object_keys import PROBE_NAME
from ts_common.store.option_table import OPTIONS
from ts_common.store.options import PREFIX as S3

URL = "storage.service.endpoint.url"


@pytest.fixture
def bucket(moto_server: MotoServer) -> str:
    """Create an empty bucket of moto."""
    name = f"options-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def server(moto_server: MotoServer) -> Iterator[Any]:
    with closing(moto_server.client()) as client:
        yield client


def test_every_object_that_an_agent_writes_is_stored_as_configured(
    cluster: LocalCluster, archive_of: ArchiveOf, moto_server: MotoServer, bucket: str, server: Any
) -> None:
    """All objects have the options; only segments and the probe have the storage class."""
    cluster.create_topic("stored", assignment=[[1]])
    cluster.produce("stored", records(2000), partition=0)
    archive = archive_of(
        "stored",
        properties={
            URL: f"s3://{bucket}/base",
            S3 + "server.side.encryption": "aws:kms",
            S3 + "bucket.key.enabled": "true",
            S3 + "storage.class": "STANDARD_IA",
            S3 + "tags": "team=data",
            S3 + "acl": "public-read",
            S3 + "checksum.algorithm": "SHA256",
        },
    )
    archive.agent(environment=moto_server.environment())
    found: dict[str, str] = {}

    def is_shipped() -> bool:
        listed = server.list_objects_v2(Bucket=bucket).get("Contents", [])
        found.update({each["Key"].removeprefix("base/"): each["StorageClass"] for each in listed})
        return any("/segment-metadata/" in key for key in found) and any(key.endswith("/offset.wm") for key in found)

    wait_for(is_shipped, "a commit and a cache object", 120, state=lambda: sorted(found))
    cold = {key for key, storage_class in found.items() if storage_class == "STANDARD_IA"}
    assert cold == {key for key in found if key.endswith(("index", ".log"))} | {PROBE_NAME}
    assert {key.rpartition("/")[2] for key in found.keys() - cold} >= {"offset.wm", "log.start", "incarnations.json"}
    for key in found:
        head = server.head_object(Bucket=bucket, Key=f"base/{key}")
        assert (head["ServerSideEncryption"], head["BucketKeyEnabled"]) == ("aws:kms", True), key
        tags = server.get_object_tagging(Bucket=bucket, Key=f"base/{key}")["TagSet"]
        assert tags == [{"Key": "team", "Value": "data"}], key
        grants = server.get_object_acl(Bucket=bucket, Key=f"base/{key}")["Grants"]
        assert any("AllUsers" in grant["Grantee"].get("URI", "") for grant in grants), key


def test_u21_all_that_a_store_refuses_is_one_message_without_secrets(
    cluster: LocalCluster, moto_server: MotoServer, bucket: str, server: Any, tmp_path: Path
) -> None:
    """The exit code is that of a rejection; no part of a segment is written, and no message contains a secret."""
    command = Command(cluster, tmp_path)
    environment = {**moto_server.environment(), "NO_PROXY": "", "no_proxy": ""}
    secret = environment["AWS_SECRET_ACCESS_KEY"]
    proxy = moto_server.endpoint.replace("http://", "http://me:hunter2@")
    ended = command.run(
        {URL: f"s3://{bucket}/base", S3 + "storage.class": "COLD", S3 + "tags": "a=b", S3 + "proxy": proxy},
        environment=environment,
    )
    command.refuses(ended, "1 problem", f"{S3}storage.class=COLD", "drop the option")
    assert "hunter2" not in ended.stderr + ended.stdout
    assert secret not in ended.stderr + ended.stdout
    listed = server.list_objects_v2(Bucket=bucket).get("Contents", [])
    assert [each["Key"] for each in listed] == [f"base/{PROBE_NAME}"]


@pytest.mark.parametrize("encryption", cases(["AES256", "aws:kms"], quick=["aws:kms"]))
def test_u21_a_server_without_keys_is_reported_to_reject_encryption(
    cluster: LocalCluster, tmp_path: Path, encryption: str
) -> None:
    """SeaweedFS without a KMS answers such a put with 500: that is no reason to retry forever."""
    command = Command(cluster, tmp_path)
    ended = command.run({URL: command.location, S3 + "server.side.encryption": encryption})
    command.refuses(ended, f"{S3}server.side.encryption={encryption}: {command.location} rejects it")


def test_u21_wrong_options_are_reported_before_any_request_to_a_store(cluster: LocalCluster, tmp_path: Path) -> None:
    """All of them are reported before any request, with the nearest right names and without secrets."""
    command = Command(cluster, tmp_path)
    ended = command.run(
        {
            URL: command.location,
            S3 + "server.side.encryption": "AES256",
            S3 + "kms.key.id": "k",
            S3 + "storage.clas": "STANDARD_IA",
            S3 + "proxy": "me:hunter2@proxy",
        }
    )
    command.refuses(ended, "3 problems", f"did you mean {S3}storage.class?", f"{S3}kms.key.id: it needs", f"{S3}proxy:")
    assert "hunter2" not in ended.stderr


def test_the_table_of_options_has_a_row_for_each() -> None:
    """Contributing has it, with what each option applies to, and how it was tested."""
    page = (Path(__file__).parents[3] / "docs" / "contributing.md").read_text()
    for option in OPTIONS:
        assert f"| `{option.name}` |" in page, option.name
