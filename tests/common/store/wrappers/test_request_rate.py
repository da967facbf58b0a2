"""One rate of requests for the whole process: its computation, and the gate in front of a store."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ts_common.errors import ObjectNotFound, StoreThrottled
from ts_common.store.contract import ByteRange, IfAbsent, ObjectInfo
from ts_common.store.factory import open_store
from ts_common.store.wrappers.request_rate import Pace, PacedStore, Rate
from ts_common.store.wrappers.wrapped import WrappedStore


def throttled(asked: int) -> Rate:
    """Return a rate that was throttled after a number of requests within a second."""
    rate = Rate()
    for number in range(asked):
        rate.admit(number / asked)
    rate.slow_down(1.0)
    return rate


def test_the_gate_is_open_until_a_store_returns_slow_down() -> None:
    """No request waits before the first throttled one."""
    rate = Rate()
    assert [rate.admit(0.0) for _ in range(10_000)] == [0.0] * 10_000


def test_u14_slow_down_halves_the_request_rate_and_spreads_the_requests() -> None:
    """A hundred requests in the last second become one every fiftieth of a second, even if all arrive at once."""
    rate = throttled(100)
    turns = [1.0 + rate.admit(1.0) for _ in range(20)]
    assert [later - earlier for earlier, later in pairwise(turns)] == pytest.approx([1 / 50] * 19)


def test_u14_a_storm_of_refusals_counts_once_a_second() -> None:
    """Requests in progress when the rate fell do not concern the new rate."""
    rate = throttled(100)
    for _ in range(30):
        rate.slow_down(1.5)
    assert rate.limit == pytest.approx(50)
    rate.slow_down(2.0)
    assert rate.limit == pytest.approx(25)
    assert rate.refused == 32


def test_a_rate_never_falls_to_nothing() -> None:
    """One request per second is always tried, to find when the store recovers."""
    rate = throttled(3)
    for second in range(2, 100):
        rate.slow_down(float(second))
    assert rate.limit == 1.0


def test_u14_the_gate_opens_again_as_requests_are_served() -> None:
    """The rate rises by a few requests per second after each second without throttling."""
    rate = throttled(100)
    for _ in range(50):
        rate.served()
    assert rate.limit == pytest.approx(52.5, abs=0.3)
    for _ in range(2_000_000):
        rate.served()
    assert rate.limit is None
    assert rate.admit(5.0) == 0.0


def test_a_store_that_throttled_once_no_longer_throttles_a_minute_later() -> None:
    """Its limit stays, because an agent with few requests raises it slowly."""
    rate = throttled(100)
    assert [rate.is_throttled(now) for now in (1.0, 60.5, 61.0)] == [True, True, False]
    assert rate.limit == pytest.approx(50)
    assert not Rate().is_throttled(0.0)
    rate.slow_down(70.0)
    assert rate.is_throttled(100.0)


@given(st.lists(st.sampled_from(["ask", "refuse", "serve", "wait"]), max_size=200))
@example(["refuse", "wait", "wait", "ask", "ask", "wait", "wait", "refuse", "ask"])
def test_turns_are_never_closer_than_the_rate_allows(steps: list[str]) -> None:
    """For any sequence of events, two turns under a limit are at least the limit's interval apart."""
    rate, now, last = Rate(), 0.0, float("-inf")
    for step in steps:
        match step:
            case "ask":
                limit = rate.limit
                turn = now + rate.admit(now)
                if limit is not None:
                    assert turn - last >= 1 / limit - 1e-9
                    last = turn
            case "refuse":
                rate.slow_down(now)
            case "serve":
                rate.served()
            case _:
                now += 0.3


class Throttling(WrappedStore):
    """A store that throttles each second request."""

    asked = 0

    def head(self, key: str) -> ObjectInfo:
        self.asked += 1
        if self.asked % 2:
            raise StoreThrottled("503")
        return super().head(key)


def test_a_paced_store_is_the_store_behind_it(tmp_path: Path) -> None:
    """Every call and its errors pass, and throttled requests are counted."""
    pace = Pace()
    with PacedStore(Throttling(open_store(tmp_path.as_uri()), threads=1), pace, threads=1) as store:
        store.check()
        put = store.put_async("d/a", b"12345", condition=IfAbsent()).result()
        assert store.get("d/a", ByteRange(1, 3))[0] == b"23"
        assert [info.key for info in store.list("d/")] == ["d/a"]
        assert list(store.list("none/")) == []
        assert list(store.list_directories()) == ["d/"]
        assert store.head("d/a").etag == put.etag  # throttled once, and retried in its next turn
        assert pace.limit is not None
        with pytest.raises(ObjectNotFound):
            store.get("d/b")
        assert store.delete_matching({"d/a": "another", "d/b": put.etag}).kept == ("d/a",)
        store.delete(["d/a"])
        assert list(store.list()) == []
        pace.close()
        with pytest.raises(StoreThrottled):
            store.head("d/a")
    assert pace.refused == 2


def test_u14_a_throttled_copy_is_repeated_in_its_next_turn(tmp_path: Path) -> None:
    """The store rejected it before it began."""

    class Throttling(WrappedStore):
        attempts = 0

        def copy_if_absent(self, source: str, target: str) -> ObjectInfo:
            self.attempts += 1
            if self.attempts == 1:
                raise StoreThrottled("SlowDown")
            return super().copy_if_absent(source, target)

    pace = Pace()
    with PacedStore(Throttling(open_store(tmp_path.as_uri()), threads=1), pace, threads=1) as store:
        store.put("a", b"x")
        assert store.copy_if_absent("a", "b") == store.head("b")
    assert pace.refused == 1
