"""Scans skip directories that did not change. No event arrives here, so what a scan does not find is missed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.local.waiting import wait_for
from tests.uploader.local_directory import ID, TP, LocalDirectory
from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import parse_changed_offsets, parse_offset_checkpoint
from ts_common.model import TopicPartition
from ts_uploader.log_dirs import directory_scan, watcher
from ts_uploader.log_dirs.directory_scan import CheckpointReader
from ts_uploader.log_dirs.watcher import LogDirectoryWatcher
from ts_uploader.messages.observations import EpochFile, Listing, Observation

Offsets = dict[tuple[str, int], int]
TURNS = 120


class Scanned:
    """A watcher that only scans."""

    def __init__(self, local: LocalDirectory) -> None:
        self.said: list[Observation] = []
        self.watcher = LogDirectoryWatcher([local.log_dir], lambda _: True, self.said.append, 3600.0)

    def scan(self, *hinted: Any) -> list[Listing]:
        """Return the listings of one scan."""
        self.said.clear()
        self.watcher.scan_everything(frozenset(hinted))
        return [said for said in self.said if isinstance(said, Listing)]

    def bases(self) -> list[tuple[int, ...]]:
        """Return the bases in each listing of one scan."""
        return [listing.bases for listing in self.scan()]


@pytest.fixture
def local(tmp_path: Path) -> LocalDirectory:
    """A directory with a closed segment."""
    local = LocalDirectory(tmp_path / "log")
    local.epochs((0, 0))
    local.segments(0, 100)
    return local


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory is listed only because it is its turn."""
    monkeypatch.setattr(watcher, "_SKIPS", 10**12)


def settled(local: LocalDirectory) -> Scanned:
    """Return a watcher that has a whole listing."""
    scanned = Scanned(local)
    wait_for(lambda: any(listing.whole for listing in scanned.scan()), "a whole listing")
    return scanned


