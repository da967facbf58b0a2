"""A bucket with versions on a real server, and command lines."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive
from tests.tsctl.running import Run, runner


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""
    return runner(capfd)


@pytest.fixture
def versioned(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[MadeArchive]:
    """Return an empty archive in a bucket that keeps versions; with the parameter "locks" also with Object Lock."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket, has_locks = f"versions-{uuid.uuid4().hex[:12]}", getattr(request, "param", "") == "locks"
    with closing(s3_server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=has_locks)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    made = MadeArchive(f"s3://{bucket}/base")
    with made.store:
        yield made
