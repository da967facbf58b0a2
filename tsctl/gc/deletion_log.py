"""The log of deletions: what became of each object of a plan, one line for each, by each attempt."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from ts_common.archive.gc_plans import PART_BYTES
from ts_common.archive.gc_runs import RunObjects
from ts_common.archive.small_objects import get_small
from ts_common.json_objects import decoding, parse_json, shown
from ts_common.store.contract import ObjectStore

LOG: Final = "log-"
_LINE_BYTES: Final = 16 << 10


class Outcome(StrEnum):
    """What became of an object of a plan."""

    REMOVED = "removed"
    MISSING = "missing"  # it is no longer listed: an earlier run that was killed, or another process, deleted it
    KEPT = "kept"  # it has another ETag than the plan
    LOCKED = "locked"  # the store keeps it until a time
    LEFT = "left"  # the partition is void in this plan, or the object is not due any more
    FAILED = "failed"


def read_log(store: ObjectStore, run: RunObjects) -> Iterator[dict[str, Any]]:
    """Yield each line of what a run deleted, with the partition that it belongs to.

    Raises:
        CorruptData: the log is damaged.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    for info in run.objects:
        if not info.key.removeprefix(run.directory).startswith(LOG):
            continue
        partition: str | None = None
        for line in get_small(store, info.key, 2 * PART_BYTES)[0].splitlines():
            with decoding(info.key, "a log of deletions", line):
                match parse_json(line, info.key, _LINE_BYTES):
                    case {"partition": str(partition), "outcome": str(outcome), "reason": str(reason)}:
                        yield {"partition": partition, "outcome": outcome, "reason": reason}
                    case {"partition": str(partition)}:
                        pass
                    case [str(name), int(size), str(etag), str(outcome)]:
                        yield {"partition": partition, "name": name, "bytes": size, "etag": etag, "outcome": outcome}
                    case other:
                        raise ValueError(f"{shown(other)} is no line of such a log")
