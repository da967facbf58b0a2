"""Lifecycle rules and noncurrent versions, as `tsctl verify` and `tsctl report` name them."""

import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.log_format.build import batch, record
from tests.spark.archives import Archive
from tests.tsctl.running import Run, runner

EXPIRES = {"ID": "too-tidy", "Status": "Enabled", "Filter": {"Prefix": "base/"}, "Expiration": {"Days": 9}}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def archive_in(location: str) -> Archive:
    """Write an archive of one topic, with two entropy bits."""
    archive = Archive(location, 2)
    for base in (0, 1):
        archive.put_segment("t", base, batch(base, [record(0)]), index=b"", timeindex=b"")
    archive.commit("t", 2, highest_base=1)
    return archive


def test_rules_and_versions_of_a_bucket_are_named(
    run: Run, moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rule that expires segments fails the check; versions are counted on request, also where nothing is listed."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"verify-{uuid.uuid4().hex[:12]}"
    location = f"s3://{bucket}/base"
    named: list[Any] = ["--url", location, "--cluster", "prod", "--entropy-bits", "2"]
    with closing(moto_server.client()) as s3:
        s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        with closing(archive_in(location).store) as store:
            assert run("verify", *named, "--versions").out.endswith(
                "noncurrent versions: 0 objects, 0 bytes, and 0 delete markers; they stay until a lifecycle rule "
                "expires them\n"
            )
            store.put("00/prod/gone-0/a", b"12345")  # hidden, so that no listing has its directory
            store.delete(["00/prod/gone-0/a"])
            store.put("00/other/t-0/a", b"of another cluster")
            store.delete(["00/other/t-0/a"])
        s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [EXPIRES]})
        found = run("verify", *named, "--versions", "--json")
    assert found.code == 1, found.document["findings"]
    assert found.document["noncurrent_versions"] == {"objects": 1, "bytes": 5, "delete_markers": 1}
    (harm,) = (each for each in found.document["findings"] if each["code"] == "lifecycle-harm")
    assert (harm["code"], harm["severity"], harm["where"]) == ("lifecycle-harm", "suspicious", "prod")
    assert "'too-tidy'" in harm["detail"]
    page = tmp_path / "report.html"
    assert run("report", "-o", page, *named, "--versions").code == 0
    assert "noncurrent versions: 1 object, 5 bytes, and 1 delete marker" in page.read_text()
    assert run("verify", *named, "t").code == 0  # the check of one topic is not of the bucket


def test_a_store_without_versions_is_a_warning_if_they_are_requested(run: Run, tmp_path: Path) -> None:
    """What was not counted is not zero."""
    archive_in(tmp_path.as_uri()).store.close()
    ended = run("verify", "--url", tmp_path.as_uri(), "--cluster", "prod", "--entropy-bits", "2", "--versions")
    assert ended.code == 0
    assert "versions are not counted: the store does not list them" in ended.err
    assert "noncurrent" not in ended.out
