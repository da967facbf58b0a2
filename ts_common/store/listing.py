"""Listings in byte order from servers that walk directories.

S3 lists keys in the order of their bytes, so `a-b` (0x2d) before `a/b` (0x2f). SeaweedFS walks directories: all of `a/`
where it meets the name `a`, then `a-b`. The two orders differ only around characters below ``/``. What stands here
makes one of the other, and leaves alone what is in byte order already.
"""

import re
from collections.abc import Iterator

from ts_common.errors import StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo

# A page may be empty where the store left out what was deleted: many in a row, but not without an end.
_STANDING_STILL = 1_000
NO_BYTE_BELOW_SLASH = re.compile(r"[^\x00-.]*")


def resume_after(start_after: str, prefix: str) -> str:
    """The key to ask a server for keys after, so that it leaves out none that sorts after `start_after`.

    Where a server walks directories, keys that sort after `start_after` can come before it. Up to the first character
    below ``/`` the two orders agree; and SeaweedFS, asked for what comes after the name of a directory, leaves out what
    is below it, so one character less is asked for. What comes back too much is the caller's to drop. Empty: ask for
    all.
    """
    agreed = NO_BYTE_BELOW_SLASH.match(start_after, len(prefix))
    if not start_after.startswith(prefix) or agreed is None:
        return ""
    earlier = agreed[0].removesuffix("/")[:-1]
    while earlier.endswith("/"):
        earlier = earlier[:-2]
    return prefix + earlier if earlier else ""


def in_byte_order(infos: Iterator[ObjectInfo], start: int) -> Iterator[ObjectInfo]:
    """A listing in byte order, from one in byte order or one that walks directories.

    Of what comes after the keys below `a/`, only names that begin with `a` and a character below ``/`` can sort before
    them (`a!`, `a-`, `a.`). So those keys are held until a name comes that does not.

    Args:
        infos: the listing.
        start: how many characters its keys share.
    """
    held: list[ObjectInfo] = []
    directory = ""
    for info in infos:
        if not held and info.key.find("/", start) < 0:  # nearly all of a partition's
            yield info
            continue
        name, slash, _ = info.key[start:].partition("/")
        if held and not (name.startswith(directory) and name[len(directory) :] < "/"):
            yield from sorted(held, key=_key)
            held = []
        if not held:
            if not slash:
                yield info
                continue
            directory = name
        held.append(info)
    yield from sorted(held, key=_key)


def each_once(infos: Iterator[ObjectInfo], call: Call) -> Iterator[ObjectInfo]:
    """A listing in byte order, each key once: whoever merges or resumes listings relies on it.

    Raises:
        StoreUnavailable: the store lists in no order that is known here.
    """
    last = None
    for info in infos:
        if last is not None and info.key <= last:
            if info.key == last:
                continue  # written over while it was listed
            raise StoreUnavailable(
                f"{call.operation} {call.target}: {info.key!r} is listed after {last!r}; the order of bytes is expected"
            )
        last = info.key
        yield info


class Onward:
    """Notices pages that lead nowhere: a server can always say that there is more.

    Args:
        call: for messages.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._furthest = ""  # in the order of bytes, and in that of a walk through directories
        self._walked: list[str] = []
        self._still = 0

    def take(self, last: str) -> None:
        """Take the last name of a page after which there is more; empty for a page of nothing.

        Raises:
            StoreUnavailable: no page of the last thousand went beyond those before.
        """
        parts = last.split("/")
        if last > self._furthest or parts > self._walked:
            self._furthest, self._walked = max(self._furthest, last), max(self._walked, parts)
            self._still = 0
            return
        self._still += 1
        if self._still >= _STANDING_STILL:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: {self._still} pages in a row name nothing new, and the "
                "store says that there is more"
            )


def below(name: str, prefix: str) -> str:
    """A name that is listed, if it is below what was asked for.

    Raises:
        ValueError: it is not.
    """
    if not name.startswith(prefix):
        raise ValueError(f"{name[:200]!r} is listed below {prefix!r}")
    return name


def directory_below(name: str, prefix: str) -> str:
    """The part of a name between what was asked for and the delimiter, which it ends in.

    Raises:
        ValueError: it is another name.
    """
    part = below(name, prefix)[len(prefix) :]
    if part.find("/") != len(part) - 1 or not part:
        raise ValueError(f"{name[:200]!r} is listed as a directory below {prefix!r}")
    return part


def _key(info: ObjectInfo) -> str:
    return info.key
