"""A later release of the agent."""

from tests.uploader.beside import Archive
from tests.uploader.later_release import MARK

LATER = ("--environment-provider", "tests.uploader.later_release:Later")


def is_later(archive: Archive, partition: int) -> bool:
    """Whether the later release wrote a partition's commit."""
    return MARK in archive.store.get(archive.partition_keys(partition).commit)[0].decode()
