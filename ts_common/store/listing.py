"""Put listings of servers that walk directories into byte order.

S3 lists keys in the order of their bytes, so `a-b` (0x2d) before `a/b` (0x2f). SeaweedFS walks directories: all of `a/`
at the name `a`, then `a-b`. The two orders differ only around characters below ``/``. This module reorders the second
kind and leaves a listing in byte order unchanged.
"""

import re
from collections.abc import Callable, Iterator

from ts_common.errors import StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.contract import ObjectInfo

# A store that leaves out deleted objects may return many empty pages in a row, but not without end.
_PAGES_WITHOUT_PROGRESS = 1_000
NO_BYTE_BELOW_SLASH = re.compile(r"[^\x00-.]*")


def list_in_order(
    listed: Callable[[str, str], Iterator[ObjectInfo]], prefix: str, start_after: str, call: Call
) -> Iterator[ObjectInfo]:
    """Return a listing in byte order, each key once; the first item sends the first request.

    Args:
        listed: lists a prefix after a key, in the order of the server.
        start_after: the keys after this one are listed.
        call: for messages.
    """
    if start_after > prefix and not start_after.startswith(prefix):
        return iter(())
    infos = in_byte_order(listed(prefix, resume_after(start_after, prefix)), len(prefix))
    return (info for info in each_once(infos, call) if info.key > start_after)


def resume_after(start_after: str, prefix: str) -> str:
    """Return the key after which a server must list, so that no key after `start_after` is missing; empty means all.

    If a server walks directories, keys that sort after `start_after` can precede it in the listing. The two orders
    agree up to the first character below ``/``. SeaweedFS omits the keys of a directory after that directory's name, so
    the result is one character shorter. The caller drops the surplus keys.
    """
    agreed = NO_BYTE_BELOW_SLASH.match(start_after, len(prefix))
    if not start_after.startswith(prefix) or agreed is None:
        return ""
    earlier = agreed[0].removesuffix("/")[:-1]
    while earlier.endswith("/"):
        earlier = earlier[:-2]
    return prefix + earlier if earlier else ""


def in_byte_order(infos: Iterator[ObjectInfo], start: int) -> Iterator[ObjectInfo]:
    """Yield a listing in byte order, from one in byte order or one that walks directories.

    After the keys below `a/`, only names that begin with `a` and a character below ``/`` can sort before them (`a!`,
    `a-`, `a.`). So those keys are held until another name follows.

    Args:
        start: the number of characters that all its keys share.
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
    """Yield a listing in byte order, each key once, as callers that merge or resume listings require.

    Raises:
        StoreUnavailable: the store lists in an unsupported order.
    """
    last = None
    for info in infos:
        if last is not None and info.key <= last:
            if info.key == last:
                continue  # overwritten during the listing
            raise StoreUnavailable(
                f"{call.operation} {call.target}: {info.key!r} is listed after {last!r}; expected byte order"
            )
        last = info.key
        yield info


class Onward:
    """Detects listings without an end: a server can report more pages forever.

    Args:
        call: for messages.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._furthest = ""  # in byte order; `_walked` is the same for a walk through directories
        self._walked: list[str] = []
        self._still = 0

    def advance(self, last: str) -> None:
        """Record the last name of a page that is not the last page; empty for an empty page.

        Raises:
            StoreUnavailable: none of the last thousand pages had a later name than those before.
        """
        parts = last.split("/")
        if last > self._furthest or parts > self._walked:
            self._furthest, self._walked = max(self._furthest, last), max(self._walked, parts)
            self._still = 0
            return
        self._still += 1
        if self._still >= _PAGES_WITHOUT_PROGRESS:
            raise StoreUnavailable(
                f"{self._call.operation} {self._call.target}: {self._still} pages in a row contain no new name, and "
                "the store reports more pages"
            )


def below(name: str, prefix: str) -> str:
    """Return a listed name if it begins with the requested prefix.

    Raises:
        ValueError: it does not.
    """
    if not name.startswith(prefix):
        raise ValueError(f"{name[:200]!r} is listed below {prefix!r}")
    return name


def directory_below(name: str, prefix: str) -> str:
    """Return the part of a directory's name after the requested prefix, with the delimiter at its end.

    Raises:
        ValueError: it is not such a name.
    """
    part = below(name, prefix)[len(prefix) :]
    if part.find("/") != len(part) - 1 or not part:
        raise ValueError(f"{name[:200]!r} is listed as a directory below {prefix!r}")
    return part


def _key(info: ObjectInfo) -> str:
    return info.key
