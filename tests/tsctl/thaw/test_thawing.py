"""The wait for thaws, without a store: rounds, pauses, a thaw that the store loses, copies that expire too early."""

from pathlib import Path

import pytest

from tests.made_archive import CLUSTER
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import ObjectNotFound, OperatorError
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.thaw.objects import ColdObject
from tsctl.thaw.thawing import DAY_SECONDS, Thawed, finish_thaw, plan_thaw, wait_until_thawed

KEYS = ClusterKeys(CLUSTER).partition(TopicPartition("t", 0))
FROZEN, THAWING, READABLE = (
    ThawState("GLACIER", is_frozen=True),
    ThawState("GLACIER", is_frozen=True, is_thawing=True),
    ThawState("GLACIER", until=1e12),
)


class Slow(WrappedStore):
    """A store whose objects can be read after so many looks at each.

    Attributes:
        looks: the looks that each object still needs, by key.
        looked: the keys of each look.
        thaws: the keys of requests.
        lost: whether no request begins a thaw.
    """

    def __init__(self, directory: Path, looks: dict[str, int], *, lost: bool = False) -> None:
        super().__init__(open_store(directory.as_uri()), threads=1)
        self.looks, self.lost = looks, lost
        self.looked: list[str] = []
        self.thaws: list[str] = []

    def thaw_state(self, key: str) -> ThawState:
        self.looked.append(key)
        if key not in self.looks:
            raise ObjectNotFound(key)
        self.looks[key] -= 1
        if self.looks[key] < 0:
            return READABLE
        return FROZEN if self.lost else THAWING

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        del days, tier
        self.thaws.append(key)


def objects(store: Slow, count: int, state: ThawState = THAWING) -> list[ColdObject]:
    return [ColdObject(store, KEYS, f"{number:04d}.log", 100, state) for number in range(count)]


def test_the_pauses_grow_and_a_round_ends_while_most_are_frozen(tmp_path: Path) -> None:
    """Hours pass: of many objects only the first are looked at until they can be read."""
    count = 1000
    store = Slow(tmp_path, {f"{number:04d}.log": 3 if number < 256 else 0 for number in range(count)})
    pauses: list[float] = []
    thawed: list[str] = []
    plan = plan_thaw(objects(store, count), 7, ThawTier.BULK, 0.0)
    wait_until_thawed(plan, lambda found: thawed.extend(each.key for each in found), pauses.append)
    assert pauses == [5.0, 7.5, 11.25]
    assert thawed == sorted(thawed) == [f"{number:04d}.log" for number in range(count)]
    assert len(store.looked) == 3 * 256 + count
    assert store.thaws == []


def test_an_object_that_retention_removed_is_not_waited_for(tmp_path: Path) -> None:
    """It counts as done."""
    store = Slow(tmp_path, {"0000.log": 1})
    done: list[str] = []
    plan = plan_thaw(objects(store, 2), 7, ThawTier.BULK, 0.0)
    wait_until_thawed(plan, lambda found: done.extend(each.key for each in found), lambda _seconds: None)
    assert sorted(done) == ["0000.log", "0001.log"]


def test_a_thaw_that_the_store_does_not_show_is_requested_again_and_then_an_error(tmp_path: Path) -> None:
    """The wait would never end."""
    store = Slow(tmp_path, {"0000.log": 99}, lost=True)
    plan = plan_thaw(objects(store, 1), 7, ThawTier.BULK, 0.0)
    with pytest.raises(OperatorError, match=r"0000\.log in file:.* shows no thaw of it after 3 requests"):
        wait_until_thawed(plan, lambda _found: None, lambda _seconds: None)
    assert store.thaws == ["0000.log"] * 2


