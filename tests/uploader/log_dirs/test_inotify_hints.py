"""Events of real directories, and the watches that follow from them."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.local.waiting import wait_for
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.inotify_hints import InotifyHints

SECONDS = 10.0
ZERO, ONE, LAST = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("last", 0)
Heard = queue.SimpleQueue[TopicPartition | Path]


@contextmanager
def hints(log_dir: Path) -> Iterator[tuple[InotifyHints, Heard]]:
    heard: Heard = queue.SimpleQueue()
    watching = InotifyHints(heard.put, heard.put, lambda: None)
    try:
        watching.watch(log_dir)
        yield watching, heard
        assert watching.is_alive
    finally:
        watching.close()
    assert not watching.is_alive


def until_last(log_dir: Path, heard: Heard) -> list[TopicPartition | Path]:
    """Return the hints of events up to now."""
    (log_dir / str(LAST)).mkdir()
    (log_dir / str(LAST)).rmdir()
    found = list(iter(lambda: heard.get(timeout=SECONDS), LAST))
    assert heard.get(timeout=SECONDS) == LAST
    return found


def test_files_of_a_new_directory_are_hinted(tmp_path: Path) -> None:
    """It is watched before its first hint, so its listing has the files of before."""
    with hints(tmp_path) as (_, heard):
        (tmp_path / "t-0").mkdir()
        assert heard.get(timeout=SECONDS) == ZERO
        (tmp_path / "t-0" / "a").touch()
        assert heard.get(timeout=SECONDS) == ZERO
        (tmp_path / "t-0" / "a").write_text("appends are no events")
        (tmp_path / "other").mkdir()
        (tmp_path / "t-1-delete").mkdir()
        assert until_last(tmp_path, heard) == []


def test_a_renamed_directory_is_watched_under_its_new_name_only(tmp_path: Path) -> None:
    """A watch follows a directory, and what happens in one that was renamed to `-delete` concerns no partition."""
    (tmp_path / "t-0").mkdir()
    with hints(tmp_path) as (_, heard):
        (tmp_path / "t-0").rename(tmp_path / "t-1")
        assert set(until_last(tmp_path, heard)) == {ZERO, ONE}
        (tmp_path / "t-1" / "a").touch()
        assert until_last(tmp_path, heard) == [ONE]
        (tmp_path / "t-1").rename(tmp_path / "t-1.0-delete")
        (tmp_path / "t-1").mkdir()
        assert set(until_last(tmp_path, heard)) == {ONE}
        (tmp_path / "t-1.0-delete" / "a").unlink()
        assert until_last(tmp_path, heard) == []
        (tmp_path / "t-1" / "a").touch()
        assert until_last(tmp_path, heard) == [ONE]


def test_a_log_dir_that_was_removed_can_be_watched_again(tmp_path: Path) -> None:
    """A disk is repaired while the agent runs."""
    log_dir = tmp_path / "disk"
    (log_dir / "t-0").mkdir(parents=True)
    with hints(log_dir) as (watching, heard):
        assert watching.watched == {log_dir}
        (log_dir / "t-0").rmdir()
        log_dir.rmdir()
        wait_for(lambda: not watching.watched, "the end of the watch", SECONDS)
        (log_dir / "t-0").mkdir(parents=True)
        watching.watch(log_dir)
        (log_dir / "t-0" / "a").touch()
        (log_dir / "replication-offset-checkpoint").touch()
        assert until_last(log_dir, heard)[-2:] == [ZERO, log_dir]
