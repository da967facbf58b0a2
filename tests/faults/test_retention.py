"""`tsctl gc run` end to end: requests that fail, holds, locks, versions, stores without conditional deletes, clocks."""

import os
import re
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dev.local.kafka.cluster import wait_for
from dev.local.proxy.actions import Answer, LandLate, SwallowAnswer
from dev.local.proxy.s3 import Request, Rule, S3FaultProxy
from dev.local.stores.s3 import S3Server
from tests.made_archive import MadeArchive, batches
from tests.tsctl.gc.archives import GRACE, bases, later, names, ship, start_of
from tests.tsctl.running import Ended, Run, runner
from ts_common.archive.holds import Hold
from ts_common.archive.segment_inspection import metadata_of
from ts_common.errors import ObjectNotFound
from ts_common.log_format.scan import scan_segment
from ts_common.store import deletions
from ts_common.store.protection import HiddenBytes
from tsctl.gc import archive_run
from tsctl.gc.archive_run import begin
from tsctl.gc.policy_retention import PolicyRetention

DAY = 86_400_000
KEEPS_SEVEN = "max_size: 1KiB, confirm_small: true"  # segments of `ship`
POLICY = """
cluster: prod
grace: 1h
least_time: {least}
fuse: {{share: 100%}}
rules: [{{topics: .*, {rule}}}]
"""
MARKS = r"/log\.start$|/gc/log-start/"
UNTIL = datetime(2040, 1, 1, tzinfo=UTC)
ANY_TIMES = None


class Collector:
    """`tsctl gc run` with one policy on one archive.

    Args:
        run: runs a command line.
        archive: to collect.
        policy: path of its file.
    """

    def __init__(self, run: Run, archive: MadeArchive, policy: Path) -> None:
        self._run = run
        self._archive = archive
        self._policy = policy

    def __call__(self) -> Ended:
        ended = self._run(
            *("gc", "run", "--policy", self._policy, "--url", self._archive.location, "--cluster", "prod", "--json")
        )
        assert ended.out, ended.err
        return ended

    def log(self, ended: Ended) -> dict[str, str]:
        """Return the outcomes by name in the report of a run."""
        run = ended.lines[0]["run"]
        lines = self._run("gc", "log", run, "--url", self._archive.location, "--cluster", "prod").lines
        return {name: outcome for line in lines for name, _, _, outcome in line.get("objects", ())}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def use(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def policy_of(directory: Path, rule: str, least: str = "0s") -> Path:
    path = directory / "retention.yaml"
    path.write_text(POLICY.format(rule=rule, least=least))
    return path


def after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let later runs be an hour later; the clocks of stores cannot be moved."""
    monkeypatch.setattr(archive_run, "begin", lambda *arguments: begin(*arguments) + GRACE)


def below(archive: MadeArchive, end: int) -> set[str]:
    """Return the names of the segments' objects that end at or below an offset."""
    return {name for name in names(archive) if re.match(r"\d{20}\.", name) and int(name[:20]) + 10 <= end}


def hidden(archive: MadeArchive) -> HiddenBytes:
    """Return what the bucket keeps of deleted and overwritten objects."""
    found = archive.store.hidden_bytes(archive.partition("t").prefix)
    assert found is not None
    return found


def test_g04_each_error_of_many_deletes_is_read_and_the_next_run_repeats_them(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    """500, 503 and 403: all other objects of each chunk are deleted, each error is named, and nothing shows again."""
    monkeypatch.setattr(deletions, "DELETED_IN_A_ROW", 100)
    with S3FaultProxy(s3_server) as proxy, closing(s3_server.client()) as client:
        client.create_bucket(Bucket="many")
        use(monkeypatch, proxy.environment())
        archive = MadeArchive("s3://many/base")
        size = ship(archive, "t", 0, 210)
        keys = archive.partition("t")
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda at: archive.store.put(keys.gap(at, at + 1), b"{}"), range(200)))
        collect = Collector(run, archive, policy_of(tmp_path, f"max_size: {size * 10}, confirm_small: true"))
        assert collect().lines[0]["due_objects"] == 11 * 3 + 110
        indexes = {
            keys.prefix + f"{20:020d}{suffix}" for suffix in (".index", ".timeindex")
        }  # they stay with their .log
        failing = {keys.prefix + f"{20:020d}.log": 500, keys.gap(20, 21): 503, keys.gap(109, 110): 403}
        for key, status in failing.items():
            code = {500: "InternalError", 503: "SlowDown", 403: "AccessDenied"}[status]
            proxy.script(Rule(Answer(status, code), {"DELETE"}, re.escape(key), times=ANY_TIMES))
        after_the_grace(monkeypatch)
        failed = collect()
        assert failed.code == 1
        assert failed.lines[0]["deleted"] == {"removed": 11 * 3 + 110 - 5, "failed": 5}
        for key in failing:
            assert f"not deleted: {key}: " in failed.err
        left = {keys.prefix + name for name in names(archive)}
        assert left & {*failing, *(keys.prefix + name for name in below(archive, 110))} == indexes | failing.keys()
        assert {name for name, outcome in collect.log(failed).items() if outcome == "failed"} == {
            key.removeprefix(keys.prefix) for key in indexes | failing.keys()
        }
        assert start_of(archive) == 110
        proxy.clear()
        repeated = collect()  # also what is above the hole that the deletion left
        assert (repeated.code, repeated.lines[0]["deleted"]) == (0, {"removed": 5})
        assert not set(failing) & {keys.prefix + name for name in names(archive)}
        assert (bases(archive), start_of(archive)) == (list(range(110, 210, 10)), 110)
        archive.store.close()


