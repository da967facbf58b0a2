"""`tsctl repair` over a bucket with versions: what it puts back itself, and what it requests."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.running import Run, runner
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.lineage import Lineage
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import (
    Damage,
    Outcome,
    RepairAnswer,
    answer_key,
    decode_request,
    request_key,
    unanswered,
)
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import SegmentChanged
from ts_local.stores.moto import MotoServer
from ts_local.waiting import wait_for
from tsctl.exit_codes import ExitCode
from tsctl.repair.from_versions import PartitionVersions
from tsctl.repair.needs import Need

SHIPPED = "1700000000000"
EPOCH = 4


class Versioned:
    """An archive of segments `[0, 100) [100, 200) [200, 300)` of `t-0`, as shipped, in a bucket with versions."""

    def __init__(self, location: str, run: Run) -> None:
        self.made = MadeArchive(location)
        self.store = self.made.store
        self.keys = self.made.partition("t")
        self._run = run
        for base in (0, 100, 200):
            self.made.put_segment("t", base, batches(*steps(base, base + 100), epoch=EPOCH), index=b"", timeindex=b"")
            key = self.key(base)
            self.store.put(key, self.store.get(key)[0], metadata={**self.metadata(key), "ts-shipped": SHIPPED})
        self.made.commit("t", 300, epochs=((EPOCH, 0),), highest_base=200)

    def key(self, base: int, suffix: str = ".log") -> str:
        return self.keys.segment(SegmentName(base), suffix)

    def metadata(self, key: str) -> dict[str, str]:
        return dict(self.store.head(key).metadata)

    def damage(self, key: str) -> None:
        data = self.store.get(key)[0]
        self.store.put(key, data[:-1] + bytes([data[-1] ^ 1]), metadata=self.metadata(key))

    def tsctl(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        place = ("--url", self.made.location, "--cluster", "prod", "--entropy-bits", "0")
        ended = self._run(command, *place, "--depth", "full", "--json", *arguments)
        return ended.code, json.loads(ended.out)

    def repair(self, *arguments: str) -> tuple[int, list[tuple[str, int, int, list[str]]]]:
        """The code, and of each repair its status, range and the names of its objects."""
        code, document = self.tsctl("repair", *(() if "--wait" in arguments else ("--wait", "0s")), *arguments)
        names = [[key.removeprefix(self.keys.prefix)[18:] for key in each["objects"]] for each in document["repairs"]]
        rows = [(each["status"], each["from"], each["to"]) for each in document["repairs"]]
        return code, [(*row, name) for row, name in zip(rows, names, strict=True)]

    def answered(self, content: bytes) -> tuple[int, list[tuple[str, int, int, list[str]]]]:
        """As `repair` of one range, with this answer of an agent."""

        def answer() -> None:
            wait_for(self.requests, "a request", 30)
            (id_,) = self.requests()
            self.store.put(answer_key(self.made.keys, id_), content)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(answer)
            found = self.repair("--no-versions", "--wait", "30s")
            done.result()
        return found

    def assert_whole(self) -> None:
        code, document = self.tsctl("verify")
        assert (code, {each["severity"] for each in document["findings"]} - {"information"}) == (0, set())

    def requests(self) -> list[str]:
        return [id_ for id_, _ in unanswered(self.store, self.made.keys)]


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


def test_earlier_versions_are_put_back_without_an_agent(versioned: Versioned) -> None:
    """A deleted segment with its indexes, a damaged one, and a deleted index; all keep the time of shipping."""
    deleted = [versioned.key(0, suffix) for suffix in (".log", ".index", ".timeindex")]
    versioned.store.delete([*deleted, versioned.key(200, ".index")])
    versioned.damage(versioned.key(100))
    before = sorted(info.key for info in versioned.store.list())
    assert versioned.repair("--dry-run")[0] == ExitCode.FOUND
    assert sorted(info.key for info in versioned.store.list()) == before
    code, rows = versioned.repair()
    metadata = decode_metadata(versioned.metadata(versioned.key(100)), "k")
    assert metadata is not None
    crc = metadata.crc32c
    variant = f"00.e{EPOCH}.{crc:08x}.log"
    assert (code, rows) == (
        ExitCode.FINE,
        [
            ("repaired", 0, 100, ["00.log"]),
            ("repaired", 100, 200, [variant]),
            ("repaired", 200, 300, ["00.index"]),
        ],
    )
    good = versioned.keys.segment(SegmentName(100, EPOCH, crc))
    assert versioned.metadata(good)["ts-replaces"] == SegmentName(100).stem
    assert {versioned.metadata(key)["ts-shipped"] for key in (versioned.key(0), good)} == {SHIPPED}
    versioned.assert_whole()
    assert versioned.requests() == []
    versioned.damage(good)
    assert versioned.repair() == (ExitCode.FINE, [("repaired", 100, 200, [variant.replace(".log", ".r1.log")])])
    versioned.assert_whole()
    assert versioned.repair() == (ExitCode.FINE, [])


def test_below_the_highest_of_the_lineage_an_earlier_version_gets_a_variants_name(versioned: Versioned) -> None:
    """A deletion plan of the earlier lineage can still name the plain one."""
    commit = Commit(200, 300, EPOCH, EpochHistory(((EPOCH, 0),)), 300, None, 1, 0, "n", lineage=Lineage(EPOCH, 50, 150))
    versioned.store.put(versioned.keys.commit, commit.encode())
    versioned.store.put(versioned.keys.log_start, LogStart(0, commit.lineage).encode())
    versioned.store.delete([versioned.key(100), versioned.key(200)])
    code, rows = versioned.repair()
    assert code == ExitCode.FINE
    assert [names[0][:5] for _, _, _, names in rows] == ["00.e4", "00.lo"]
    versioned.assert_whole()


def test_a_lineage_that_begins_while_a_version_is_read_ends_the_repair(versioned: Versioned) -> None:
    """A name that was allowed at its start may be one of a deletion plan by now: nothing is put."""
    versioned.store.delete([versioned.key(100)])
    before = sorted(info.key for info in versioned.store.list())
    catalog = read_catalog(versioned.store, versioned.keys)
    commit = catalog.commit
    assert isinstance(commit, Commit)
    versions = PartitionVersions(versioned.store, catalog, commit, dry_run=False)
    versioned.store.put(versioned.keys.commit, replace(commit, lineage=Lineage(EPOCH, 50, 300)).encode())
    with pytest.raises(SegmentChanged, match="run tsctl repair again"):
        versions.restore(Need(100, 200, Damage.MISSING, None))
    logs = [key for key in before if key.endswith(".log")]
    assert [info.key for info in versioned.store.list() if info.key.endswith(".log")] == logs


def test_what_no_version_has_is_requested_once(versioned: Versioned) -> None:
    """The version is damaged too, or versions are not to be used. A later run waits for the same request."""
    key = versioned.key(100)
    versioned.damage(key)
    versioned.store.delete([key])
    code, rows = versioned.repair()
    assert (code, rows[0][:3]) == (ExitCode.FINE, ("repaired", 100, 200))  # the version before the damage
    versioned.store.delete([versioned.key(200)])
    for _ in range(2):
        assert versioned.repair("--no-versions") == (ExitCode.TRY_AGAIN, [("waiting", 200, 300, [])])
    (id_,) = versioned.requests()
    request = decode_request(versioned.store.get(request_key(versioned.made.keys, id_))[0], "k", id_)
    assert (str(request.partition), request.start, request.end, request.key) == ("t-0", 200, 300, None)
    assert "@" in request.by


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (RepairAnswer(Outcome.REPAIRED, "why", ("a.log",), 3, 1).encode(), "repaired", ExitCode.FINE),
        (RepairAnswer(Outcome.IMPOSSIBLE, "below the log start", (), 3, 1).encode(), "impossible", ExitCode.FOUND),
        (b"\xff{", "impossible", ExitCode.FOUND),
        (b'{"version":99}', "impossible", ExitCode.FOUND),
    ],
)
def test_an_answer_decides_the_exit_code(versioned: Versioned, content: bytes, status: str, expected: ExitCode) -> None:
    """Also a malformed one, which is no traceback. A second run does not wait for a request that has an answer."""
    versioned.store.delete([versioned.key(200)])
    code, rows = versioned.answered(content)
    assert (code, [row[:3] for row in rows]) == (expected, [(status, 200, 300)])
    assert versioned.repair("--no-versions")[0] == ExitCode.TRY_AGAIN


@pytest.mark.parametrize(("is_damaged", "expected"), [(True, ExitCode.FOUND), (False, ExitCode.FINE)])
def test_nothing_to_do_for_a_damaged_object_leaves_a_finding(
    versioned: Versioned, *, is_damaged: bool, expected: ExitCode
) -> None:
    """Code 0 would end a script that repairs until nothing is left, while readers lose records."""
    if is_damaged:
        versioned.damage(versioned.key(200))
    else:
        versioned.store.delete([versioned.key(200)])
    content = RepairAnswer(Outcome.NOTHING_TO_DO, "it is whole", (), 3, 1).encode()
    assert versioned.answered(content) == (expected, [("nothing-to-do", 200, 300, [])])


@pytest.mark.parametrize("wait", ["2", "m", "-1s", "2 days", "1e3s"])
def test_a_wait_that_is_no_time_is_refused(wait: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before anything is read."""
    ended = runner(capfd)("repair", "--url", tmp_path.as_uri(), "--cluster", "prod", "--wait", wait)
    assert (ended.code, "--wait" in ended.err) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize("command", ["repair", "verify"])
