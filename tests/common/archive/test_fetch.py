"""Reading an object in chunks, over broken connections and one chunk ahead of the caller."""

import threading
from collections.abc import Generator

import pytest

from ts_common.archive.fetch import one_ahead
from ts_common.errors import StoreUnavailable

SECONDS = 30.0


def test_the_next_chunk_is_fetched_while_the_caller_is_at_work() -> None:
    """The second chunk is fetched before the caller requests it, and the third is not."""
    fetched = {number: threading.Event() for number in range(4)}

    def chunks() -> Generator[bytes, None, None]:
        for number, event in fetched.items():
            event.set()
            yield b"%d" % number

    reading = one_ahead(chunks())
    assert next(reading) == b"0"
    assert fetched[1].wait(SECONDS)
    assert not fetched[2].is_set()
    assert list(reading) == [b"1", b"2", b"3"]


def test_an_error_comes_behind_the_chunks_before_it() -> None:
    """The thread meets the error early, and the caller gets it after the earlier chunks."""

    def chunks() -> Generator[bytes, None, None]:
        yield b"a"
        raise StoreUnavailable("nobody answers")

    reading = one_ahead(chunks())
    assert next(reading) == b"a"
    with pytest.raises(StoreUnavailable, match="nobody answers"):
        next(reading)


def test_whoever_stops_early_leaves_nothing_open() -> None:
    """Closing waits for the chunk in transfer, and closes what the chunks have opened."""
    fetched, closed = [], []

    def chunks() -> Generator[bytes, None, None]:
        try:
            while True:
                fetched.append(threading.current_thread())
                yield b"x"
        finally:
            closed.append(True)

    reading = one_ahead(chunks())
    next(reading)
    reading.close()
    assert closed == [True]
    assert len(fetched) <= 2
    assert not any(thread.is_alive() for thread in fetched)
