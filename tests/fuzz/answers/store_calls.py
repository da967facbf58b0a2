"""The calls of `ObjectStore` that inputs make, and what their results must be: the contract of `contract.py`."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.fuzz.target import Mismatch
from ts_common.store.contract import ByteRange, Condition, IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_common.store.thaw_state import ThawTier
from ts_common.store.validation import is_key

_BODY = b"0123456789"


def make(store: ObjectStore, words: list[str]) -> None:
    """Make the call that these words describe (see `store_answers`).

    Raises:
        Mismatch: the result is not one that the contract allows.
        Exception: what the driver raises.
    """
    usable = [word for word in words[1:] if is_key(word.rstrip("/")) or _is_number(word)]
    _CALLS.get(words[0], _get)(store, usable)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 10


def _get(store: ObjectStore, words: list[str]) -> None:
    numbers = [int(each) for each in words[1:3] if _is_number(each)]
    try:
        wanted = ByteRange(*numbers) if numbers else None
    except ValueError:
        wanted = None
    with store.open(words[0] if words else "key", wanted) as stream:
        info = _checked(stream.info)
        first = stream.read(4)
        buffer = bytearray(8)
        got = stream.readinto(memoryview(buffer))
        rest = 0
        while piece := stream.read(1 << 16):
            rest += len(piece)
            if rest > 1 << 20:
                return  # as long as its header declares
    start, end = 0, info.size
    if wanted is not None:
        start = wanted.start if wanted.start >= 0 else max(0, info.size + wanted.start)
        end = info.size if wanted.end is None else min(wanted.end, info.size)
    if len(first) + got + rest != max(0, end - start):
        raise Mismatch(f"{len(first) + got + rest} bytes of {start} to {end} were read")


def _head(store: ObjectStore, words: list[str]) -> None:
    _checked(store.head(words[0] if words else "key"))


def _list(store: ObjectStore, words: list[str]) -> None:
    prefix, start_after = (*words[:2], "", "")[:2]
    last = start_after
    for count, info in enumerate(store.list(prefix, start_after=start_after)):
        _checked(info)
        if not info.key.startswith(prefix) or not is_key(info.key):
            raise Mismatch(f"{info.key!r} is listed below {prefix!r}")
        if info.key <= last:
            raise Mismatch(f"{info.key!r} is listed after {last!r}")
        last = info.key
        if count > 100_000:
            return


def _directories(store: ObjectStore, words: list[str]) -> None:
    prefix = words[0] if words and words[0].endswith("/") else ""
    last = ""
    for name in store.list_directories(prefix):
        if not name.endswith("/") or "/" in name[:-1] or not is_key(name[:-1]) or name <= last:
            raise Mismatch(f"the directory {name!r} after {last!r}")
        last = name


def _put(store: ObjectStore, words: list[str]) -> None:
    key = words[0] if words else "key"
    condition: Condition = None
    if words[1:] == ["absent"]:
        condition = IfAbsent()
    elif words[1:] == ["match"]:
        condition = IfMatch(_checked(store.head(key)).etag)
    info = store.put(key, _BODY, metadata={"ts-end": "5"}, condition=condition)
    if _checked(info).size != len(_BODY):
        raise Mismatch(f"{info.size} bytes were put")


def _replace(store: ObjectStore, words: list[str]) -> None:
    first = next(iter(store.list(words[0] if words else "")), None)
    if first is not None:
        store.put(_checked(first).key, _BODY, condition=IfMatch(first.etag))


def _delete(store: ObjectStore, words: list[str]) -> None:
    store.delete(words or ["key"])


def _check(store: ObjectStore, words: list[str]) -> None:
    del words
    store.check()


def _lifecycle(store: ObjectStore, words: list[str]) -> None:
    del words
    for rule in store.lifecycle_rules() or ():
        rule.applies_to("prod", 0, frozenset())
        f"{rule.name} {rule.expires} {rule.archives}".encode()


def _protection(store: ObjectStore, words: list[str]) -> None:
    del words
    found = store.protection()
    f"{found.versioned} {found.locks} {found.default_retention}".encode()


def _locked(store: ObjectStore, words: list[str]) -> None:
    """A lock that holds, of each key that the store keeps."""
    for key, lock in store.locked(words or ["key"], 5.0).items():
        if key not in (words or ["key"]) or not lock.holds(5.0):
            raise Mismatch(f"a lock of {key!r} that holds nothing")
        lock.reason.encode()


def _versions(store: ObjectStore, words: list[str]) -> None:
    prefix = words[0] if words else ""
    for count, each in enumerate(store.versions(prefix) or ()):
        _checked(each.info)
        if not each.info.key.startswith(prefix) or not is_key(each.info.key):
            raise Mismatch(f"a version of {each.info.key!r} is listed below {prefix!r}")
        each.id.encode()
        if count == 0 and not each.is_delete_marker:
            with store.open_version(each) as stream:
                _checked(stream.info)
                stream.read(4)
        if count > 100_000:
            return


def _thaw_state(store: ObjectStore, words: list[str]) -> None:
    found = store.thaw_state(words[0] if words else "key")
    if found.until is not None and math.isnan(found.until):
        raise Mismatch("a copy that expires at no time")


def _thaw(store: ObjectStore, words: list[str]) -> None:
    store.thaw(words[0] if words else "key", 7, ThawTier.STANDARD)


def _matching(store: ObjectStore, words: list[str]) -> None:
    """Each key has one outcome."""
    keys = words or ["key"]
    found = store.delete_matching(dict.fromkeys(keys, '"781e5e245d69b566979b86e28d23f2c7"'))
    if sorted((*found.removed, *found.kept, *found.failed)) != sorted(set(keys)):
        raise Mismatch(f"{found} of {keys}")


_CALLS: Mapping[str, Callable[[ObjectStore, list[str]], None]] = {
    "get": _get,
    "head": _head,
    "list": _list,
    "directories": _directories,
    "put": _put,
    "replace": _replace,
    "delete": _delete,
    "check": _check,
    "lifecycle": _lifecycle,
    "protection": _protection,
    "locked": _locked,
    "versions": _versions,
    "thaw-state": _thaw_state,
    "thaw": _thaw,
    "matching": _matching,
}


def _checked(info: Any) -> ObjectInfo:
    """An info as the contract has it."""
    kinds: Iterable[tuple[Any, type]] = (
        (info, ObjectInfo),
        (info.key, str),
        (info.size, int),
        (info.etag, str),
        (info.modified, float),
        (info.metadata, Mapping),
    )
    for value, kind in kinds:
        if not isinstance(value, kind):
            raise Mismatch(f"{value!r} is no {kind.__name__}")
    if not 0 <= info.size < 1 << 63 or not math.isfinite(info.modified) or not info.etag:
        raise Mismatch("an info without size, ETag or date")
    for text in (info.key, info.etag, *info.metadata, *info.metadata.values()):
        text.encode()
    if not (info.etag.isascii() and info.etag.isprintable()):
        raise Mismatch("an ETag that no header can carry")
    found: ObjectInfo = info
    return found
