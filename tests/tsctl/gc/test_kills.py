"""A collector that is killed at each of its writes, and run again; also after an election that went back."""

import shutil
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.made_archive import MadeArchive, batches
from tests.matrix import cases
from tests.tsctl.gc.archives import (
    GRACE,
    FixedRetention,
    Killed,
    bases,
    keep_last,
    later,
    names,
    run_in,
    ship,
    start_of,
)
from ts_common.archive.commit import Commit, Lineage, decode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.store.contract import DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore

_Found = TypeVar("_Found")


class Killing(WrappedStore):
    """A store whose client is killed at the write of a number: before it, half-way in a delete, or after it."""

    def __init__(self, inner: ObjectStore, at: int, when: str) -> None:
        super().__init__(inner, threads=1)
        self._left, self._when, self.writes = at, when, 0

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        return self._write(lambda _: self._inner.put(key, *arguments, **named), {})

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        return self._write(self._inner.delete_matching, etags)

    def _write(self, write: Callable[[Mapping[str, str]], _Found], etags: Mapping[str, str]) -> _Found:
        if self._left < 0:  # a killed process writes nothing more
            raise Killed
        self.writes += 1
        is_last = self._left == 0
        self._left -= 1
        if is_last and self._when == "before":
            raise Killed
        if is_last and self._when == "half" and etags:
            write(dict(list(etags.items())[: len(etags) // 2]))
            raise Killed
        found = write(etags)
        if is_last:
            raise Killed
        return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of ten segments."""
    made = MadeArchive(tmp_path_factory.mktemp("template") / "bucket")
    for partition in (0, 1):
        ship(made, "t", 0, 100, partition=partition)
    return Path(made.location.removeprefix("file://"))


@pytest.fixture
def make(template: Path, tmp_path: Path) -> Callable[[], MadeArchive]:
    """Return a function that returns a copy of the template, each time another one."""
    numbers = count()
    return lambda: MadeArchive(shutil.copytree(template, tmp_path / str(next(numbers))))


def size_of_one() -> int:
    return len(batches((0, 10)))


def collect(archive: MadeArchive, retention: FixedRetention, store: ObjectStore | None = None) -> None:
    run_in(store or archive.store, archive, retention)


def both_runs(archive: MadeArchive, at: int, when: str) -> int:
    """Hide and delete, and kill the process at a write; return the number of writes before the end."""
    store = Killing(archive.store, at, when)
    try:
        collect(archive, keep_last(3, size_of_one()), store)
        later(archive, GRACE)
        collect(archive, keep_last(3, size_of_one()), store)
    except Killed:
        pass
    return store.writes


def go_back(archive: MadeArchive, offset: int) -> None:
    """Let an election remove the records from an offset on, and a leader of epoch 2 ship others, as agents do."""
    keys = archive.partition("t")
    before = decode_log_start(archive.store.get(keys.log_start)[0], keys.log_start)
    lineage, epochs = Lineage(2, offset, 100), EpochHistory(((0, 0), (2, offset)))
    commit = Commit(offset, offset, 2, epochs, None, None, 1, 0, "back", lineage=lineage)
    archive.store.put(keys.commit, commit.encode())
    archive.store.put(keys.log_start, before.in_lineage(lineage, min(before.offset, offset)).encode())
    for base in range(offset, 80, 10):
        archive.put_segment("t", base, batches((base, base + 10), epoch=2), variant=True)
    archive.store.put(keys.commit, Commit(70, 80, 2, epochs, None, None, 1, 0, "on", lineage=lineage).encode())


@pytest.mark.parametrize("when", cases(["before", "half", "after"], quick=["half"]))
def test_g03_a_killed_collector_is_repeated_and_no_reader_sees_a_hole(
    make: Callable[[], MadeArchive], when: str
) -> None:
    """G03: at each write, of both runs, the view is whole, and the runs after it leave what the policy keeps."""
    for at in count():
        made = make()
        if both_runs(made, at, when) <= at:
            assert at > 8
            return
        assert {start_of(made), start_of(made, partition=1)} <= {0, 70}
        assert {f"{base:020d}.index" for base in bases(made)} <= set(names(made)), at  # no `.log` without its indexes
        for _ in range(3):
            later(made, GRACE)
            collect(made, keep_last(3, size_of_one()))
        assert bases(made) == bases(made, partition=1) == [70, 80, 90], at
        assert [name for name in names(made) if name < f"{70:020d}"] == [], at  # no index without its log
        assert start_of(made) == 70


@pytest.mark.parametrize("offset", cases([40, 70, 80], quick=[40]))
def test_an_election_after_a_killed_run_keeps_the_new_segments(make: Callable[[], MadeArchive], offset: int) -> None:
    """The new leader's segments stay, whatever write the collector was killed at before."""
    for at in count():
        made = make()
        if both_runs(made, at, "half") <= at:
            return
        go_back(made, offset)
        start = start_of(made)
        assert start in {0, offset, 70}
        for _ in range(2):
            later(made, GRACE)
            collect(made, keep_last(4, size_of_one()))
            assert start_of(made) in {start, 40}  # what is hidden and not released shows again
            assert len([name for name in names(made) if ".e2." in name]) == len(range(offset, 80, 10)), at


def test_g03_two_collectors_at_once_leave_what_one_leaves(make: Callable[[], MadeArchive]) -> None:
    """G03: each write of one collector is followed by a whole run of another."""

    archive = make()

    class Doubled(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            found = self._inner.put(key, *arguments, **named)
            collect(archive, keep_last(3, size_of_one()))
            return found

        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            collect(archive, keep_last(3, size_of_one()))
            return self._inner.delete_matching(etags)

    for _ in range(4):
        collect(archive, keep_last(3, size_of_one()), Doubled(archive.store, threads=1))
        assert start_of(archive) == 70
        later(archive, GRACE)
    assert bases(archive) == bases(archive, partition=1) == [70, 80, 90]
