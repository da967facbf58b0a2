"""Byte order from both kinds of servers: S3, which lists by bytes, and those that walk directories."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ts_common.store.contract import ObjectInfo
from ts_common.store.listing import in_byte_order, resume_after

Server = Callable[[Sequence[str], str, str], list[str]]

# Characters on both sides of the slash, few enough to generate equal names.
PART = st.text("ab-.0~", min_size=1, max_size=3).filter(lambda part: not part.startswith("."))
KEY = st.lists(PART, min_size=1, max_size=3).map("/".join)
PREFIX = st.one_of(st.just(""), KEY, KEY.map(lambda key: key + "/"))


def _by_bytes(keys: Sequence[str], prefix: str, start_after: str) -> list[str]:
    """List like S3."""
    return sorted(key for key in keys if key.startswith(prefix) and key > start_after)


def _by_directories(keys: Sequence[str], prefix: str, start_after: str) -> list[str]:
    """List like SeaweedFS: by parts, not bytes, and after a directory's name without the keys below it."""
    after = start_after.split("/")
    found = [key for key in keys if key.startswith(prefix) and key.split("/") > after]
    if start_after:
        found = [key for key in found if not key.startswith(start_after + "/")]
    return sorted(found, key=lambda key: key.split("/"))


SERVERS = pytest.mark.parametrize("server", [_by_bytes, _by_directories])


def _infos(keys: Sequence[str]) -> Iterator[ObjectInfo]:
    return (ObjectInfo(key, 0, "", 0.0) for key in keys)


def _listed(server: Server, keys: Sequence[str], prefix: str, start_after: str) -> list[str]:
    """Return the driver's result for a server's listing."""
    found = server(keys, prefix, resume_after(start_after, prefix))
    return [info.key for info in in_byte_order(_infos(found), len(prefix)) if info.key > start_after]


@SERVERS
@given(keys=st.sets(KEY, max_size=12), prefix=PREFIX, start_after=st.one_of(st.just(""), KEY, PREFIX))
@example(keys={"a/b", "a-b", "a.b", "a", "a0"}, prefix="", start_after="")
@example(keys={"a/b", "a-/b", "a-", "a--"}, prefix="", start_after="a-")
@example(keys={"a/b/0", "a/b-0"}, prefix="a/", start_after="a/b-")
@example(keys={"a/b"}, prefix="", start_after="a/")
def test_a_listing_is_in_byte_order_whatever_the_server_does(
    server: Server, keys: set[str], prefix: str, start_after: str
) -> None:
    """It has all keys of the prefix after the given one, each once, in byte order."""
    assert _listed(server, sorted(keys), prefix, start_after) == _by_bytes(sorted(keys), prefix, start_after)


@given(keys=st.sets(KEY, max_size=12), later=KEY, start_after=KEY)
def test_a_listing_request_never_starts_beyond_the_start_key_of_the_caller(
    keys: set[str], later: str, start_after: str
) -> None:
    """The server's start key sorts before the caller's, so no key is omitted."""
    assert resume_after(start_after, "") <= start_after
    assert resume_after(start_after, later) <= max(start_after, later)


def test_segments_of_one_partition_are_passed_on_at_once() -> None:
    """Names without a directory are not held: a listing of a million segments is not in memory."""

    def segments() -> Iterator[ObjectInfo]:
        yield from _infos(["t-0/00.log", "t-0/01.log"])
        pytest.fail("more was taken from the server than was asked for")

    listed = in_byte_order(segments(), len("t-0/"))
    assert [next(listed).key, next(listed).key] == ["t-0/00.log", "t-0/01.log"]


def test_directories_are_passed_on_one_after_the_other() -> None:
    """Only the keys below one directory are held, until the next directory's name."""
    taken: list[str] = []

    def entropy() -> Iterator[ObjectInfo]:
        for key in ("000/a/0", "000/b/0", "001/a/0", "001/b/0", "010/a/0"):
            taken.append(key)
            yield next(_infos([key]))

    listed = in_byte_order(entropy(), 0)
    assert next(listed).key == "000/a/0"
    assert taken == ["000/a/0", "000/b/0", "001/a/0"]
    assert [info.key for info in listed] == ["000/b/0", "001/a/0", "001/b/0", "010/a/0"]


def test_resuming_in_a_partition_lists_from_that_segment_on() -> None:
    """Both orders agree on the name up to the dot, so the server lists few surplus keys."""
    assert resume_after("t-0/00000000000000000100.log", "t-0/").startswith("t-0/0000000000000000010")
