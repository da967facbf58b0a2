"""Which `-delete` directories are reported, and when."""

import shutil
from dataclasses import replace
from pathlib import Path

from tests.uploader.batches import batch
from tests.uploader.local_directory import TP, LocalDirectory
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.deleted_directories import DeletedDirectories
from ts_uploader.messages.observations import DirectoryDeleted


def renamed(log_dir: Path, number: int, name: str = str(TP)) -> Path:
    """Make a log, and rename its directory as a broker does."""
    local = LocalDirectory(log_dir)
    local.epochs((0, 0))
    local.write(0, batch(0, 5, 0))
    path = local.path.with_name(f"{name}.{number:032x}-delete")
    local.path.rename(path)
    return path


def test_u45_each_renamed_directory_is_reported_once_though_inodes_are_used_again(tmp_path: Path) -> None:
    """Another log dir cannot be read (its disk failed); a file system gives the next directory the inode at once."""
    good, seen = tmp_path / "good", list[DirectoryDeleted]()
    good.mkdir()
    directories = DeletedDirectories([good, tmp_path / "failed"], lambda _: True, seen.append, 5.0)
    for number in range(4):
        path = renamed(good, number)
        for _ in range(2):
            directories.report({})
        assert [event.listing.directory for event in seen[number:]] == [path]
        shutil.rmtree(path)


def test_u45_the_name_counts_before_an_inode_that_was_listed_live(tmp_path: Path) -> None:
    """The listing can be of another partition whose directory no longer exists; only a cut name needs the inode."""
    seen = list[DirectoryDeleted]()
    directories = DeletedDirectories([tmp_path], lambda _: True, seen.append, 5.0)
    renamed(tmp_path, 0)
    directories.report({})
    other = replace(seen[0].listing, partition=TopicPartition("u", 0))
    DeletedDirectories([tmp_path], lambda _: True, seen.append, 5.0).report({"u-0": [other]})
    assert [event.partition for event in seen] == [TP, TP]


def test_u45_a_directory_without_a_full_name_is_counted(tmp_path: Path) -> None:
    """Its name of 255 characters can lack a part of the topic's, so nothing of it is shipped."""
    counted = list[int]()
    directories = DeletedDirectories([tmp_path], lambda _: True, lambda _: None, 5.0, lambda: counted.append(1))
    renamed(tmp_path, 0, "t" * (255 - 2 - 40) + "-0")
    for _ in range(2):
        directories.report({})
    assert counted == [1]
