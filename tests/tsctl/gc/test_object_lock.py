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
from tests.tsctl.gc.archives import NO_FUSE, bases, keep_last, names, ship, start_of
from ts_common.archive.commit import LogStart
from ts_common.archive.gc_plans import planned_log_starts
from ts_common.archive.gc_runs import list_runs
from ts_common.store.protection import HiddenBytes
from tsctl.gc.archive_run import locked_by
from tsctl.gc.deletion_log import Outcome, read_log
from tsctl.gc.run import RunResult, Settings, run_once, store_time

PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
NO_GRACE = Settings(0, NO_FUSE, {"rules": []})


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


def collect(archive: MadeArchive, segments: int, size: int) -> RunResult:
    """Run once, so that so many segments stay."""
    now = store_time(archive.store, archive.keys)
    return run_once(
        archive.store,
        archive.keys,
        lambda _: True,
        keep_last(segments, size),
        NO_GRACE,
        now,
        locked=locked_by(archive.store, now),
    )


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
    """DELETE would answer 204 and hide them. The others are deleted; bytes of both stay, and are counted."""
    client, bucket, archive = locked
    size = ship(archive, "t", 0, 50)
    prefix, held = archive.partition("t").prefix, {f"{0:020}.log", f"{10:020}.index"}
    lock(client, bucket, archive, held)
    assert collect(archive, 2, size).planned is not None
    result = collect(archive, 2, size)
    assert result.deleted is not None
    assert result.deleted.objects[Outcome.LOCKED] == len(held)
    assert result.deleted.objects[Outcome.REMOVED] == 7
    assert bases(archive) == [0, 30, 40]
    assert start_of(archive) == 30
    assert held <= set(names(archive))
    (done,) = (run for run in list_runs(archive.store, archive.keys) if run.done)
    assert json.dumps(list(read_log(archive.store, done))).count('"locked"') == len(held)
    hidden = archive.store.hidden_bytes(prefix)
    assert hidden is not None
    assert (hidden.objects, hidden.markers) == (7 + 1, 7)  # and the former log.start
    assert archive.store.hidden_bytes(f"{prefix}{0:020}.log") == HiddenBytes(0, 0, 0)


def test_a_log_start_that_is_lost_above_locked_objects_is_found_in_the_newest_plan(
    locked: tuple[Any, str, MadeArchive],
) -> None:
    """The lowest stored base would be below a hole. What stays below `log.start` is in each later plan."""
    client, bucket, archive = locked
    size = ship(archive, "t", 0, 50)
    lock(client, bucket, archive, {f"{0:020}.log"})
    for _ in range(8):  # a plan ends after two runs if its objects cannot be deleted
        collect(archive, 2, size)
    assert bases(archive) == [0, 30, 40]
    assert len([run for run in list_runs(archive.store, archive.keys) if run.planned is not None]) > 2
    plans = planned_log_starts(archive.store, archive.partition("t"), archive.keys)
    assert {each.content for each in plans} == {LogStart(30)}
