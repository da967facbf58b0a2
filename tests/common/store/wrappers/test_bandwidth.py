"""One rate of bytes for the whole process: its computation, and the bodies that follow it."""

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.store.wrappers.bandwidth import CREDIT_SECONDS, PIECE_SECONDS, Allowance, ByteRate, RationedBody

SLACK = CREDIT_SECONDS + PIECE_SECONDS
STEPS = st.lists(
    st.tuples(
        st.integers(1, 1 << 20),  # bytes to send
        st.floats(0, 3, allow_subnormal=False),  # seconds before it
        st.sampled_from([None, None, 1_000, 50_000, 10_000_000]),  # another limit, or the same
    ),
    min_size=1,
    max_size=60,
)


def turns_of(steps: Sequence[tuple[int, float, int | None]], first: int) -> list[tuple[float, float]]:
    """Return the time of each piece, and its size in seconds of the limit."""
    rate, now, turns = ByteRate(first), 0.0, []
    for size, passed, limit in steps:
        now += passed
        rate.limit = limit or rate.limit
        assert rate.limit is not None
        granted, pause = rate.take(size, now)
        assert 1 <= granted <= size
        assert pause >= 0
        turns.append((now + pause, granted / rate.limit))
    return turns


@given(STEPS, st.sampled_from([1_000, 2_000_000]))
def test_no_span_of_time_has_more_than_the_rate_allows(steps: list[tuple[int, float, int | None]], first: int) -> None:
    """For any requests and changes of the limit, a span contains at most its bytes and those of 0.6 s."""
    turns = turns_of(steps, first)
    for begin, _ in turns:
        for end, _ in turns:
            if end >= begin:
                worth = sum(worth for at, worth in turns if begin <= at <= end)
                assert worth <= end - begin + SLACK + PIECE_SECONDS + 1e-6


@given(st.integers(1_000, 10**9), st.integers(1, 64), st.integers(1, 1 << 20))
def test_who_always_has_something_to_send_gets_the_whole_rate(limit: int, threads: int, size: int) -> None:
    """The total is within half a second of credit and a piece, and each thread has an equal share."""
    rate, clocks, sent = ByteRate(limit), [0.0] * threads, [0] * threads
    for _ in range(3_000):
        thread = min(range(threads), key=clocks.__getitem__)
        granted, pause = rate.take(size, clocks[thread])
        clocks[thread] += pause
        sent[thread] += granted
    piece = min(size, max(1, int(limit * PIECE_SECONDS)))
    assert abs(sum(sent) - limit * max(clocks)) <= limit * SLACK + threads * piece + 1
    assert max(sent) - min(sent) <= limit * CREDIT_SECONDS + 2 * piece  # the first thread uses the credit


def test_nothing_waits_without_a_limit() -> None:
    """Everything is sent at once, in one piece."""
    assert ByteRate().take(1 << 30, 5.0) == (1 << 30, 0.0)


def test_a_lower_or_higher_limit_holds_from_the_next_piece_on() -> None:
    """At most one piece per thread waits at the old rate, so a change has an effect at once."""
    rate = ByteRate(1_000)
    for _ in range(3):
        rate.take(1 << 20, 0.0)
    rate.limit = 10_000_000
    granted, pause = rate.take(1 << 20, 0.0)
    assert granted == 1_000_000
    assert pause <= 3 * PIECE_SECONDS
    rate.limit = None
    assert rate.take(1 << 20, 0.0) == (1 << 20, 0.0)


@pytest.mark.parametrize("limit", [None, 10**9])
def test_a_rationed_body_is_the_body(limit: int | None) -> None:
    """It has the same bytes, from any position, with one empty piece at the end."""
    data = bytes(range(256)) * 40
    body = RationedBody(io.BytesIO(data), len(data), Allowance(limit))
    assert body.read() == data
    assert (body.read(10), body.tell()) == (b"", len(data))
    assert body.seek(-6, 2) == len(data) - 6
    assert body.read(100) == data[-6:]
    body.seek(0)
    assert b"".join(iter(lambda: body.read(1000), b"")) == data
    assert RationedBody(data, len(data), Allowance(limit)).read() == data


def test_threads_share_one_rate_and_their_waiting_is_counted() -> None:
    """Ten bodies are the bytes of a second; half of them pass at once. Without a limit no thread waits."""
    allowance = Allowance(20_000_000)

    def drain(_: int) -> int:
        size, body = 0, RationedBody(bytes(2_000_000), 2_000_000, allowance)
        while piece := body.read():
            size += len(piece)
        return size

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(drain, range(10))) == [2_000_000] * 10
    assert allowance.waited_seconds > 0.3  # a second without the credit and a piece, summed over the threads
    allowance.change(None)
    waited = allowance.waited_seconds
    assert drain(0) == 2_000_000
    assert allowance.waited_seconds == waited
