"""`tsctl thaw` against moto: what it selects, requests, extends and waits for, and what it refuses."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.docs.commands import CHECKOUT, blocks
from tests.made_archive import MadeArchive, batches
from tests.made_cold import STEP, TOPIC, ColdArchive, cold_archive, slow_thaws
from tests.tsctl.running import Run, runner
from ts_common.archive.object_keys import SegmentName
from tsctl.thaw import thawing


@pytest.fixture
def cold(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdArchive]:
    """Make an archive of three segments, without a frozen one."""
    with cold_archive(moto_server, monkeypatch) as archive:
        yield archive


@pytest.fixture
def tsctl(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def named(archive: MadeArchive) -> tuple[str, ...]:
    return (TOPIC, "--url", archive.location, "--cluster", "prod")


def frozen(archive: ColdArchive) -> list[str]:
    """Return the names of the objects that cannot be read."""
    keys = [info.key for info in archive.store.list() if archive.store.thaw_state(info.key).is_frozen]
    return [key.rpartition("/")[2].lstrip("0") for key in keys]


def test_a_dry_run_shows_what_is_frozen_and_requests_nothing(cold: ColdArchive, tsctl: Run) -> None:
    """Segments and indexes of the range alone, with their classes; the JSON has the numbers."""
    cold.freeze(0, STEP)
    cold.freeze(STEP, storage_class="DEEP_ARCHIVE", suffixes=(".index",))
    ended = tsctl("thaw", *named(cold), "--from", STEP, "--to", STEP + 1, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    size = cold.store.head(cold.key(STEP)).size
    classes = "1 in DEEP_ARCHIVE, 1 in GLACIER"
    assert ended.out == f"t-0: 2 frozen objects, {size} bytes ({classes}); thaws in progress: 0\n"
    document = tsctl("thaw", *named(cold), "--dry-run", "--json").document
    assert (document["frozen"], document["requested"], document["dry_run"]) == (3, 0, True)
    assert frozen(cold) == [".log", "10.index", "10.log"]


def test_the_list_of_segments_has_their_classes(cold: ColdArchive, tsctl: Run) -> None:
    """For programs of an operator's own."""
    cold.freeze(0)
    (topic,) = tsctl("ls", *named(cold), "--level", "segments", "--json").document["topics"]
    (partition,) = topic["partitions"]
    found = [(each["storage_class"], each["frozen"]) for each in partition["segment_list"]]
    assert found == [("GLACIER", True), (None, False), (None, False)]


def test_the_commands_of_the_page_thaw_a_day(cold: ColdArchive, tsctl: Run) -> None:
    """docs/cold-storage.md: first what is frozen, then the thaw."""
    (block,) = blocks(CHECKOUT / "docs/cold-storage.md", "Thaw", language="sh")
    day = 1_767_225_600_000  # 2026-01-01
    for base, at in ((0, day), (STEP, day + 86_400_000)):
        cold.put_segment("clicks", base, batches((base, base + STEP), time=at))
    cold.commit("clicks", 2 * STEP)
    key = cold.partition("clicks").segment(SegmentName(0))
    cold.client.put_object(
        Bucket=cold.bucket,
        Key=f"base/{key}",
        Body=cold.store.get(key)[0],
        Metadata=dict(cold.store.head(key).metadata),
        StorageClass="GLACIER",
    )
    first, second = (
        line.replace("--config /etc/ts-uploader/conf", f"--url {cold.location} --cluster prod").split()[1:]
        for line in block.text.splitlines()
    )
    ended = tsctl(*first)
    assert "1 frozen object" in ended.out
    assert cold.store.thaw_state(key).is_frozen
    assert tsctl(*second).code == 0
    assert cold.store.get(key)[0]


