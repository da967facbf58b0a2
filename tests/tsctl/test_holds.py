"""Holds in several stores, and what other processes do between two requests of a command."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.holds import Hold, read_hold, read_holds, read_removals
from ts_common.errors import OperatorError, OutcomeUnknown, QueryError, StaleStateError, StoreUnavailable
from ts_common.store.contract import NO_METADATA, Body, Condition, DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.holds import HoldState, add_hold, list_holds, remove_hold

HOLD = Hold(name="case", reason="audit", topics=("orders",), time=1000)


class Met(WrappedStore):
    """A store where another process acts before or after a put, or before a conditional delete."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
        before_delete: Callable[[], object] = lambda: None,
        identity: str | None = None,
    ) -> None:
        super().__init__(inner, threads=1)
        self._before, self._after, self._before_delete, self._identity = before, after, before_delete, identity

    def identity(self) -> str | None:
        return self._identity or super().identity()

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        self._before()
        found = super().put(key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c)
        self._after()
        return found

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        self._before_delete()
        return super().delete_matching(etags)


@pytest.fixture
def archives(tmp_path: Path) -> tuple[MadeArchive, MadeArchive]:
    """Return two stores of one archive."""
    return MadeArchive(tmp_path / "a"), MadeArchive(tmp_path / "b")


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def test_a_half_done_hold_stops_retention_and_is_completed_by_the_same_command(
    archives: tuple[MadeArchive, MadeArchive],
) -> None:
    """The second store fails: the first one has the hold, a warning names both, and other terms are refused."""
    (a, b), warnings = archives, list[str]()
    wanted = replace(HOLD, until=9000)
    with pytest.raises(StoreUnavailable):
        add_hold([a.store, Met(b.store, before=failing(StoreUnavailable("away")))], a.keys, wanted, warnings.append)
    (warning,) = warnings
    assert f"{a.location} has it and stops retention, {b.location} lacks it" in warning
    assert "--until @9000" in warning
    (listed,) = list_holds([a.store, b.store], a.keys, 0)
    assert (listed.missing_in, listed.hold.stops("orders", 0)) == ([b.location], True)
    for other in (
        replace(wanted, until=9001),
        replace(wanted, topics=("orders", "pay")),
        replace(wanted, two_people=True),
    ):
        with pytest.raises(QueryError, match=r"choose another name.*--topic orders --reason audit --until @9000"):
            add_hold([a.store, b.store], a.keys, other, warnings.append)
    assert read_hold(b.store, b.keys, "case") is None
    assert add_hold([a.store, b.store], a.keys, replace(wanted, time=2000), warnings.append) == [b.location]
    assert read_holds(a.store, a.keys) == read_holds(b.store, b.keys) != ()
    assert add_hold([a.store, b.store], a.keys, wanted, warnings.append) == []
    assert len(warnings) == 1


def test_a_put_without_a_response_is_read(archives: tuple[MadeArchive, MadeArchive]) -> None:
    """The hold is written, or another process wrote the same: both are success; another hold is named."""
    a, b = archives
    lost = Met(a.store, after=failing(OutcomeUnknown("no response")))
    assert add_hold([lost], a.keys, HOLD, print) == [a.location]
    same = Met(b.store, before=lambda: b.store.put(b.keys.hold("case"), replace(HOLD, time=7).encode()))
    assert add_hold([same], b.keys, HOLD, print) == [b.location]
    b.store.delete([b.keys.hold("case")])
    other = replace(HOLD, topics=("pay",)).encode()
    with pytest.raises(QueryError, match="another hold of this name"):
        add_hold([Met(b.store, before=lambda: b.store.put(b.keys.hold("case"), other))], b.keys, HOLD, print)
    with pytest.raises(OutcomeUnknown):
        add_hold([Met(b.store, before=failing(OutcomeUnknown("x")))], b.keys, replace(HOLD, name="never"), print)


