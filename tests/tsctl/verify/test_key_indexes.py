"""Indexes of keys that `tsctl verify` reports: never more than time is lost."""

import json

import pytest

from tests.made_archive import batches
from tests.made_views import view_of
from tests.spark.archives import Archive
from tests.tsctl.verify.verified import verify
from ts_reader.find.building import build, lacking
from ts_reader.find.lookup import read_runs
from ts_reader.find.merging import merge, stored_in
from ts_reader.find.runs import Run, put_objects
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth

FIND = "ts-uploader~cluster~prod/find/"
OLD = 2 * 86_400.0


@pytest.fixture
def archive(hand_made: Archive) -> Archive:
    """Topic `t` with two segments, which a run has."""
    for base in (0, 10):
        hand_made.put_segment("t", base, batches((base, base + 10)), index=b"", timeindex=b"")
    hand_made.commit("t", 20, highest_base=10)
    build(hand_made.store, hand_made.keys.find("t"), lacking(view_of(hand_made), []), most_share=100)
    return hand_made


def runs_of(archive: Archive) -> list[Run]:
    return read_runs(archive.store, archive.keys, "t")


def found(archive: Archive, depth: Depth = Depth.HEADERS) -> set[tuple[str, str]]:
    """Return code and key of each finding."""
    return {(each.kind.code, str(each.key)) for each in verify(archive, depth).all_findings}


@pytest.mark.parametrize("depth", Depth)
def test_a_healthy_index_is_no_finding(archive: Archive, depth: Depth) -> None:
    """Nor is a run that is being written."""
    archive.store.put(f"{FIND}t/20261130-0000000a/00.parquet", b"x")
    assert found(archive, depth) == set()


def test_r19_a_run_without_a_file_is_found(archive: Archive) -> None:
    """Suspicious, because look-ups read the segments; names alone do not show it."""
    (run,) = runs_of(archive)
    archive.store.delete([f"{run.prefix}{min(run.files)}.parquet"])
    (finding,) = verify(archive, Depth.HEADERS).all_findings
    assert (finding.kind.code, finding.key, finding.severity) == ("key-index-damaged", run.prefix, Severity.SUSPICIOUS)
    assert found(archive, Depth.LISTING) == set()


@pytest.mark.parametrize("data", [b"", b"PAR1 garbage PAR1", json.dumps({}).encode()])
def test_a_run_whose_list_cannot_be_read_is_found(archive: Archive, data: bytes) -> None:
    """It does not end the check."""
    (run,) = runs_of(archive)
    archive.store.put(f"{run.prefix}objects.parquet", data)
    assert found(archive) == {("key-index-damaged", run.prefix)}


def test_a_file_that_cannot_be_read_is_found_with_full_depth(archive: Archive) -> None:
    """Its ETag is the one that the run names."""
    etag = archive.store.put(f"{FIND}t/20261130-0000000a/7f.parquet", b"damage").etag
    put_objects(archive.store, f"{FIND}t/20261130-0000000a/", [], {"7f": (6, etag)})
    assert found(archive) == set()
    assert found(archive, Depth.FULL) == {("key-index-damaged", f"{FIND}t/20261130-0000000a/")}


def test_what_no_look_up_uses_is_found_a_day_later(archive: Archive) -> None:
    """Runs that are not finished, that were merged, and those of an incarnation without objects."""
    view, (run,) = view_of(archive), runs_of(archive)
    merge(archive.store, archive.keys.find("t"), "202611", [run], stored_in([view]))
    archive.store.put(f"{FIND}t/20261101-0000000a/00.parquet", b"x")
    archive.store.put(f"{FIND}u/20261101-0000000b/objects.parquet", b"x")
    assert found(archive) == set()
    archive.age(OLD, ".parquet")  # the directory's ETags change with the time, so the merged run is damaged too
    left = {f"{FIND}t/20261101-0000000a/", f"{FIND}u/20261101-0000000b/", run.prefix}
    assert {key for code, key in found(archive) if code == "key-index-left"} == left


def test_a_run_that_names_segments_that_do_not_exist_is_found(archive: Archive) -> None:
    """Those that retention removed, and those that never were."""
    (run,) = runs_of(archive)
    archive.commit("t", 20, highest_base=10, log_start=10)
    archive.store.delete([info.key for info in archive.store.list("prod/t-0/") if "/00000000000000000000." in info.key])
    entry = next(iter(run.entries.values()))
    outside = ("../t-0", "0" * 20, 5, "e")
    put_objects(archive.store, f"{FIND}t/20261130-0000000a/", [(outside, entry)], {})
    assert found(archive) == {("key-index-old", run.prefix), ("key-index-old", f"{FIND}t/20261130-0000000a/")}


def test_a_foreign_name_is_found(archive: Archive) -> None:
    """Next to runs, and in place of one."""
    for name in ("notes.txt", "elsewhere/00.parquet"):
        archive.store.put(f"{FIND}t/{name}", b"x")
    assert found(archive) == {("foreign-object", f"{FIND}t/{name}") for name in ("notes.txt", "elsewhere/00.parquet")}