@pytest.mark.usefixtures("no_turns")
def test_a_whole_directory_with_an_unchanged_stamp_is_not_listed(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One `stat` of it is enough."""
    scanned = settled(local)
    monkeypatch.setattr(watcher, "list_partition", lambda *_: pytest.fail("it was listed"))
    assert [scanned.scan() for _ in range(3)] == [[], [], []]


def test_each_directory_is_listed_in_its_turn_whatever_its_stamp(local: LocalDirectory) -> None:
    """If a file system's stamps do not show a change, the segment is still found."""
    scanned = settled(local)
    assert sum(len(scanned.scan()) for _ in range(3 * TURNS)) == 3


@pytest.mark.usefixtures("no_turns")
def test_a_segment_that_closes_without_an_event_is_found_by_the_next_scan(local: LocalDirectory) -> None:
    """The kernel's queue overflowed, or the directory was not watched."""
    scanned = settled(local)
    local.segments(200)
    assert scanned.bases() == [(0, 100, 200)]


@pytest.mark.usefixtures("no_turns")
def test_a_change_with_the_same_stamp_as_the_one_before_is_found(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's clock ticks every 4 ms: the listing between two changes in one tick is not whole."""
    monkeypatch.setattr(directory_scan, "_stamp", lambda _: (1, 1))
    scanned = Scanned(local)
    assert [listing.whole for listing in scanned.scan()] == [False]
    local.segments(200)
    assert scanned.bases() == [(0, 100, 200)]


@pytest.mark.usefixtures("no_turns")
def test_a_directory_that_was_replaced_by_one_with_the_same_mtime_is_listed(local: LocalDirectory) -> None:
    """The broker deleted and created the replica, or an operator copied it with its times."""
    scanned = settled(local)
    before = local.path.stat()
    local.path.rename(local.log_dir / "away")
    replaced = LocalDirectory(local.log_dir)
    replaced.epochs((0, 0))
    replaced.segments(300)
    os.utime(replaced.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert replaced.path.stat().st_mtime_ns == before.st_mtime_ns
    assert scanned.bases() == [(300,)]


@pytest.mark.usefixtures("no_turns")
def test_a_directory_whose_mtime_was_set_back_is_listed(local: LocalDirectory) -> None:
    """A change time cannot be set."""
    scanned = settled(local)
    before = local.path.stat()
    local.segments(200)
    os.utime(local.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scanned.bases() == [(0, 100, 200)]


@pytest.mark.usefixtures("no_turns")
def test_a_new_leader_epoch_is_found_without_an_event(local: LocalDirectory) -> None:
    """The broker replaces the checkpoint by a rename, which the directory's stamp shows."""
    scanned = settled(local)
    replacement = local.path / "leader-epoch-checkpoint.tmp"
    replacement.write_text("0\n2\n0 0\n7 100\n")
    replacement.replace(local.path / "leader-epoch-checkpoint")
    assert [listing.last_epoch.epoch for listing in scanned.scan()] == [7]


@pytest.mark.usefixtures("no_turns")
def test_an_unreadable_file_that_is_mended_in_its_place_is_read(local: LocalDirectory) -> None:
    """An operator changes its mode or content; neither changes the directory."""
    checkpoint, metadata = local.path / "leader-epoch-checkpoint", local.path / "partition.metadata"
    checkpoint.write_text("damaged")
    scanned = settled(local)
    (listing,) = scanned.scan()
    assert listing.last_epoch.file is EpochFile.UNREADABLE
    checkpoint.write_text("0\n1\n3 0\n")
    assert [listing.last_epoch.epoch for listing in scanned.scan()] == [3]
    metadata.write_text("damaged")
    scanned = settled(local)
    local.topic_id(ID)
    assert [listing.topic_id for listing in scanned.scan()] == [ID]


@pytest.mark.usefixtures("no_turns")
def test_a_listing_that_was_requested_is_sent_also_with_a_scan(local: LocalDirectory) -> None:
    """The tracker has dropped its listing, and waits for this one."""
    scanned = settled(local)
    assert [listing.bases for listing in scanned.scan(TP)] == [(0, 100)]


@pytest.mark.usefixtures("no_turns")
def test_a_listing_that_failed_is_repeated_by_the_next_scan(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker waits for it, and the directory need not change again."""
    scanned = settled(local)

    def fail(*_: object) -> None:
        raise OSError("no descriptor left")

    with monkeypatch.context() as patched:
        patched.setattr(watcher, "list_partition", fail)
        assert scanned.scan(TP) == []
    assert scanned.bases() == [(0, 100)]


def encoded(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return a checkpoint in the order of the mapping."""
    lines = [f"{topic} {number} {offset}\n" for (topic, number), offset in offsets.items()]
    return "".join([f"0\n{len(lines)}\n", *lines]).encode()


OFFSETS = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), st.integers(0, 3))


@given(OFFSETS, OFFSETS)
def test_the_lines_that_changed_give_the_same_offsets_as_the_whole_file(before: Offsets, now: Offsets) -> None:
    """And the entries that differ, in any order of the lines."""
    found, changed = parse_changed_offsets(encoded(now), encoded(before), before)
    assert found == now
    assert changed == {entry for entry in before.keys() | now.keys() if before.get(entry) != now.get(entry)}


@given(OFFSETS, OFFSETS, st.data())
def test_a_damaged_file_is_damaged_whatever_the_one_before(before: Offsets, now: Offsets, data: st.DataObject) -> None:
    """A byte is missing, another one, or there twice."""
    whole = encoded(now)
    at = data.draw(st.integers(0, len(whole) - 1))
    piece = data.draw(st.sampled_from([b"", whole[at : at + 1] * 2, b"\n", b" ", b"x", b"0"]))
    damaged = whole[:at] + piece + whole[at + 1 :]

    def outcome(parse: Any, *arguments: Any) -> object:
        try:
            return parse(damaged, *arguments)
        except CorruptData:
            return None

    found = outcome(parse_changed_offsets, encoded(before), before)
    assert (found[0] if isinstance(found, tuple) else None) == outcome(parse_offset_checkpoint)


def test_after_a_missing_or_damaged_checkpoint_any_entry_may_have_changed(tmp_path: Path) -> None:
    """Those that changed in between are in no difference."""
    checkpoint, reader = tmp_path / "replication-offset-checkpoint", CheckpointReader(tmp_path)
    changed = []
    for content in ("0\n1\nt 0 5\n", "0\n1\nt 0 5\n", "0\n1\nt 0 6\n", "0\n1\nt", "0\n1\nt 0 6\n"):
        checkpoint.write_text(content)
        changed.append(reader.read().changed)
    assert changed == [None, frozenset(), frozenset({("t", 0)}), None, None]
    checkpoint.unlink()
    assert reader.read().changed is None
    checkpoint.write_text("0\n1\nt 0 6\n")
    assert reader.read().changed is None


def test_a_checkpoint_finds_the_inodes_of_the_directories_that_it_can_concern(tmp_path: Path) -> None:
    """With few of them it looks at each, and else it lists all."""
    directories = [tmp_path / f"t-{number}" for number in range(9)]
    for directory in directories:
        directory.mkdir()
    inodes = [directory.stat().st_ino for directory in directories]
    checkpoint, reader = tmp_path / "replication-offset-checkpoint", CheckpointReader(tmp_path)

    def live(unsettled: set[TopicPartition], *offsets: int) -> list[int]:
        """Return the numbers of the directories that are found with these offsets."""
        checkpoint.write_text("".join(["0\n9\n", *(f"t {n} {offset}\n" for n, offset in enumerate(offsets))]))
        found = reader.read(unsettled).live
        assert found <= set(inodes)
        return [number for number, inode in enumerate(inodes) if inode in found]

    zeros = [0] * 9
    assert live(set(), *zeros) == list(range(9))
    assert live(set(), *zeros) == []
    assert live({TopicPartition("t", 3), TopicPartition("u", 0)}, *zeros) == [3]
    assert live({TopicPartition("t", 3)}, 1, *zeros[1:]) == [0, 3]
    assert live(set(), *[2] * 9) == list(range(9))
    directories[0].rename(tmp_path / "t-0.0-delete")
    assert live(set(), 3, 3, *[2] * 7) == [1]
