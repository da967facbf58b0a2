"""Objects of retention and of its readers: each is put into a store of its own, and read by its reader."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ts_common.archive.gc_plans import Plan, read_moves, read_parts, read_plan
from ts_common.archive.gc_runs import MOVES, PART, PLAN_NAME, list_runs, numbered_key, read_claim, run_directory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.following.checkpoint import read_checkpoint
from tsctl.gc.absence import ArchivedTopic, note_absent
from tsctl.gc.deletion_log import LOG, read_log

CLUSTER = ClusterKeys("c")
_RUN = "20261127T020000000Z-1f2e3d4c"
_PLAN = Plan(_RUN, 0, 0, 1, 1, 1, 1, {})
_DIRECTORY = run_directory(CLUSTER, _RUN)
_ABSENT = f"{CLUSTER.gc_runs}absent.json"
_CHECKPOINT = "offsets/0"
_PARTITION = {
    "topic": "t",
    "partition": 0,
    "directory": "t~a",
    "from": 1,
    "to": 5,
    "nonce": "n",
    "lineage": [1, 5, 5],
    "over": False,
}
JSON: Mapping[str, Any] = {
    "gc plan": {
        "version": 1,
        "time": 5,
        "due": 6,
        "parts": 1,
        "partitions": 1,
        "objects": 1,
        "bytes": 1,
        "policy": {"rules": []},
    },
    "gc part": _PARTITION,
    "gc moves": _PARTITION,
    "gc claim": {"version": 1, "use": "undo"},
    "gc log": ["00000000000000000001.log", 5, "e", "removed"],
    "gc absent": {"version": 1, "time": 5, "absent": {"t": 5}},
    "checkpoint": {"t": {"0": 5}, "~topicIds": {"t": "x"}, "~epochs": {"t": {"0": 4}}, "~began": {"t": {"0": 0}}},
}


class Retention:
    """A store that has one foreign object at a time.

    Args:
        directory: of the store.
        sane: raises for a value that no reader may return.
        same: raises if two values differ.
    """

    def __init__(self, directory: Path, sane: Callable[[object], None], same: Callable[[object, object], None]) -> None:
        self._store: ObjectStore = open_store(directory.as_uri())
        self._sane = sane
        self._same = same

    def run(self, name: str, data: bytes) -> None:
        """Put an object, read it, and write again what was read.

        Raises:
            TieredStorageError: it is damaged.
        """
        key, read = self._readers()[name]
        if name == "checkpoint":
            data = b"v1\n{}\n" + data
            self._store.put("commits/0", b"v1\n{}")
        self._store.put(key, data)
        try:
            read()
        finally:
            self._store.delete([key, _ABSENT])

    def _readers(self) -> Mapping[str, tuple[str, Callable[[], None]]]:
        part, moves = (numbered_key(CLUSTER, _RUN, kind, 0) for kind in (PART, MOVES))
        return {
            "gc plan": (_DIRECTORY + PLAN_NAME, self._plan),
            "gc part": (part, self._part),
            "gc moves": (moves, lambda: self._sane(list(read_moves(self._store, list_runs(self._store, CLUSTER)[0])))),
            "gc claim": (
                _DIRECTORY + "claim.json",
                lambda: self._sane(read_claim(self._store, CLUSTER, _RUN)),
            ),
            "gc log": (
                numbered_key(CLUSTER, _RUN, f"{LOG}x", 0),
                lambda: self._sane(list(read_log(self._store, list_runs(self._store, CLUSTER)[0]))),
            ),
            "gc absent": (_ABSENT, self._absent),
            "checkpoint": (_CHECKPOINT, self._checkpoint),
        }

    def _plan(self) -> None:
        found = read_plan(self._store, CLUSTER, _RUN)
        self._sane(dataclasses.replace(found, policy={}, time=0, due=0))  # the store's clock can raise the times

    def _part(self) -> None:
        for partition, objects in read_parts(self._store, CLUSTER, _PLAN):
            self._sane((partition, objects))
            if not partition.keys(CLUSTER).prefix.startswith("c/" + partition.partition.topic):
                raise AssertionError(partition)

    def _absent(self) -> None:
        topics = [ArchivedTopic(name, frozenset()) for name in ("t", "u")]
        self._sane(note_absent(self._store, CLUSTER, topics, {"u": None}, 10))

    def _checkpoint(self) -> None:
        self._sane(read_checkpoint(self._store))
