"""The writes of an erasure: killed at each request, and next to another eraser, an agent and a collector."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches, steps
from ts_common.archive.catalog import read_catalog, read_log_start
from ts_common.archive.commit import Lineage, LogStart
from ts_common.archive.erased_list import ErasedList, encode_erased_list, erased_key
from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.errors import CorruptData, ObjectNotFound, OperatorError, OutcomeUnknown
from ts_common.store.contract import IfAbsent, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.erase.listing import add_to_list, remove_former_lists

FIRST = ErasedOffsets.of([(3, 5, 1)])
SECOND = ErasedOffsets.of([(7, 8, 1)])
GIVEN = LogStart(2, Lineage(1, 5, 9), floor=1, since="gc-1", written_by="gc-1")


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Ten records of a partition, and a `log.start` with all fields of agent and collector."""
    made = MadeArchive(tmp_path / "bucket")
    made.put_segment("t", 0, batches(*steps(0, 10)))
    made.commit("t", 10, highest_base=0)
    made.store.put(made.partition("t").log_start, GIVEN.encode())
    return made


def named(archive: MadeArchive) -> LogStart:
    stored = read_log_start(archive.store, archive.partition("t").log_start)
    assert stored is not None
    return stored.content


def numbers(archive: MadeArchive) -> list[str]:
    keys = archive.partition("t")
    return [info.key.removeprefix(keys.erased) for info in archive.store.list(keys.erased)]


def erased(archive: MadeArchive) -> ErasedOffsets:
    """What readers hide: by the greatest list, and by `log.start`."""
    catalog = replace(read_catalog(archive.store, archive.partition("t"), (None, None)), commit=None)
    return catalog.read_erased(archive.store)


def put_list(archive: MadeArchive, number: int, offsets: ErasedOffsets) -> None:
    keys = archive.partition("t")
    archive.store.put(erased_key(keys, number), encode_erased_list(keys, ErasedList(number, 1, offsets)))


class Killed(BaseException):
    """The process was killed."""


class Requests(WrappedStore):
    """Counts requests, and calls a function before the request of a number, or after it."""

    def __init__(self, inner: ObjectStore, at: int, call: Callable[[], None], *, after: bool = False) -> None:
        super().__init__(inner, threads=1)
        self.count, self._at, self._call, self._after = 0, at, call, after

    def _do(self, request: Callable[[], Any]) -> Any:
        self.count += 1
        is_it = self.count == self._at
        if is_it and not self._after:
            self._call()
        answer = request()
        if is_it and self._after:
            self._call()
        return answer

    def open(self, *arguments: Any, **named: Any) -> Any:
        return self._do(lambda: self._inner.open(*arguments, **named))

    def put(self, *arguments: Any, **named: Any) -> ObjectInfo:
        found: ObjectInfo = self._do(lambda: self._inner.put(*arguments, **named))
        return found

    def list(self, *arguments: Any, **named: Any) -> Any:
        return self._do(lambda: iter([*self._inner.list(*arguments, **named)]))


def kill() -> None:
    raise Killed


def lose_the_answer() -> None:
    raise OutcomeUnknown("no answer")


