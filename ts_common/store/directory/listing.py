"""Read the names in a directory store, and the properties of many objects at once.

A partition can have tens of thousands of files. Most listings need few of them: names cost half a microsecond each, and
properties five.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from ts_common.errors import OperatorError
from ts_common.store.contract import ObjectInfo
from ts_common.store.directory.objects import info_of
from ts_common.store.file_names import file_name, part_of

ABSENT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LinkRefused(OperatorError):
    """A symbolic link below the root: it could lead to any file that this user may read or write."""

    def __init__(self, link: object) -> None:
        super().__init__(
            f"{link} is a symbolic link, and a directory store follows none below its root; replace it by its target, "
            "or by a mount if that is on another disk"
        )


def names_in(directory: str) -> list[str]:
    """Return the names in a directory as parts of keys, subdirectories with a slash; none if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [
                part + "/" if entry.is_dir(follow_symlinks=False) else part
                for entry in entries
                if (part := entry.name)[0] != "." or (part := part_of(part))
            ]
    except ABSENT:
        return []


def parts_in(directory: str) -> list[str]:
    """Return what `names_in` returns in its order, but subdirectories without a slash: a third less work."""
    try:
        parts = sorted(os.listdir(directory))
    except ABSENT:
        return []
    first, stop = bisect_left(parts, "."), bisect_left(parts, "/")
    visible = [part for name in parts[first:stop] if (part := part_of(name))]
    parts[first:stop] = []
    return sorted((*parts, *visible)) if visible else parts


def with_slashes(directory: str, parts: Iterable[str]) -> list[str]:
    """Return names that `parts_in` found as `names_in` returns them; those that do not exist are left out."""
    found = []
    for part in parts:
        with suppress(*ABSENT):
            state = os.lstat(directory + file_name(part))
            found.append(part + "/" if stat.S_ISDIR(state.st_mode) else part)
    return found


def has_object(directory: str) -> bool:
    """Return whether a directory has an object in it or below it; few of its names are read.

    Raises:
        LinkRefused: a name that was read is a link.
    """
    pending = [directory]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.name[0] == "." and not part_of(entry.name):
                        continue
                    if entry.is_symlink():
                        raise LinkRefused(entry.path)
                    if entry.is_file():
                        return True
                    if entry.is_dir():
                        pending.append(entry.path)
        except ABSENT:
            continue
    return False


def wanted(names: Iterable[str], directory: str, prefix: str, start_after: str) -> list[str]:
    """Return the names that a listing needs, in the order of their keys.

    Args:
        names: in the directory, as `names_in` returns them.
        directory: of keys; empty, or with a slash at its end.
        prefix: of the listing; the directory begins with its directories, or it with the directory.
        start_after: of the listing.
    """
    if begin := prefix[len(directory) :]:
        names = [name for name in names if name.startswith(begin)]
    if start_after.startswith(directory):
        low = start_after[len(directory) :]
        return sorted(name for name in names if name > low or (name[-1] == "/" and low.startswith(name)))
    return sorted(names) if start_after < directory else []


def infos_of(directory: str, key: str, names: Iterable[str]) -> list[ObjectInfo]:
    """Return the properties of the objects with these names; those that do not exist are left out.

    Args:
        directory: path, with a slash at its end.
        key: of the directory.

    Raises:
        LinkRefused: a name is a link.
    """
    found = []
    for name in names:
        path = directory + (name if name[0] != "." else file_name(name))
        try:
            state = os.lstat(path)
        except ABSENT:
            continue
        if stat.S_ISREG(state.st_mode):
            found.append(info_of(key + name, state))
        elif stat.S_ISLNK(state.st_mode):
            raise LinkRefused(path)
    return found
