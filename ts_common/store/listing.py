"""Listings in byte order from servers that walk directories.

S3 lists keys in the order of their bytes, so `a-b` (0x2d) before `a/b` (0x2f). SeaweedFS walks directories: all of `a/`
where it meets the name `a`, then `a-b`. The two orders differ only around characters below ``/``. What stands here
makes one of the other, and leaves alone what is in byte order already.
"""

import re
from collections.abc import Iterator

from ts_common.store.contract import ObjectInfo

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


def _key(info: ObjectInfo) -> str:
    return info.key