def test_a_list_is_put_and_named_with_all_that_others_wrote(archive: MadeArchive) -> None:
    """The second list has what the first one has; the same offsets again put none."""
    keys = archive.partition("t")
    assert add_to_list(archive.store, keys, FIRST) == 1
    assert add_to_list(archive.store, keys, SECOND) == 2
    assert add_to_list(archive.store, keys, FIRST) == 2
    assert numbers(archive) == ["1.bin", "2.bin"]
    assert erased(archive).contains(FIRST.union(SECOND))
    now = named(archive)
    assert replace(now, erased=None, written_by="gc-1") == GIVEN
    assert (now.erased, (now.written_by or "").startswith("erase-")) == (2, True)
    assert b'"version":3' in archive.store.get(keys.log_start)[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_killed_at_each_request_and_repeated_it_hides_all(archive: MadeArchive, at: int, after: bool) -> None:
    """After the kill readers can read; after the same request again all is hidden, by one list."""
    keys = archive.partition("t")
    with pytest.raises(Killed):
        add_to_list(Requests(archive.store, at, kill, after=after), keys, FIRST)
    erased(archive)
    assert add_to_list(archive.store, keys, FIRST) == 1
    assert (numbers(archive), named(archive).erased) == (["1.bin"], 1)
    assert erased(archive).contains(FIRST)


def test_the_kills_are_at_all_requests(archive: MadeArchive) -> None:
    """GET `log.start`, list, PUT the list, list again, PUT `log.start`."""
    counted = Requests(archive.store, 0, kill)
    add_to_list(counted, archive.partition("t"), FIRST)
    assert counted.count == 5


@pytest.mark.parametrize("offsets", [FIRST, SECOND], ids=["the same offsets", "others"])
@pytest.mark.parametrize("at", range(1, 6))
def test_two_erasers_at_once_hide_what_both_erase(archive: MadeArchive, at: int, offsets: ErasedOffsets) -> None:
    """The other one does all of its work before a request of the first."""
    keys = archive.partition("t")
    store = Requests(archive.store, at, lambda: _add(archive, offsets))
    number = add_to_list(store, keys, FIRST)
    assert erased(archive).contains(FIRST.union(offsets))
    assert named(archive).erased == number
    assert len(numbers(archive)) == (1 if offsets is FIRST else 2)


def _add(archive: MadeArchive, offsets: ErasedOffsets) -> None:
    add_to_list(archive.store, archive.partition("t"), offsets)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_write_of_log_start_meanwhile_is_kept(archive: MadeArchive, at: int) -> None:
    """An agent begins a lineage, or a collector moves the start: the eraser reads again, and carries it."""
    keys = archive.partition("t")

    def move() -> None:
        stored = named(archive)
        moved = replace(stored, offset=4, lineage=Lineage(7, 4, 9), written_by="agent-1")
        archive.store.put(keys.log_start, moved.encode())

    add_to_list(Requests(archive.store, at, move), keys, FIRST)
    now = named(archive)
    assert (now.offset, now.lineage, now.floor, now.erased) == (4, Lineage(7, 4, 9), 1, 1)


def test_a_late_put_under_a_number_that_was_removed_does_not_count(archive: MadeArchive) -> None:
    """Killed erasers have put lists 1 to 3, and list 1 was removed, while this one waited with its put of list 1."""
    keys = archive.partition("t")

    def others() -> None:
        put_list(archive, 2, SECOND)
        put_list(archive, 3, SECOND)

    assert add_to_list(Requests(archive.store, 3, others), keys, FIRST) == 4
    assert erased(archive).contains(FIRST.union(SECOND))


def test_a_lost_list_ends_it(archive: MadeArchive) -> None:
    """The next list would get the number of the lost one, and readers would use it."""
    keys = archive.partition("t")
    add_to_list(archive.store, keys, FIRST)
    archive.store.delete([erased_key(keys, 1)])
    with pytest.raises(CorruptData, match=r"names list 1, and .*erased/ has none from there on: it was lost"):
        add_to_list(archive.store, keys, SECOND)
    assert numbers(archive) == []


def test_without_log_start_it_ends(archive: MadeArchive) -> None:
    """The leader's agent writes it, with the greatest list."""
    keys = archive.partition("t")
    archive.store.delete([keys.log_start])
    with pytest.raises(OperatorError, match=r"log\.start is missing"):
        add_to_list(archive.store, keys, FIRST)
    assert numbers(archive) == []


def test_a_put_whose_answer_is_lost_is_found(archive: MadeArchive) -> None:
    """Both writes can have succeeded; no second list is put."""
    keys = archive.partition("t")
    for at in (3, 5):
        assert add_to_list(Requests(archive.store, at, lose_the_answer, after=True), keys, FIRST) == 1
    assert numbers(archive) == ["1.bin"]


def test_lists_below_the_last_two_are_removed_a_grace_later(archive: MadeArchive) -> None:
    """Readers that listed one of them may still read it."""
    keys, store = archive.partition("t"), archive.store
    for end in range(1, 5):
        add_to_list(store, keys, ErasedOffsets.of([(0, end, 1)]))
    assert remove_former_lists(store, keys, 3600) == []
    assert remove_former_lists(store, keys, -1) == [1, 2]
    assert numbers(archive) == ["3.bin", "4.bin"]
    assert erased(archive).count == 4
    with pytest.raises(ObjectNotFound):
        store.head(erased_key(keys, 1))
    assert store.put(erased_key(keys, 1), b"", condition=IfAbsent()).size == 0
