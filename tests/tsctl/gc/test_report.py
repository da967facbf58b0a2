"""The report of a run: a line for each thing that it did or left out, whatever ended it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import GRACE, FixedRetention, Killed, keep_last, run, ship
from ts_common.errors import AccessDenied, CorruptData, StoreUnavailable
from ts_common.store.contract import DeleteOutcome
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.archive_run import begin
from tsctl.gc.due import Rule
from tsctl.gc.report import Report, list_reports, read_report
from tsctl.gc.retention import Skipped, Why


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def lines_of(archive: MadeArchive, report: Report) -> list[dict[str, Any]]:
    """Return the stored lines of a report."""
    return list(read_report(archive.store, archive.keys, report.run))


def test_a_report_has_a_line_for_each_step_of_a_partition(archive: MadeArchive) -> None:
    """Its first line names the run; the others name the partition, what was done, and for how much."""
    size = ship(archive, "t", 0, 50)
    hidden = run(archive, keep_last(3, size)).report
    head, line = lines_of(archive, hidden)
    assert (head["version"], head["run"]) == (1, hidden.run)
    assert line == {"partition": "t-0", "did": "hidden", "start": 0, "to": 20, "limit": "the rule"}
    _, line = lines_of(archive, run(archive, keep_last(4, size)).report)
    assert line == {"partition": "t-0", "did": "shown", "start": 10, "to": 20, "limit": "the rule"}
    held = FixedRetention(Rule(size=3 * size), held={"t"})
    _, line, shown = lines_of(archive, run(archive, held).report)
    assert line == {"partition": "t-0", "did": "left out", "why": "hold", "reason": "held"}
    assert (shown["did"], shown["start"], shown["to"], shown["limit"]) == ("shown", 0, 10, "a hold")


def test_a_report_has_each_deleted_object_with_its_size_and_etag(archive: MadeArchive) -> None:
    """In the order of their deletion: the `.log` of a segment before its indexes."""
    size = ship(archive, "t", 0, 50)
    run(archive, keep_last(4, size))
    prefix = archive.partition("t").prefix
    gone = [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    sizes = [archive.store.head(prefix + name).size for name in gone]
    _, line = lines_of(archive, run(archive, keep_last(4, size), after=GRACE).report)
    assert (line["partition"], line["did"]) == ("t-0", "deleted")
    assert [each[:2] for each in line["objects"]] == [list(each) for each in zip(gone, sizes, strict=True)]
    assert all(etag.startswith('"') and outcome == "removed" for _, _, etag, outcome in line["objects"])


def test_a_run_that_was_killed_has_the_first_line_alone(archive: MadeArchive) -> None:
    """It is stored before the run changes anything, and the rest at the end."""
    report = Report()
    with report.writing(archive.store, archive.keys):
        begin(archive.store, archive.keys, report)
        report.line(did="ended", failed=False)
        assert [line.get("run") for line in lines_of(archive, report)] == [report.run]
    assert [line.get("did") for line in lines_of(archive, report)] == [None, "ended"]


@pytest.mark.parametrize("error", [StoreUnavailable("503"), Killed(), KeyboardInterrupt()], ids=repr)
def test_a_run_that_an_error_ends_reports_what_it_did(archive: MadeArchive, error: BaseException) -> None:
    """The error is raised, also if the store does not accept the report."""

    class Full(WrappedStore):
        def put(self, *_: object, **__: object) -> Any:
            raise StoreUnavailable("507")

    for store in (archive.store, Full(archive.store, threads=1)):
        report = Report()
        with pytest.raises(type(error)), report.writing(store, archive.keys):
            report.add(archive.partition("t"), "hidden", start=0, to=10)
            raise error
        assert len(lines_of(archive, report)) == (store is archive.store)


def test_what_is_left_out_is_reported_once(archive: MadeArchive) -> None:
    """A partition is examined twice in a run; another reason is another line."""
    report = Report()
    with report.writing(archive.store, archive.keys):
        for why in (Why.DOUBT, Why.DOUBT, Why.HELD):
            report.skip(Skipped("t-0", "a reason", why))
    assert [line["why"] for line in lines_of(archive, report)] == ["doubt", "hold"]
    assert len(report.skipped) == 2


def test_failures_of_deletes_are_counted_and_the_first_ten_are_kept(archive: MadeArchive) -> None:
    """A denied right fails each delete of a run; indexes are not tried, because their `.log` stays."""
    ship(archive, "t", 0, 150)
    keys, report = archive.partition("t"), Report()

    class Denying(WrappedStore):
        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            return DeleteOutcome((), (), {key: AccessDenied("denied") for key in etags})

    objects = [info for info in archive.store.list(keys.prefix) if info.key.endswith((".log", "index"))]
    store = Denying(archive.store, threads=1)
    assert not report.deleting(store, keys, objects, locked=lambda _: {}, look=lambda: None)
    assert (report.outcomes, report.bytes, len(report.errors)) == ({"failed": 45}, 0, 10)
    assert report.errors[0] == f"{keys.prefix}{0:020d}.log: denied"


@pytest.mark.parametrize(
    "line",
    [b"\xff{\n", b"[]\n", b'{"did":NaN}\n', b'{"did":"ended"', b"\n"],
    ids=["bytes", "list", "NaN", "cut", "empty"],
)
def test_a_damaged_line_is_an_error_with_the_key(archive: MadeArchive, line: bytes) -> None:
    """What is above it was read."""
    key, found = f"{archive.keys.gc}gc-1.jsonl", []
    archive.store.put(key, b'{"version":1}\n' + line)
    with pytest.raises(CorruptData, match=f"{key}: not a report of tsctl gc"):
        for each in read_report(archive.store, archive.keys, "gc-1"):
            found.append(each)  # noqa: PERF402  (the error ends the loop)
    assert found == [{"version": 1}]


def test_a_line_can_be_longer_than_one_read(archive: MadeArchive) -> None:
    """A deletion of a large partition is one line."""
    lines = [{"objects": ["x" * length]} for length in (5, 3 << 20, 7)]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    archive.store.put(f"{archive.keys.gc}gc-1.jsonl", text.encode())
    assert list(read_report(archive.store, archive.keys, "gc-1")) == lines


def test_reports_are_listed_without_the_other_objects_of_retention(archive: MadeArchive) -> None:
    """Logs of an earlier release had a directory for each run."""
    first = run(archive, keep_last(1, ship(archive, "t", 0, 50))).report
    archive.store.put(f"{archive.keys.gc}absent.json", b"{}")
    archive.store.put(f"{archive.keys.gc}20261127T020000000Z-1f2e3d4c/log-1.jsonl", b"{}")
    assert [info.key for info in list_reports(archive.store, archive.keys)] == [first.key(archive.keys)]
    assert list(read_report(archive.store, archive.keys, "gc-of-another-archive")) == []
