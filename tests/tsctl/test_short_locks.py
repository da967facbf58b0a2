"""An agent, retention and a repair in a bucket with Object Lock, with locks of seconds, until the locks end."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.tsctl.gc.archives import keep_last
from tests.tsctl.running import Run
from tests.tsctl.seal.sealed import Keys, verify_folder
from tests.tsctl.short_locks import SECONDS, ShortLocks
from tests.uploader.beside import PREFIX, Archive, archives
from tests.uploader.produced import records
from ts_common.archive.catalog import read_catalog
from ts_common.store.contract import ObjectVersion
from tsctl.gc.archive_run import LocationResult, begin, delete_old, work_in
from tsctl.gc.incarnations import read_topic_incarnations
from tsctl.gc.objects import Outcome
from tsctl.gc.policy import Fuse, OwnObjects
from tsctl.gc.report import Report
from tsctl.gc.run import run_once

TOPIC = "short-locks"
BUCKET = "short-locks"


class Bucket:
    """The bucket of an archive."""

    def __init__(self, client: Any, archive: Archive) -> None:
        self._client = client
        self._archive = archive
        self._base = archive.location.removeprefix(f"s3://{BUCKET}/")

    def versions(self, prefix: str = "") -> list[ObjectVersion]:
        found = self._archive.store.versions(prefix)
        assert found is not None
        return [each for each in found if not each.is_delete_marker]

    def lock_mode(self, version: ObjectVersion) -> str | None:
        """Return the mode of a version's retention; None without one."""
        mode: str | None = self._head(version).get("ObjectLockMode")
        return mode

    def lock_end(self, version: ObjectVersion) -> float:
        """Return when a version's retention ends, in seconds since the epoch."""
        end: float = self._head(version)["ObjectLockRetainUntilDate"].timestamp()
        return end

    def _head(self, version: ObjectVersion) -> Any:
        key = f"{self._base}/{version.info.key}"
        return self._client.head_object(Bucket=BUCKET, Key=key, VersionId=version.id)

    def delete(self, version: ObjectVersion) -> None:
        key = f"{self._base}/{version.info.key}"
        self._client.delete_object(Bucket=BUCKET, Key=key, VersionId=version.id, BypassGovernanceRetention=True)


@pytest.fixture
def archive(one_broker: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """Ship a topic, by an agent whose puts are locked for seconds."""
    assert one_broker.s3 is not None
    for name, value in one_broker.s3.environment().items():
        monkeypatch.setenv(name, value)
    with closing(one_broker.s3.client()) as client:
        client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    one_broker.create_topic(TOPIC, config={"segment.bytes": "20000"})
    one_broker.produce(TOPIC, records(2000), partition=0)
    url = f"s3://{BUCKET}/{tmp_path.name}"
    provider = f"{ShortLocks.__module__}:{ShortLocks.__qualname__}"
    properties = {"storage.service.endpoint.provider.class": provider, "storage.service.endpoint.url": url}
    with archives(one_broker, tmp_path) as archive_of:
        made = archive_of(TOPIC, properties={**properties, PREFIX + "tail.interval.ms": "200"})
        made.location = url
        made.agent()
        made.wait_until_shipped()
        yield made


def collector(archive: Archive) -> Callable[[int], LocationResult]:
    """Return a run of retention without a grace, as that of `tsctl gc run`, so that so many bytes stay."""

    def collect(size: int) -> LocationResult:
        store, keys = archive.store, archive.keys
        result = LocationResult(store.location, Report())
        with result.report.writing(store, keys):
            now = begin(store, keys, result.report)
            work = work_in(store, keys, keep_last(1, size), now, 0, result.report)
            incarnations = read_topic_incarnations(store, keys, lambda _: True, result.report.skip)
            run_once(work, incarnations, Fuse.model_validate({"share": "100%"}), found=result.found)
            result.old = delete_old(store, keys, OwnObjects.model_validate({}), now, work.locked)
        return result

    return collect


@pytest.mark.full  # the locks end on the store's clock: half a minute of waiting, with a cluster
def test_an_agent_retention_and_a_repair_run_with_locks_until_these_end(
    one_broker: LocalCluster, archive: Archive, run: Run
) -> None:
    """Archived objects alone are locked; what is locked stays, and no run fails; later the same run deletes it."""
    assert one_broker.s3 is not None
    keys = archive.partition_keys()
    with closing(one_broker.s3.client()) as client:
        bucket = Bucket(client, archive)
        modes = {version.info.key: bucket.lock_mode(version) for version in bucket.versions()}
        archived = {key for key in modes if key.endswith((".log", "index"))}
        assert {key for key, mode in modes.items() if mode == "COMPLIANCE"} == archived | {"ts-uploader~probe"}
        assert any("/tail/" in key for key in modes)
        sealer = Keys(archive.config)
        sealing = ("seal", "run", "--key", sealer.private, "--config", archive.config, "--json")
        first_seal = run(*sealing)
        assert (first_seal.code, first_seal.err) == (0, "")
        segments = read_catalog(archive.store, keys).segments
        size = sum(segment.size for segment in segments[-3:])
        collect = collector(archive)
        assert collect(size).report.did["hidden"] == 1
        locked = collect(size)
        assert set(locked.report.outcomes) == {Outcome.LOCKED}
        assert locked.report.locked_until is not None
        assert not locked.is_finding
        (first,) = [v for v in bucket.versions(keys.segment(segments[-2].name)) if v.info.key.endswith(".log")]
        with pytest.raises(ClientError, match="AccessDenied"):
            bucket.delete(first)
        archive.store.delete([first.info.key])  # hidden behind a marker
        repaired = run("repair", TOPIC, "--config", archive.config, "--wait", "0s", "--json")
        assert repaired.code == 0, repaired.err
        again = bucket.versions(first.info.key)
        assert [bucket.lock_mode(version) for version in again] == [None, "COMPLIANCE"]  # tsctl sets no lock
        verified = run("verify", TOPIC, "--config", archive.config, "--depth", "full", "--json")
        assert verified.code == 0, verified.out
        until = max(locked.report.locked_until, bucket.lock_end(first))  # it was put after what retention removes

        def are_over() -> bool:
            archive.store.head(keys.commit)  # its response has the store's time
            return archive.store.current_time() > until

        wait_for(are_over, "the end of the locks", 3 * SECONDS)
        ended = collect(size)
        assert set(ended.report.outcomes) == {Outcome.REMOVED}
        assert ended.report.outcomes.total() == locked.report.outcomes.total()
        bucket.delete(first)
        left_logs = read_catalog(archive.store, keys).segments
    again_sealed = run(*sealing)
    (store,) = again_sealed.document["stores"]
    assert (again_sealed.code, store["explained"], store["left_out"]) == (0, len(segments) - len(left_logs), [])
    public = ("--public-key", sealer.public, "--config", archive.config)
    assert run("verify", TOPIC, "--sealed", "--depth", "full", *public).code == 0
    assert run("prove", archive.config / "proof", "--topic", TOPIC, *public).code in {0, 1}  # offsets were deleted
    code, said = verify_folder(archive.config / "proof", "--public-key", sealer.public)
    assert (code, "RIGHT: " in said) == (0, True), said
    left = archive.read()
    assert left == archive.oracle(end=archive.next_offset())[-len(left) :]
