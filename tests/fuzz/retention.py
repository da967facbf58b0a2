"""Objects of retention and of its readers: each is put into a store of its own, and read by its reader."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_reader.following.checkpoint import read_checkpoint
from ts_uploader.committing.log_start import restore_by_copy
from tsctl.gc.incarnations import write_absent
from tsctl.gc.report import read_report

CLUSTER = ClusterKeys("c")
KEYS = CLUSTER.partition(TopicPartition("t", 0))
_RUN = "gc-20261127T020000000Z-1f2e3d4c"
_LOG_START_COPY = "log-start copy"
JSON: Mapping[str, Any] = {
    _LOG_START_COPY: {
        "version": 3,
        "lineage": [1, 5, 5],
        "floor": 5,
        "since": "gc-1",
        "erased": 4,
        "writtenBy": "erase-1",
    },
    "gc report": {"partition": "t-0", "did": "deleted", "objects": [["00000000000000000001.log", 5, "e", "removed"]]},
    "gc absent": {"version": 1, "time": 5, "absent": {"t": 5}},
    "checkpoint": {"t": {"0": 5}, "~topicIds": {"t": "x"}, "~epochs": {"t": {"0": 4}}, "~began": {"t": {"0": 0}}},
}
WITH_FIRST_LINE = {_LOG_START_COPY}


class Retention:
    """A store that has one foreign object at a time.

    Args:
        directory: of the store; it is made.
        sane: raises for a value that no reader may return.
    """

    def __init__(self, directory: Path, sane: Callable[[object], None]) -> None:
        directory.mkdir()
        self._store: ObjectStore = open_store(directory.as_uri())
        self._sane = sane

    def run(self, name: str, data: bytes) -> None:
        """Put an object, and read it.

        Raises:
            TieredStorageError: it is damaged.
        """
        if name == "checkpoint":
            data = b"v1\n{}\n" + data
            self._store.put("commits/0", b"v1\n{}")
        key, read = {
            _LOG_START_COPY: (CLUSTER.log_start_copy(KEYS), self._copy),
            "gc report": (f"{CLUSTER.gc}{_RUN}.jsonl", self._report),
            "gc absent": (f"{CLUSTER.gc}absent.json", self._absent),
            "checkpoint": ("offsets/0", lambda: self._sane(read_checkpoint(self._store))),
        }[name]
        self._store.put(key, data)
        try:
            read()
        finally:
            self._store.delete([key, KEYS.log_start])

    def _copy(self) -> None:
        """The agent writes a lost `log.start` by it."""
        self._sane(restore_by_copy(self._store, CLUSTER, KEYS))

    def _report(self) -> None:
        for line in read_report(self._store, CLUSTER, _RUN):
            json.dumps(line).encode()

    def _absent(self) -> None:
        self._sane(write_absent(self._store, CLUSTER, {"t": frozenset(), "u": frozenset()}, {"u": None}, 10))
