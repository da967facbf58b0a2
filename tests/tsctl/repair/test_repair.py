"""`tsctl repair` over a bucket with versions: what it puts back itself, and what it requests."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.repair.versioned import EPOCH, SHIPPED, Versioned, versions_of
from tests.tsctl.running import Run, runner
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import Damage, Outcome, RepairAnswer, RepairRequest, request_key, unanswered
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.errors import SegmentChanged
from tsctl.exit_codes import ExitCode
from tsctl.repair.needs import Need
from tsctl.verify.finding_kinds import INDEX_WRONG


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


def test_lost_metadata_is_put_back_from_an_earlier_version(versioned: Versioned) -> None:
    """An object was copied without it. Readers read one that never had any; no agent gets a request for that."""
    key = versioned.key(100)
    before = versioned.metadata(key)
    versioned.store.put(key, versioned.store.get(key)[0])
    for suffix, data in ((".log", batches(*steps(300, 400), epoch=EPOCH)), (".index", b""), (".timeindex", b"")):
        versioned.store.put(versioned.key(300, suffix), data)
    versioned.made.commit("t", 400, epochs=((EPOCH, 0),), highest_base=300)
    good = SegmentName(100, EPOCH, int(before["ts-crc32c"], 16))
    code, rows = versioned.repair()
    assert (code, rows) == (
        ExitCode.FOUND,
        [("repaired", 100, 200, [f"{good.stem[18:]}.log"]), ("impossible", 300, 400, [])],
    )
    assert versioned.metadata(versioned.keys.segment(good)) == {**before, "ts-replaces": SegmentName(100).stem}
    assert versioned.requests() == []
    assert [row[:2] for row in versioned.repair()[1]] == [("impossible", 300)]


def test_the_metadata_of_a_copied_directory_is_bound_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`cp -a` gives each file another inode: the end of a compacted one is a hole. What fits no bytes stays."""
    made = MadeArchive(tmp_path / "store")
    for base, low, end in ((0, 10, 10), (10, 15, 30), (30, 40, 40)):
        made.put_segment("t", base, batches((base, low)), end=end, index=b"", timeindex=b"")
    made.commit("t", 40, highest_base=30)
    copy = MadeArchive(shutil.copytree(tmp_path / "store", tmp_path / "copy"))
    keys = [copy.partition("t").segment(SegmentName(base)) for base in (0, 10, 30)]
    (tmp_path / "copy" / keys[2]).write_bytes(batches((30, 40), value=b"other"))
    place = ("--url", copy.location, "--cluster", "prod", "--entropy-bits", "0", "--json")
    run = runner(capfd)
    found = run("verify", *place).document["findings"]
    lacks = [
        ("metadata-missing", base, "the directory was copied: its metadata has another inode") for base in (0, 10, 30)
    ]
    assert [(each["code"], each["from"], each["detail"]) for each in found if each["code"] != "hole"] == lacks
    assert [(each["from"], each["to"]) for each in found if each["code"] == "hole"] == [(15, 30)]
    run("repair", *place, "--dry-run")
    assert copy.store.head(keys[0]).metadata == {}
    rows = run("repair", *place, "--wait", "0s").document["repairs"]
    assert [(each["from"], each["status"]) for each in rows] == [
        (0, "repaired"),
        (10, "repaired"),
        (30, "impossible"),
        (15, "repaired"),
    ]
    assert [copy.store.head(key).metadata for key in keys] == [*(made.store.head(key).metadata for key in keys[:2]), {}]
    assert [(each["code"], each["from"]) for each in run("verify", *place).document["findings"]] == [lacks[2][:2]]


@pytest.mark.parametrize("command", ["verify", "repair --wait 0s", "gaps", "ls --level segments"])
def test_keys_are_printed_as_the_bucket_has_them(versioned: Versioned, run: Run, command: str) -> None:
    """An operator pastes them into `aws s3api list-object-versions --prefix`."""
    versioned.store.delete([versioned.keys.log_start, versioned.key(100, ".index")])
    place = ("--url", versioned.made.location, "--cluster", "prod", "--entropy-bits", "0")
    for form in ((), ("--json",)):
        ended = run(*command.split(), *place, *form)
        assert set(re.findall(r'([^\s"]*)prod/t-0/', ended.out + ended.err)) == {"base/"}, ended


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
    versions = versions_of(versioned.store, catalog)
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
    request = RepairRequest.decode(versioned.store.get(request_key(versioned.made.keys, id_))[0], "k", id=id_)
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


def test_an_interrupted_wait_names_the_requests_that_remain(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents still answer them, and a later run waits for the same ones."""
    made = MadeArchive(tmp_path / "store")
    made.put_segment("t", 10, batches((10, 20)), index=b"", timeindex=b"")
    made.commit("t", 20, highest_base=10)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tsctl.repair.requests.time.sleep", interrupted)
    place = ("--url", made.location, "--cluster", "prod", "--entropy-bits", "0")
    ended = runner(capfd)("repair", *place, "--wait", "1m")
    assert ended.code == ExitCode.INTERRUPTED
    assert "1 request has no answer yet and remains; run tsctl repair again" in ended.err
    assert len(list(unanswered(made.store, made.keys))) == 1


def test_findings_for_a_person_have_key_and_advice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The most severe one is first, and each kind has its advice once."""
    made = MadeArchive(tmp_path / "store")
    for base in (0, 10):
        made.put_segment("t", base, batches((base, base + 10)), index=b"i", timeindex=b"t")
    made.commit("t", 20, highest_base=10)
    keys = made.partition("t")
    place = ("--url", made.location, "--cluster", "prod", "--entropy-bits", "0", "--depth", "full")
    ended = runner(capfd)("repair", *place)
    assert ended.code == ExitCode.FOUND
    wrong = [line for line in ended.out.splitlines() if line.startswith("index-wrong of ")]
    assert len(wrong) > 1
    for base in (0, 10):
        assert any(line.endswith(f"object: {keys.segment(SegmentName(base), '.index')}") for line in wrong)
    assert ended.out.count(INDEX_WRONG.advice) == 1
    last = f"nothing that tsctl repair can repair; {len(wrong)} findings need a repair by hand"
    assert ended.out.splitlines()[-1] == last


def test_what_a_repair_cannot_fix_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A partition without a commit, in a store without versions: nothing is requested."""
    made = MadeArchive(tmp_path / "store")
    made.put_segment("t", 0, batches((0, 10)), index=b"", timeindex=b"")
    made.age(16 * 60)
    place = ("--url", made.location, "--cluster", "prod", "--entropy-bits", "0")
    ended = runner(capfd)("repair", *place)
    assert ended.code == ExitCode.FOUND
    assert "no-commit of t-0 needs a repair by hand" in ended.out
    last = "nothing that tsctl repair can repair; 1 finding needs a repair by hand"
    assert ended.out.splitlines()[-1] == last
    made.commit("t", 20, highest_base=0)
    ended = runner(capfd)("repair", *place, "--dry-run")
    assert ended.code == ExitCode.FOUND
    assert "a request to the agent of the leader" in ended.out
    assert list(unanswered(made.store, made.keys)) == []