def test_objects_are_sorted_by_what_they_need(tmp_path: Path) -> None:
    """A frozen one is requested, one in progress waited for; a copy that expires too early is extended."""
    store, now, day = Slow(tmp_path, {}), 1e9, 86_400
    states = (
        *(FROZEN, THAWING, READABLE),
        *(ThawState("GLACIER", until=now + 2 * day), ThawState("GLACIER", until=now + 7 * day - 60)),
    )
    cold = [ColdObject(store, KEYS, f"{number}.log", 1, state) for number, state in enumerate(states)]
    plan = plan_thaw(cold, 7, ThawTier.STANDARD, now)
    groups = (plan.to_request, plan.in_progress, plan.to_extend, plan.readable)
    assert [[each.key for each in group] for group in groups] == [["0.log"], ["1.log"], ["3.log"], ["2.log", "4.log"]]


class Clocked(WrappedStore):
    """A store whose objects have a readable copy between two times; each pause is twelve hours.

    Attributes:
        now: seconds since the epoch.
        copies: when the copy of each object begins and ends, by key.
        hours: what a thaw of each object needs, by key.
        thaws: the keys of requests.
    """

    def __init__(self, directory: Path, copies: dict[str, tuple[float, float]], hours: dict[str, float]) -> None:
        super().__init__(open_store(directory.as_uri()), threads=1)
        self.now, self.copies, self.hours = 0.0, copies, hours
        self.thaws: list[str] = []

    def pause(self, _seconds: float) -> None:
        self.now += DAY_SECONDS / 2

    def thaw_state(self, key: str) -> ThawState:
        if key not in self.copies:
            raise ObjectNotFound(key)
        begins, ends = self.copies[key]
        if begins <= self.now < ends:
            return ThawState("DEEP_ARCHIVE", until=ends)
        return ThawState("DEEP_ARCHIVE", is_frozen=True, is_thawing=self.now < begins)

    def thaw(self, key: str, days: int | None, tier: ThawTier) -> None:
        del tier
        self.thaws.append(key)
        begins, ends = self.copies[key]
        begins = begins if begins <= self.now < ends else self.now + self.hours[key] * 3600
        self.copies[key] = (begins, max(begins, self.now) + (days or 0) * DAY_SECONDS)

    def finish(self, days: int, *keys: str) -> Thawed:
        """Finish the thaw of objects whose requests were sent."""
        cold = [ColdObject(self, KEYS, key, 1, ThawState("DEEP_ARCHIVE", True, True)) for key in keys]
        plan = plan_thaw(cold, days, ThawTier.BULK, self.now)
        return finish_thaw(plan, lambda _: None, lambda _: None, pause=self.pause, clock=lambda: self.now)


def test_a_thaw_of_fewer_days_that_was_in_progress_is_extended(tmp_path: Path) -> None:
    """Another command requested it for one day; the copy that has enough days has no further request."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (day, 2 * day), "b": (day, 40 * day)}, {})
    ended = store.finish(30, "a", "b")
    assert (store.copies["a"][1], store.thaws, ended.again) == (31 * day, ["a"], 1)
    assert [each.key for each in ended.readable] == ["a", "b"]


def test_a_copy_that_expired_while_others_thawed_is_requested_again(tmp_path: Path) -> None:
    """The wait ends when both can be read at the same time."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (0, day), "b": (2 * day, 3 * day)}, {"a": 12})
    ended = store.finish(1, "a", "b")
    assert store.thaws == ["a"]
    assert not any(store.thaw_state(each.key).is_frozen for each in ended.readable)


def test_copies_that_expire_before_the_others_can_be_read_are_an_error(tmp_path: Path) -> None:
    """The wait would never end: each object needs two days, and a copy is kept for one."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (0, day), "b": (2 * day, 3 * day)}, {"a": 48, "b": 48})
    with pytest.raises(OperatorError, match=r"b in file:.* copy expires too early.* more --days or a faster --tier"):
        store.finish(1, "a", "b")


def test_an_object_that_was_removed_during_the_wait_is_not_readable(tmp_path: Path) -> None:
    """It is returned apart."""
    store = Clocked(tmp_path, {"a": (1, 1e9)}, {})
    ended = store.finish(1, "a", "b")
    assert [[each.key for each in group] for group in (ended.readable, ended.removed)] == [["a"], ["b"]]