def test_a_partition_that_the_archive_lacks_is_refused(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A mistyped number would end as a clean archive otherwise."""
    made = MadeArchive(tmp_path / "store")
    made.put_segment("t", 0, batches((0, 10)), index=b"", timeindex=b"")
    made.commit("t", 10, highest_base=0)
    place = ("--url", made.location, "--cluster", "prod", "--entropy-bits", "0")
    assert runner(capfd)(command, *place, "t", "-p", "0").code == ExitCode.FINE
    ended = runner(capfd)(command, *place, "t", "-p", "0,9999999999")
    assert ended.code == ExitCode.REFUSED
    assert "the store has no partition 9999999999 of topic t; it has 0" in ended.err


def test_what_a_repair_cannot_fix_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A partition without a commit, in a store without versions: nothing is requested."""
    made = MadeArchive(tmp_path / "store")
    made.put_segment("t", 0, batches((0, 10)), index=b"", timeindex=b"")
    place = ("--url", made.location, "--cluster", "prod", "--entropy-bits", "0", "--in-flight-hours", "0")
    ended = runner(capfd)("repair", *place)
    assert ended.code == ExitCode.FOUND
    assert "no-commit of t-0 needs a repair by hand" in ended.out
    made.commit("t", 20, highest_base=0)
    ended = runner(capfd)("repair", *place, "--dry-run")
    assert ended.code == ExitCode.FOUND
    assert "a request to the agent of the leader" in ended.out
    assert list(unanswered(made.store, made.keys)) == []
