"""Which batches a consumer of an answer leaves out, whatever the transactions are."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.endpoint.clients import Answer, consumed
from ts_common.log_format.framing import BatchHeader, parse_header
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.log_format.markers import ABORT, COMMIT
from ts_endpoint.data.chunks import Chunk
from ts_endpoint.data.visibility import Visibility

PRODUCERS = st.integers(1, 3)
BATCHES = st.lists(st.tuples(st.sampled_from(["data", "plain", "abort", "commit"]), PRODUCERS), min_size=1, max_size=12)
HIDDEN = st.lists(st.tuples(PRODUCERS, st.integers(0, 11), st.integers(0, 11)), max_size=4)


def bytes_of(kind: str, producer: int, offset: int) -> bytes:
    """Return a batch of one offset."""
    if kind in {"abort", "commit"}:
        return marker(offset, producer, ABORT if kind == "abort" else COMMIT)
    attributes = TRANSACTIONAL if kind == "data" else 0
    return batch(offset, [record(0, b"k", b"v")], attributes=attributes, producer_id=producer)


def chunk_of(pieces: list[bytes]) -> Chunk:
    """Return a chunk whose batch number n is offset n."""
    ends = np.cumsum([len(piece) for piece in pieces])
    offsets = np.arange(len(pieces), dtype=np.int64)
    data = memoryview(b"".join(pieces))
    return Chunk(
        data, 0, len(pieces), ends - [len(piece) for piece in pieces], ends, offsets, offsets, len(data), len(data)
    )


@given(kinds=BATCHES, ranges=HIDDEN, start=st.integers(0, 11))
def test_e01_a_consumer_gets_exactly_what_the_reader_shows(
    kinds: list[tuple[str, int]], ranges: list[tuple[int, int, int]], start: int
) -> None:
    """Answers end where Java's rules would hide too much or too little, and each leads on."""
    pieces = [bytes_of(kind, producer, offset) for offset, (kind, producer) in enumerate(kinds)]
    hidden = sorted(
        (AbortedTransaction(producer, low, high, -1) for producer, low, high in ranges if low <= high),
        key=lambda each: each.first_offset,
    )
    chunk, position, shown = chunk_of(pieces), start, list[int]()

    while position < len(pieces):
        visibility = Visibility(hidden, position)
        end = visibility.fitting(chunk, position, len(pieces))
        assert end > position
        data = bytes(chunk.data[int(chunk.starts[position]) : int(chunk.ends[end - 1])])
        aborted = [(each.producer_id, each.first_offset) for each in visibility.entries]
        rows, position = consumed(Answer(ErrorCode.none, data, aborted, {}), position, committed=True)
        shown += [row["offset"] for row in rows]

    assert shown == [
        offset
        for offset in range(start, len(pieces))
        if kinds[offset][0] in {"data", "plain"} and not is_hidden(kinds[offset], offset, hidden)
    ]


def is_hidden(kind: tuple[str, int], offset: int, hidden: list[AbortedTransaction]) -> bool:
    """Return whether a batch belongs to a hidden transaction."""
    return kind[0] == "data" and any(
        each.producer_id == kind[1] and each.first_offset <= offset <= each.last_offset for each in hidden
    )


def test_made_batches_have_the_producers_that_the_test_means() -> None:
    """The header of a transactional batch names its producer."""
    header = parse_header(bytes_of("data", 2, 5), 0, 1 << 20)
    assert isinstance(header, BatchHeader)
    assert (header.producer_id, header.is_transactional, header.base_offset) == (2, True, 5)


def test_each_transaction_of_an_answer_is_looked_at_a_few_times() -> None:
    """However many there are: the event loop judges all batches of an answer, and other clients wait for it."""
    count, looks = 500, 0

    class Counted:
        def __init__(self, number: int) -> None:
            self.producer_id, self.last_offset, self._first = 1, 2 * number + 1, 2 * number

        @property
        def first_offset(self) -> int:
            nonlocal looks
            looks += 1
            return self._first

    chunk = chunk_of([bytes_of("abort" if offset % 2 else "data", 1, offset) for offset in range(2 * count)])
    hidden: list[Any] = [Counted(number) for number in range(count)]

    assert Visibility(hidden, 0).fitting(chunk, 0, 2 * count) == 2 * count
    assert looks <= 10 * count
