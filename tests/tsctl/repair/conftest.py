"""A bucket with versions for the tests of repairs."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from dev.local.stores.moto import MotoServer
from tests.tsctl.repair.versioned import Versioned
from tests.tsctl.running import runner


@pytest.fixture
def bucket(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a directory in a new bucket with versions."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"versions-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return f"s3://{bucket}/base"


@pytest.fixture
def versioned(bucket: str, capfd: pytest.CaptureFixture[str]) -> Iterator[Versioned]:
    made = Versioned(bucket, runner(capfd))
    with made.store:
        yield made
