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
from tsctl.thaw.thawing import DAY_SECONDS, Thaw

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
    thawed: list[int] = []
    Thaw(7, ThawTier.BULK, pause=pauses.append).wait(objects(store, count), thawed.append)
    assert pauses == [5.0, 7.5, 11.25]
    assert sum(thawed) == count
    assert len(store.looked) == 3 * 256 + 2 * count  # all once more after the wait
    assert store.thaws == []


def test_a_thaw_that_the_store_does_not_show_is_requested_again_and_then_an_error(tmp_path: Path) -> None:
    """The wait would never end."""
    store = Slow(tmp_path, {"0000.log": 99}, lost=True)
    thaw = Thaw(7, ThawTier.BULK, pause=lambda _seconds: None)
    assert thaw.request(objects(store, 1, FROZEN)) == 1
    with pytest.raises(OperatorError, match=r"0000\.log in file:.*after 3 requests it cannot be read for 7 days"):
        thaw.wait(objects(store, 1, FROZEN), lambda _: None)
    assert store.thaws == ["0000.log"] * 3


def test_what_cannot_be_read_long_enough_is_requested(tmp_path: Path) -> None:
    """A frozen object, and a copy that expires too early; no thaw in progress, no copy that is kept long enough."""
    store, now, day = Slow(tmp_path, {}), 1e9, 86_400
    states = (
        *(FROZEN, THAWING, READABLE),
        *(ThawState("GLACIER", until=now + 2 * day), ThawState("GLACIER", until=now + 7 * day - 60)),
    )
    cold = [ColdObject(store, KEYS, f"{number}.log", 1, state) for number, state in enumerate(states)]
    assert Thaw(7, ThawTier.STANDARD, clock=lambda: now).request(cold) == 2
    assert sorted(store.thaws) == ["0.log", "3.log"]


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

    def wait(self, days: int, *keys: str) -> list[str]:
        """Wait for objects whose thaws were requested, and return the keys that are left."""
        cold = [ColdObject(self, KEYS, key, 1, ThawState("DEEP_ARCHIVE", True, True)) for key in keys]
        thaw = Thaw(days, ThawTier.BULK, pause=self.pause, clock=lambda: self.now)
        return [each.key for each in thaw.wait(cold, lambda _: None)]


def test_a_thaw_of_fewer_days_that_was_in_progress_is_extended(tmp_path: Path) -> None:
    """Another command requested it for one day; the copy that has enough days has no further request."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (day, 2 * day), "b": (day, 40 * day)}, {})
    assert store.wait(30, "a", "b") == ["a", "b"]
    assert (store.copies["a"][1], store.thaws) == (31 * day, ["a"])


def test_a_copy_that_expired_while_others_thawed_is_requested_again(tmp_path: Path) -> None:
    """The wait ends when both can be read at the same time."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (0, day), "b": (2 * day, 3 * day)}, {"a": 12})
    left = store.wait(1, "a", "b")
    assert store.thaws == ["a"]
    assert not any(store.thaw_state(key).is_frozen for key in left)


def test_copies_that_expire_before_the_others_can_be_read_are_an_error(tmp_path: Path) -> None:
    """The wait would never end: each object needs two days, and a copy is kept for one."""
    day = DAY_SECONDS
    store = Clocked(tmp_path, {"a": (0, day), "b": (2 * day, 3 * day)}, {"a": 48, "b": 48})
    with pytest.raises(OperatorError, match=r" in file:.* cannot be read for 1 day; .* with more --days"):
        store.wait(1, "a", "b")


def test_an_object_that_was_removed_during_the_wait_is_not_left(tmp_path: Path) -> None:
    """The wait does not need it, and does not return it."""
    store = Clocked(tmp_path, {"a": (1, 1e9)}, {})
    assert store.wait(1, "a", "b") == ["a"]