def test_a_hold_that_is_set_during_a_deletion_ends_it_before_the_next_32_objects(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    """By another client, at the first delete. What is left is deleted after the hold, and never shows with a hole."""
    with S3FaultProxy(s3_server) as proxy, closing(s3_server.client()) as client:
        client.create_bucket(Bucket="held")
        use(monkeypatch, proxy.environment())
        archive = MadeArchive("s3://held/base")
        size = ship(archive, "t", 0, 300)
        hold = archive.keys.hold("case")
        collect = Collector(run, archive, policy_of(tmp_path, f"max_size: {size * 10}, confirm_small: true"))
        assert collect().lines[0]["due_objects"] == 20 * 3
        # S3 has the times of objects in seconds. An index without a `.log` is deleted if it is older than the release.
        newest = max(info.modified for info in archive.store.list())

        def is_later() -> bool:
            archive.store.put("clock", b"x")
            return archive.store.head("clock").modified > newest

        wait_for(is_later, "the store's next second")

        def set_hold(each: Request) -> None:
            if each.method == "DELETE":
                body = Hold(name="case", topics=("t",), reason="audit").encode()
                client.put_object(Bucket="held", Key=f"base/{hold}", Body=body)

        proxy.before(set_hold)
        after_the_grace(monkeypatch)
        ticks = count(0, 10)  # holds are read again after five seconds
        monkeypatch.setattr(archive_run, "PolicyRetention", partial(PolicyRetention, clock=lambda: float(next(ticks))))
        ended = collect()
        (left_out,) = ended.lines[0]["left_out"]
        assert (ended.code, left_out["why"], ended.lines[0]["deleted"]) == (0, "hold", {"removed": 32})
        assert (start_of(archive), len(below(archive, 200))) == (200, 60 - 32)
        proxy.clear()
        assert collect().lines[0]["deleted"] == {}
        assert start_of(archive) == 200
        archive.store.delete([hold])
        assert collect().lines[0]["deleted"] == {"removed": 60 - 32}
        assert bases(archive) == list(range(200, 300, 10))
        archive.store.close()


def test_a_lost_answer_to_a_write_of_log_start_or_its_copy_changes_nothing(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    """The run reads what it wrote: no write is repeated, and the grace begins as it would."""
    with S3FaultProxy(s3_server) as proxy, closing(s3_server.client()) as client:
        client.create_bucket(Bucket="lost")
        use(monkeypatch, proxy.environment())
        archive = MadeArchive("s3://lost/base")
        ship(archive, "t", 0, 100)
        collect, lost = Collector(run, archive, policy_of(tmp_path, KEEPS_SEVEN)), SwallowAnswer()
        proxy.script(Rule(lost, {"PUT"}, MARKS, times=ANY_TIMES))
        assert (collect().code, lost.fired, start_of(archive)) == (0, 2, 30)
        after_the_grace(monkeypatch)
        ended = collect()
        assert (ended.code, ended.lines[0]["deleted"], lost.fired) == (0, {"removed": 9}, 4)
        assert bases(archive) == list(range(30, 100, 10))
        archive.store.close()


@pytest.mark.parametrize(
    ("at", "deletes"), [(0, 2), (1, 1), (2, 2), (3, 2)], ids=["hides", "begins the grace", "copies the floor", "floor"]
)
def test_a_write_that_lands_after_the_run_ended_is_continued_by_the_next_one(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run, at: int, deletes: int
) -> None:
    """Of log.start or its copy. Records that it hides get a grace, nothing is deleted before the floor rose."""
    bucket = f"late-{at}"
    with S3FaultProxy(s3_server) as proxy, closing(s3_server.client()) as client:
        client.create_bucket(Bucket=bucket)
        use(monkeypatch, proxy.environment())
        archive = MadeArchive(f"s3://{bucket}/base")
        ship(archive, "t", 0, 100)
        collect, late = Collector(run, archive, policy_of(tmp_path, KEEPS_SEVEN)), LandLate()
        proxy.script(Rule(late, {"PUT"}, MARKS, skip=at))
        for number in range(3):
            ended = collect()
            if late.fired and not late.outcomes:
                assert ended.lines[0]["deleted"] == {}
                assert [each["why"] for each in ended.lines[0]["left_out"]] == ["changed meanwhile"]
                late.release()
                wait_for(lambda: late.outcomes, "the write to land", 30)
                assert late.outcomes == (200,)
            assert ended.code == 0
            assert ended.lines[0]["deleted"] == ({"removed": 9} if number == deletes else {})
            assert start_of(archive) == 30
            after_the_grace(monkeypatch)
        assert bases(archive) == list(range(30, 100, 10))
        archive.store.close()


def test_locked_objects_stay_visible_and_the_others_become_versions(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run
) -> None:
    """No delete marker hides a retained or held segment or its indexes; a later run deletes them once it ended."""
    use(monkeypatch, s3_server.environment())
    bucket = "locked"
    client: Any = s3_server.client()
    with closing(client):
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        archive = MadeArchive(f"s3://{bucket}/base")
        ship(archive, "t", 0, 100)
        prefix = f"base/{archive.partition('t').prefix}"
        retained, held = f"{0:020d}.log", f"{10:020d}.log"
        retention = {"Mode": "COMPLIANCE", "RetainUntilDate": UNTIL}
        client.put_object_retention(Bucket=bucket, Key=prefix + retained, Retention=retention)
        client.put_object_legal_hold(Bucket=bucket, Key=prefix + held, LegalHold={"Status": "ON"})
        collect = Collector(run, archive, policy_of(tmp_path, KEEPS_SEVEN))
        assert collect().lines[0]["due_objects"] == 9
        before = hidden(archive)  # of log.start, which the next run writes again
        due = below(archive, 30)
        after_the_grace(monkeypatch)
        ended = collect()
        assert ended.code == 0
        assert ended.lines[0]["deleted"] == {"removed": 3, "locked": 6}
        kept = {name for name in due if name[:20] in {retained[:20], held[:20]}}
        assert {name for name, outcome in collect.log(ended).items() if outcome == "locked"} == kept
        assert below(archive, 30) == kept
        versions = client.list_object_versions(Bucket=bucket, Prefix=prefix)
        assert {each["Key"] for each in versions["DeleteMarkers"]} == {prefix + name for name in due - kept}
        after = hidden(archive)
        assert (after.objects - before.objects, after.markers) == (3 + 1, 3)
        client.put_object_legal_hold(Bucket=bucket, Key=prefix + held, LegalHold={"Status": "OFF"})
        assert collect().lines[0]["deleted"] == {"removed": 3, "locked": 3}
        assert below(archive, 30) == {name for name in due if name[:20] == retained[:20]}
        assert start_of(archive) == 30
        archive.store.close()


@pytest.mark.parametrize("condition", ["rejected", "ignored"])
def test_a_store_without_conditional_deletes_keeps_what_was_overwritten(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run, condition: str
) -> None:
    """A HEAD precedes each delete: an object that is overwritten after the listing stays, and a later run deletes it.

    The bucket of the second store has versions: each deleted object becomes one, behind a delete marker.
    """
    server: Any = request.getfixturevalue("s3_server" if condition == "rejected" else "moto_server")
    bucket = f"plain-{uuid.uuid4().hex[:12]}"
    with closing(server.client()) as client, S3FaultProxy(server) as proxy:
        client.create_bucket(Bucket=bucket)
        if condition == "ignored":
            client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        use(
            monkeypatch,
            {**server.environment(), "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_ENDPOINT_URL_S3": proxy.endpoint},
        )
        archive = MadeArchive(f"s3://{bucket}/base")
        ship(archive, "t", 0, 100)
        prefix = archive.partition("t").prefix
        late = f"{20:020d}.index"
        collect = Collector(run, archive, policy_of(tmp_path, KEEPS_SEVEN))
        assert collect().lines[0]["due_objects"] == 9
        if condition == "rejected":
            answer = Answer(501, "NotImplemented")
            proxy.script(Rule(answer, {"DELETE"}, when=lambda each: "if-match" in each.headers, times=ANY_TIMES))

        def overwrite(each: Request) -> None:
            """Write after the partition was listed, when a `.log` is deleted; its indexes follow."""
            if each.method == "DELETE" and each.path.endswith(f"{10:020d}.log"):
                client.put_object(Bucket=bucket, Key=f"base/{prefix}{late}", Body=b"written during the deletion")

        proxy.before(overwrite)
        after_the_grace(monkeypatch)
        ended = collect()
        assert ended.lines[0]["deleted"] == {"removed": 8, "kept": 1}
        assert collect.log(ended)[late] == "kept"
        assert below(archive, 30) == {late}
        assert archive.store.get(prefix + late)[0] == b"written during the deletion"
        heads = [each for each in proxy.requests() if each.method == "HEAD" and each.path.endswith(late)]
        assert heads
        with pytest.raises(ObjectNotFound):
            archive.store.head(f"{prefix}{0:020d}.log")
        assert hidden(archive).markers == (8 if condition == "ignored" else 0)
        archive.store.close()


_Segment = tuple[int | None, int | None, int]
CLOCKS: dict[
    str, tuple[list[_Segment], int]
] = {  # for each partition, its segments: timestamp, shipping, and time of the object, days ago; offsets that stay
    "records of 2099": ([(-26_000, 40, 40), (-26_000, 35, 35), (-26_000, 20, 20), (-26_000, 1, 1)], 20),
    "2099, without the time of shipping": ([(-26_000, None, 40), (-26_000, None, 20), (-26_000, None, 1)], 10),
    "without timestamps": ([(None, 40, 40), (None, 20, 20), (None, 1, 1)], 10),
    "a backfill": ([(9_000, 40, 40), (9_000, 8, 8), (9_000, 3, 3), (9_000, 1, 1)], 20),
    "copied yesterday": ([(400, 400, 1), (390, 390, 1), (1, 1, 1)], 0),
    "shipped by a clock that was ahead": ([(400, -300, 40), (390, 20, 40), (1, 1, 1)], 0),
    "a young one below old ones": ([(400, 400, 400), (20, 20, 20), (400, 400, 400), (1, 1, 1)], 10),
}


def test_g02_no_clock_makes_younger_records_due(tmp_path: Path, run: Run) -> None:
    """By max_age 30d and least_time 7d, records of any timestamp stay until they are due, and are deleted then."""
    archive = MadeArchive(tmp_path / "bucket")
    now = int(time.time() * 1000)
    for partition, (segments, _) in enumerate(CLOCKS.values()):
        for at, (timestamp, shipped, stored) in enumerate(segments):
            base = at * 10
            log = batches((base, base + 10), time=-1 - base if timestamp is None else now - timestamp * DAY)
            metadata = metadata_of(scan_segment(BytesIO(log), len(log)), base, "t")
            metadata = replace(metadata, shipped=None if shipped is None else now - shipped * DAY)
            if timestamp is None:
                metadata = replace(metadata, time_max=None, time_min=None)
            key = archive.partition("t", partition).prefix + f"{base:020d}.log"
            archive.store.put(key, log, metadata=metadata.encode())
            os.utime(tmp_path / "bucket" / key, (now / 1000, now / 1000 - stored * 86_400))
        end = len(segments) * 10
        archive.commit("t", end, partition=partition, highest_base=end - 10)
    collect = Collector(run, archive, policy_of(tmp_path, "max_age: 30d", least="7d"))
    found = collect()
    assert (found.code, found.lines[0]["left_out"]) == (0, [])
    expected = {name: stays for name, (_, stays) in CLOCKS.items()}
    assert {name: start_of(archive, partition=at) for at, name in enumerate(CLOCKS)} == expected
    later(archive, GRACE)
    assert collect().code == 0
    assert {name: bases(archive, partition=at) for at, name in enumerate(CLOCKS)} == {
        name: list(range(stays, len(segments) * 10, 10)) for name, (segments, stays) in CLOCKS.items()
    }