def test_an_add_that_meets_a_removal_is_no_success(archives: tuple[MadeArchive, MadeArchive]) -> None:
    """Another process removes the hold from the first store while the second one gets it."""
    a, b = archives
    met = Met(b.store, before=lambda: remove_hold([a.store], a.keys, "case", "closed", 2000))
    with pytest.raises(StaleStateError, match="does not have it any more; repeat the command"):
        add_hold([a.store, met], a.keys, HOLD, print)
    (listed,) = list_holds([a.store, b.store], a.keys, 0)
    assert listed.missing_in == [a.location]


def test_a_removal_keeps_a_hold_that_was_set_meanwhile(archives: tuple[MadeArchive, MadeArchive]) -> None:
    """The delete has the ETag of the hold that was read. Each removal has its trace, written before it."""
    a, _ = archives
    add_hold([a.store], a.keys, HOLD, print)
    later = replace(HOLD, reason="another audit", time=3000)

    def replaced() -> None:
        remove_hold([a.store], a.keys, "case", "mine", 2000)
        add_hold([a.store], a.keys, later, print)

    with pytest.raises(StaleStateError, match="another hold of this name by now; it was kept"):
        remove_hold([Met(a.store, before_delete=replaced)], a.keys, "case", "theirs", 2500)
    assert [hold.reason for hold in read_holds(a.store, a.keys)] == ["another audit"]
    with pytest.raises(StoreUnavailable):
        remove_hold([Met(a.store, before=failing(StoreUnavailable("away")))], a.keys, "case", "x", 4000)
    assert len(read_holds(a.store, a.keys)) == 1  # without a trace nothing is deleted
    with pytest.raises(StoreUnavailable):
        remove_hold([Met(a.store, before_delete=failing(StoreUnavailable("away")))], a.keys, "case", "x", 4000)
    states = [(one.state, one.hold.reason) for one in list_holds([a.store], a.keys, 0, pytest.fail)]
    assert states.count((HoldState.HELD, "another audit")) == 1
    assert (HoldState.REMOVED, "another audit") not in states  # its trace exists, but the hold too
    remove_hold([a.store], a.keys, "case", "closed", 5000)
    assert [(each.hold.reason, each.reason) for each in read_removals(a.store, a.keys, pytest.fail)] == [
        ("audit", "mine"),
        ("audit", "theirs"),
        ("another audit", "x"),
        ("another audit", "closed"),
    ]
    with pytest.raises(QueryError, match="has no such hold"):
        remove_hold([a.store], a.keys, "case", "again", 6000)


def test_two_people_remove_a_hold(archives: tuple[MadeArchive, MadeArchive]) -> None:
    """Who set it in one store removes it in none; who cannot be named neither sets nor removes it."""
    (a, b), wanted, warnings = archives, replace(HOLD, two_people=True), list[str]()

    def stores(identity: str, *places: MadeArchive) -> list[ObjectStore]:
        return [Met(place.store, identity=identity) for place in places]

    class Unnamed(WrappedStore):
        def identity(self) -> None:
            return None

    with pytest.raises(OperatorError, match="gives no identity"):
        add_hold([Unnamed(a.store, threads=1)], a.keys, wanted, print)
    add_hold(stores("anna key1", a), a.keys, wanted, warnings.append)
    add_hold(stores("ben", a, b), a.keys, wanted, warnings.append)
    assert "neither of them can remove it" in warnings[0]
    for same in ("anna key2", "ben", "key1"):
        with pytest.raises(OperatorError, match="another person must remove it; nothing was changed"):
            remove_hold(stores(same, a, b), a.keys, "case", "closed", 2000)
    with pytest.raises(OperatorError, match="gives no identity"):
        remove_hold([Unnamed(a.store, threads=1)], a.keys, "case", "closed", 2000)
    assert read_removals(a.store, a.keys, pytest.fail) == read_removals(b.store, b.keys, pytest.fail) == ()
    assert remove_hold(stores("cleo", a, b), a.keys, "case", "closed", 2000) == [a.location, b.location]
    (trace,) = read_removals(b.store, b.keys, pytest.fail)
    assert (trace.hold.set_by, trace.removed_by, trace.hold.two_people) == ("ben", "cleo", True)
