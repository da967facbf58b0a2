"""A run of `tsctl gc` in a bucket with object lock: locked objects stay visible, and the run lists them."""

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import bases, keep_last, names, run_in, ship, start_of
from ts_common.store.protection import HiddenBytes
from tsctl.gc.archive_run import LocationResult, fields_of
from tsctl.gc.objects import Outcome
from tsctl.gc.report import read_report

PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def locked(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str, MadeArchive]]:
    """Return a client, a bucket with object lock, and an archive in it."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"gc-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        archive = MadeArchive(f"s3://{bucket}/base")
        with closing(archive.store):
            yield client, bucket, archive


def collect(archive: MadeArchive, segments: int, size: int) -> LocationResult:
    """Run once without a grace, so that so many segments stay."""
    return run_in(archive.store, archive, keep_last(segments, size), grace=0)


def lock(client: Any, bucket: str, archive: MadeArchive, held: set[str]) -> None:
    """Lock objects; the others have a lock that has ended, because moto answers 500 without one."""
    prefix = archive.partition("t").prefix
    for name in names(archive):
        client.put_object_retention(
            Bucket=bucket,
            Key=f"base/{prefix}{name}",
            Retention={"Mode": "COMPLIANCE", "RetainUntilDate": FUTURE if name in held else PAST},
        )


def test_locked_objects_stay_and_are_listed_with_the_reason(locked: tuple[Any, str, MadeArchive]) -> None:
    """DELETE would answer 204 and hide them. The others are deleted, except the indexes of a `.log` that stays."""
    client, bucket, archive = locked
    size = ship(archive, "t", 0, 50)
    prefix, held = archive.partition("t").prefix, {f"{0:020}.log", f"{10:020}.index"}
    lock(client, bucket, archive, held)
    held |= {f"{0:020}.index", f"{0:020}.timeindex"}
    assert collect(archive, 2, size).report.did["hidden"] == 1
    result = collect(archive, 2, size)
    assert result.report.outcomes == {Outcome.LOCKED: len(held), Outcome.REMOVED: 5}
    assert bases(archive) == [0, 30, 40]
    assert start_of(archive) == 30
    assert held <= set(names(archive))
    report = list(read_report(archive.store, archive.keys, result.report.run))
    assert json.dumps(report).count('"locked"') == len(held)
    (deleted,) = (line for line in report if line.get("did") == "deleted")
    assert deleted["retained"] == "retained until 2100-01-01 00:00:00 UTC (COMPLIANCE)"
    assert not result.is_finding
    assert fields_of(result)["locked_until"] == "2100-01-01T00:00:00.000Z"
    hidden = archive.store.hidden_bytes(prefix)
    assert hidden is not None
    assert (hidden.objects, hidden.markers) == (5 + 2, 5)  # and two former contents of log.start
    assert archive.store.hidden_bytes(f"{prefix}{0:020}.log") == HiddenBytes(0, 0, 0)
    for _ in range(2):  # what is locked neither shows again, nor stops anything
        assert set(collect(archive, 2, size).report.outcomes) == {Outcome.LOCKED}
        assert start_of(archive) == 30
