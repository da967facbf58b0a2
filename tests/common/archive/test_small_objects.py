"""Small objects: an object above the largest size of its kind is rejected before its bytes are read."""

import ast
import os
from pathlib import Path

import pytest

from ts_common.archive.commit import Commit, decode_commit
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.small_objects import COMMIT_BYTES, checked, get_small
from ts_common.errors import CorruptData
from ts_common.store.contract import ObjectStore

ROOT = Path(__file__).parents[3]


def test_r15_an_object_that_is_too_large_is_not_read(store: ObjectStore, tmp_path: Path) -> None:
    """A sparse file of a terabyte needs no memory, and the error has both sizes."""
    store.put("offset.wm", b"")
    os.truncate(tmp_path / "offset.wm", 1 << 40)
    with pytest.raises(CorruptData, match=rf"offset.wm: {1 << 40} bytes; at most {COMMIT_BYTES} are expected"):
        get_small(store, "offset.wm", COMMIT_BYTES)


def test_an_object_of_just_the_size_is_read(store: ObjectStore) -> None:
    """The limit is the largest accepted size."""
    store.put("a", b"x" * 100)
    assert get_small(store, "a", 100)[0] == b"x" * 100
    with pytest.raises(CorruptData, match="100 bytes; at most 99"):
        get_small(store, "a", 99)


def test_a_healthy_commit_with_many_epochs_stays_below_its_size() -> None:
    """The commit has one election an hour for twenty years, at offsets of 13 digits."""
    line = EpochHistory(tuple((epoch, 10**12 + epoch * 1000) for epoch in range(175_000)))
    commit = Commit(1, 2, 175_000, line, None, "x" * 22, 1, 1, "n" * 16)
    data = checked(commit.encode(), "k", COMMIT_BYTES)
    assert decode_commit(data, "k") == commit


def test_an_agent_writes_nothing_that_readers_refuse() -> None:
    """A commit above the size is rejected before it is written, so the previous one stays."""
    with pytest.raises(CorruptData, match="k: it would have 101 bytes, and readers accept at most 100"):
        checked(b"x" * 101, "k", 100)


def test_no_object_is_read_whole_without_a_largest_size() -> None:
    """`ObjectStore.get` without a range appears only in tests."""
    found = []
    rooms = ("ts_common", "ts_uploader", "ts_spark", "ts_reader", "ts_tables", "ts_endpoint", "tsctl")
    for path in [path for room in rooms for path in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                owner = ast.unparse(node.func.value)
                if owner.rpartition(".")[2].endswith("store") and len(node.args) + len(node.keywords) < 2:
                    found.append(f"{path.name}:{node.lineno}")
    assert not found
