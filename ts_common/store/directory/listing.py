"""Read the names in a directory store, and the properties of many objects at once.

A partition can have tens of thousands of files. Most listings need few of them: names cost half a microsecond each, and
properties five.
"""

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from ts_common.errors import OperatorError
from ts_common.store.contract import ObjectInfo
from ts_common.store.directory.objects import info_of
from ts_common.store.file_names import file_name, part_of

_BEGINNINGS: Final = 1_000
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


def file_names_in(directory: str) -> list[str]:
    """Return the names of the files and subdirectories in a directory, in no order; none if it does not exist."""
    try:
        return os.listdir(directory)
    except ABSENT:
        return []


def parts_outside(names: Sequence[str], ranges: Sequence[tuple[str, str]]) -> list[str]:
    """Return the parts of keys with these file names that begin in none of the ranges, in no order.

    To sort three million names would cost a second. The first digits of nearly all of them are within a range.

    Args:
        ranges: `[first, last)`, ascending and disjoint. Files of the driver begin with a dot, and are below each first.
    """
    bounds = [bound for first, last in ranges if first > "/" for bound in (first, last)]
    digits, within = _digits_within(bounds)
    left = (name for name in names if name[:digits] not in within)
    return [part for name in left if bisect_right(bounds, name) % 2 == 0 and (part := part_of(name))]


def _digits_within(bounds: Sequence[str]) -> tuple[int, set[str]]:
    """Return a number of digits, and up to a thousand such beginnings: all names with one of them are in the ranges."""
    if len({len(bound) for bound in bounds}) != 1 or not "".join(bounds).isdecimal():
        return 0, set()
    digits = len(bounds[0]) - len(str((int(bounds[-1]) - int(bounds[0])) // _BEGINNINGS))
    numbers = [int(bound[:digits] or "0") for bound in bounds]
    within = chain.from_iterable(map(range, (first + 1 for first in numbers[::2]), numbers[1::2]))
    return digits, {f"{number:0{digits}d}" for number in within}


def with_slashes(directory: str, parts: Iterable[str]) -> list[str]:
    """Return parts as `names_in` returns them; those that do not exist are left out."""
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
