"""Processes as generators of single operations, and how the world runs them."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from tests.tail.bucket import Bucket, Pack
from ts_common.archive.object_keys import pack_name
from ts_common.archive.tail_chain import TailEntry

T = TypeVar("T")

UNKNOWN: Final = "unknown"  # the answer of a put that was lost


class Operation(NamedTuple):
    """One operation; a put can be late, and its answer can be lost. `label` names those that tests wait for."""

    do: Callable[[], Any]
    is_put: bool = False
    label: str = ""


Steps = Generator[Operation, Any, T]


class Again(Exception):
    """What a process has read is not what the store has: it begins again."""


@dataclass
class Process:
    """A process with its next operation; a reader has no `broker`, a deletion has -1."""

    steps: Steps[Any]
    operation: Operation
    broker: int | None
    is_paused: bool = False
    is_done: bool = False
    waits: bool = False


def do(operation: Callable[[], T], label: str = "") -> Steps[T]:
    """Do an operation, and return its result."""
    result: T = yield Operation(operation, label=label)
    return result


def put(operation: Callable[[], T], label: str = "") -> Steps[T | str]:
    """Do an operation that can be late; return its result, or `UNKNOWN`."""
    result: T | str = yield Operation(operation, is_put=True, label=label)
    return result


def read_log(bucket: Bucket, log: str) -> Steps[tuple[int, tuple[TailEntry, ...]]]:
    """Return the number of a log's newest pack and its index; 0 without one.

    Raises:
        Again: the pack was deleted since the listing.
    """
    number = yield from do(lambda: bucket.newest(log))
    if not number:
        return 0, ()
    pack: Pack | None = yield from do(lambda: bucket.get(log, pack_name(number)))
    if pack is None:
        raise Again
    return number, pack.rows
