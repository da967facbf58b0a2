"""`tsctl hold --lock` on a real server with Object Lock: legal holds, set with the hold and by each run of gc."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import ship
from tests.tsctl.running import Run
from ts_common.archive.holds import Hold, read_holds
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import OperatorError
from ts_common.store.contract import ObjectVersion
from tsctl.legal_holds import repeat_legal_holds

CASE = ("hold", "add", "case", "--topic", "t", "--reason", "audit", "--lock")
POLICY = "{cluster: prod, rules: []}"


class Locked:
    """An archive in a bucket with Object Lock."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self.archive = MadeArchive(f"s3://{bucket}/base")
        self.named = ("--url", self.archive.location, "--cluster", "prod", "--json")

    def versions(self, topic: str = "t") -> list[ObjectVersion]:
        """Return the versions that are not delete markers."""
        found = self.archive.store.versions(self.archive.partition(topic).prefix)
        assert found is not None
        return [each for each in found if not each.is_delete_marker]

    def held(self, topic: str = "t") -> set[str]:
        """Return the versions with a legal hold: the names and ids."""
        store = self.archive.store
        return {each.id for each in self.versions(topic) if store.has_legal_hold(each.info.key, each.id)}

    def archived(self, topic: str = "t") -> set[str]:
        """Return the versions of segments, indexes and gap records."""
        marks = ("/offset.wm", "/log.start")
        cache = "/segment-metadata/"
        return {
            each.id for each in self.versions(topic) if not each.info.key.endswith(marks) and cache not in each.info.key
        }

    def delete(self, version: ObjectVersion) -> None:
        """Delete a version, as an identity that may do anything."""
        self._client.delete_object(Bucket=self._bucket, Key=f"base/{version.info.key}", VersionId=version.id)


@pytest.fixture
def locked(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    """Ship two topics, with a gap record, an overwritten and a hidden segment, into a bucket with Object Lock."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"held-{uuid.uuid4().hex[:12]}"
    with closing(s3_server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        made = Locked(client, bucket)
        for topic in ("t", "other"):
            ship(made.archive, topic, 0, 20)
        keys, store = made.archive.partition("t"), made.archive.store
        store.put(keys.gap(20, 30), b"{}")
        store.put(keys.cache_object(0), b"{}")
        store.put(keys.segment(SegmentName(0)), b"forged")
        store.delete([keys.segment(SegmentName(10))])
        with closing(store):
            yield made


def test_each_archived_version_of_what_a_hold_covers_gets_a_legal_hold(locked: Locked, run: Run) -> None:
    """Overwritten and hidden ones too; marks and cache objects get none, and other topics neither."""
    added = run(*CASE, *locked.named)
    assert (added.code, added.document["legal_holds"]) == (0, len(locked.archived()))
    held = locked.held()
    assert held == locked.archived()
    assert len(held) == 2 * 3 + 1 + 1
    assert locked.held("other") == set()
    for version in locked.versions():
        if version.id in held:
            with pytest.raises(ClientError, match="AccessDenied"):
                locked.delete(version)
    assert len(locked.archived()) == 8
    assert run(*CASE, *locked.named).document["legal_holds"] == 0  # repeated


def test_a_run_of_retention_repeats_the_legal_holds_for_new_segments(locked: Locked, run: Run, tmp_path: Path) -> None:
    """Its report has their number; a hold without --lock sets none."""
    run("hold", "add", "plain", "--topic", "other", "--reason", "audit", *locked.named)
    run(*CASE, *locked.named)
    ship(locked.archive, "t", 20, 40)
    policy = tmp_path / "retention.yaml"
    policy.write_text(POLICY)
    collect = ("gc", "run", "--policy", policy, *locked.named)
    assert len(locked.archived() - locked.held()) == 2 * 3
    ended = run(*collect)
    assert (ended.code, ended.lines[0]["legal_holds_set"]) == (0, 2 * 3), ended.err
    assert locked.held() == locked.archived()
    assert locked.held("other") == set()
    assert run(*collect).lines[0]["legal_holds_set"] == 0
    log = run("gc", "log", ended.lines[0]["run"], *locked.named[:-1]).lines
    assert {"did": "legal holds", "versions": 6} in log


def test_a_removed_hold_lifts_its_legal_holds_unless_another_one_covers_them(locked: Locked, run: Run) -> None:
    """Then the versions can be deleted again."""
    run(*CASE, *locked.named)
    run("hold", "add", "second", "--pattern", ".", "--reason", "audit", "--lock", *locked.named)
    removed = run("hold", "rm", "case", "--reason", "closed", *locked.named)
    assert (removed.code, removed.document["legal_holds_lifted"]) == (0, 0)
    assert locked.held() == locked.archived()
    removed = run("hold", "rm", "second", "--reason", "closed", *locked.named)
    assert (removed.code, removed.document["legal_holds_lifted"]) == (0, 8)
    assert locked.held() == set()
    locked.delete(locked.versions()[0])


def test_a_store_that_can_have_no_legal_hold_is_one_error(
    s3_server: S3Server, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory, and a bucket without Object Lock: nothing is written."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"plain-{uuid.uuid4().hex[:12]}"
    s3_server.create_bucket(bucket)
    for location in (tmp_path / "store", f"s3://{bucket}/base"):
        archive = MadeArchive(location)
        ship(archive, "t", 0, 10)
        refused = run(*CASE, "--url", archive.location, "--cluster", "prod")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert f"--lock: {archive.location} is no bucket of S3 with Object Lock" in refused.err
        assert read_holds(archive.store, archive.keys) == ()


def test_an_expired_hold_sets_no_further_legal_holds(tmp_path: Path) -> None:
    """A directory has none, so a request would be an error."""
    archive = MadeArchive(tmp_path / "store")
    ship(archive, "t", 0, 10)
    hold = Hold(name="case", reason="audit", topics=("t",), until=5000, lock=True)
    archive.store.put(archive.keys.hold("case"), hold.encode())
    assert repeat_legal_holds(archive.store, [archive.store], archive.keys, 5000) == 0
    assert repeat_legal_holds(archive.store, [archive.store], archive.keys, 4999) == 0  # it lists no versions
    with pytest.raises(OperatorError, match="legal holds are set in buckets of S3"):
        archive.store.set_legal_hold("a", "1", is_held=True)
