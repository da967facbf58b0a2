"""A bucket with versions for the tests of repairs."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from dev.local.stores.moto import MotoServer
from tests.tsctl.repair.versioned import Versioned
from tests.tsctl.running import runner


@pytest.fixture
def versioned(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Versioned]:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"versions-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    made = Versioned(f"s3://{bucket}/base", runner(capfd))
    with made.store:
        yield made