def test_a_thaw_waits_until_all_can_be_read(
    cold: ColdArchive, tsctl: Run, moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thaw that another command began is waited for, and not requested again."""
    monkeypatch.setattr(thawing, "_FIRST_PAUSE_SECONDS", 0.01)
    cold.freeze(0, STEP)
    with slow_thaws(moto_server, 8):
        first = tsctl("thaw", *named(cold), "--to", STEP, "--no-wait", "--tier", "Bulk")
        assert first.out.endswith("\n1 thaw requested\n")
        assert frozen(cold) == [".log", "10.log"]
        ended = tsctl("thaw", *named(cold))
    assert "thaws in progress: 1\n" in ended.out
    assert ended.out.endswith("1 thaw requested\nall 2 objects can be read now\n")
    assert (ended.code, frozen(cold)) == (0, [])


def test_a_readable_copy_that_expires_too_early_is_extended(
    cold: ColdArchive, tsctl: Run, moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the wait for a thaw of fewer days; a repeated command with the same days requests nothing."""
    monkeypatch.setattr(thawing, "_FIRST_PAUSE_SECONDS", 0.01)
    cold.freeze(0, STEP)
    with slow_thaws(moto_server, 4):
        assert tsctl("thaw", *named(cold), "--days", 1, "--no-wait").code == 0
        document = tsctl("thaw", *named(cold), "--days", 30, "--json").document
    assert (document["in_progress"], document["requested"], document["removed"]) == (2, 0, 0)
    for base in (0, STEP):
        until = cold.store.thaw_state(cold.key(base)).until
        assert until is not None
        assert until - time.time() > 29 * thawing.DAY_SECONDS
    again = tsctl("thaw", *named(cold), "--days", 30, "--json").document
    assert (again["objects"], again["frozen"], again["requested"]) == (2, 0, 0)
    assert tsctl("thaw", *named(cold), "--days", 60, "--json").document["requested"] == 2


def test_an_object_that_was_removed_during_the_wait_is_a_finding(
    cold: ColdArchive, tsctl: Run, moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and not counted as readable."""
    monkeypatch.setattr(thawing, "_FIRST_PAUSE_SECONDS", 0.01)
    cold.freeze(0, STEP)
    wait = thawing.Thaw.wait

    def remove_and_wait(*arguments: Any) -> Any:
        cold.store.delete([cold.key(STEP)])
        return wait(*arguments)

    monkeypatch.setattr(thawing.Thaw, "wait", remove_and_wait)
    with slow_thaws(moto_server, 2):
        ended = tsctl("thaw", *named(cold))
    assert (ended.code, ended.out.splitlines()[-1]) == (1, "1 object can be read now")
    assert f"1 object of the range, removed during the wait: {cold.key(STEP)}" in ended.err


def test_a_range_of_times_needs_the_segment_where_it_begins(cold: ColdArchive, tsctl: Run) -> None:
    """Records have the time 1000 ms plus their offset; metadata selects, and no frozen segment is read."""
    cold.freeze(0, STEP, 2 * STEP)
    ended = tsctl("thaw", *named(cold), "--from", "@1012", "--to", "@1013")
    assert (ended.code, frozen(cold)) == (0, [".log", "20.log"])


def test_a_java_uploaders_segment_is_selected_by_the_listing(cold: ColdArchive, tsctl: Run) -> None:
    """Only its bytes have its end, and they are frozen."""
    for base in (0, STEP, 2 * STEP):
        cold.store.put(cold.key(base), batches((base, base + STEP)))
    cold.store.put(cold.partition(TOPIC).commit, b"%020d" % (2 * STEP))
    cold.freeze(0, STEP, 2 * STEP)
    assert tsctl("thaw", *named(cold), "--from", STEP, "--to", 2 * STEP).code == 0
    assert frozen(cold) == [".log", "20.log"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tier", "Expedited"), "--tier=Expedited: objects of DEEP_ARCHIVE have the tiers Bulk and Standard"),
        (("--from", "9", "--to", "3"), "--from=9 is after --to=3"),
        (("-p", "7"), "the store has no partition 7"),
    ],
)
def test_what_cannot_be_thawed_is_refused_before_any_request(
    cold: ColdArchive, tsctl: Run, arguments: tuple[str, ...], message: str
) -> None:
    """Nothing costs money."""
    cold.freeze(0, storage_class="DEEP_ARCHIVE")
    ended = tsctl("thaw", *named(cold), *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert frozen(cold) == [".log"]


def test_a_pattern_is_refused_before_any_request(cold: ColdArchive, tsctl: Run) -> None:
    """It could match more topics than meant, and a thaw costs money."""
    cold.freeze(0)
    _, *others = named(cold)
    ended = tsctl("thaw", ".*", *others)
    assert ended.code == 2
    assert "topic .*: it is no name of a topic; one name is expected, and no pattern" in ended.err
    assert frozen(cold) == [".log"]


def test_a_store_without_frozen_objects_has_nothing_to_thaw(tmp_path: Path, tsctl: Run) -> None:
    """A directory, for example."""
    with (archive := MadeArchive(tmp_path / "store")).store:
        archive.put_segment(TOPIC, 0, batches((0, STEP)))
        archive.commit(TOPIC, STEP)
    ended = tsctl("thaw", *named(archive))
    assert (ended.code, ended.out) == (0, "no object of the range is frozen\n")
