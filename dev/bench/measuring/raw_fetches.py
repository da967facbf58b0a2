"""A client that fetches as fast as a broker answers: it decodes nothing, and the kernel drops the records.

It needs the places where batches end, for the next offset of its requests. `boundaries_of` reads them from segments.
"""

import io
import socket
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kio.serial import entity_writer

_VERSION: Final = 11  # the last one without tagged fields, so that a reply has fixed places
_FETCH: Final[Any] = import_module(f"kio.schema.fetch.v{_VERSION}.request")
_TOPIC_HEAD: Final = struct.Struct(">iiihiih")  # size, correlation, throttle, error, session, topics, length of a name
_PARTITION_HEAD: Final = struct.Struct(">ihqqqi")  # partition, error, three offsets, number of aborted transactions
_TAIL: Final = struct.Struct(">ii")  # preferred replica, bytes of records
_ABORTED_BYTES: Final = 16
_BATCH: Final = struct.Struct(">qi")
_DISCARDED: Final = 1 << 20
_MOST_EMPTY: Final = 60  # consecutive replies without records, of half a second each: the store is slow


@dataclass(frozen=True)
class Boundaries:
    """Where the batches of a partition end.

    Attributes:
        positions: bytes from the first batch to the end of each.
        offsets: the offset after each.
    """

    positions: tuple[int, ...]
    offsets: tuple[int, ...]

    def after(self, offset: int, count: int) -> int:
        """Return the offset after the last whole batch of some bytes that begin with the batch of an offset."""
        number = bisect_right(self.offsets, offset)
        begin = self.positions[number - 1] if number else 0
        whole = bisect_right(self.positions, begin + count)
        return self.offsets[whole - 1] if whole > number else offset


def boundaries_of(logs: Iterable[bytes | Path]) -> Boundaries:
    """Return the boundaries of consecutive segments of record batches of magic 2."""
    positions, offsets, total = [], [], 0
    for log in logs:
        data = log.read_bytes() if isinstance(log, Path) else log
        position = 0
        while position < len(data):
            base, length = _BATCH.unpack_from(data, position)
            (delta,) = struct.unpack_from(">i", data, position + 23)
            position += 12 + length
            positions.append(total + position)
            offsets.append(base + delta + 1)
        total += len(data)
    return Boundaries(tuple(positions), tuple(offsets))


class RawReader:
    """One connection that reads partitions of one topic from their start.

    Args:
        address: host and port.
        partition_bytes: most bytes of a partition in a reply.
    """

    def __init__(
        self, address: tuple[str, int], topic: str, boundaries: Mapping[int, Boundaries], partition_bytes: int = 1 << 20
    ) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self._boundaries = boundaries
        self._partition_bytes = partition_bytes
        self._sink = bytearray(_DISCARDED)
        self._write_header, self._header = _header_of()
        self._write_body = entity_writer(_FETCH.FetchRequest)

    def read_all(self) -> int:
        """Read all partitions once, and return the bytes of their records.

        Raises:
            RuntimeError: a reply has an error, or leads nowhere.
        """
        wanted = dict.fromkeys(self._boundaries, 0)
        ends = {number: each.offsets[-1] for number, each in self._boundaries.items()}
        total, empty = 0, 0
        while wanted:
            self._send(wanted)
            counts = self._receive()
            for number, count in counts.items():
                position = self._boundaries[number].after(wanted[number], count)
                total += count
                if position >= ends[number]:
                    del wanted[number]
                else:
                    wanted[number] = position
            empty = 0 if any(counts.values()) else empty + 1
            if empty > _MOST_EMPTY:
                raise RuntimeError(f"{self._topic}: replies have no records, and offsets {wanted} are not the ends")
        return total

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, offsets: Mapping[int, int]) -> None:
        partitions = tuple(
            _FETCH.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=self._partition_bytes)
            for number, offset in offsets.items()
        )
        body = _FETCH.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(milliseconds=500),
            min_bytes=1,
            max_bytes=self._partition_bytes * len(offsets),
            isolation_level=0,
            topics=(_FETCH.FetchTopic(topic=self._topic, partitions=partitions),),
            forgotten_topics_data=(),
            rack_id="",
        )
        frame = io.BytesIO()
        self._write_header(frame, self._header)
        self._write_body(frame, body)
        data = frame.getvalue()
        self._socket.sendall(len(data).to_bytes(4, "big") + data)

    def _receive(self) -> dict[int, int]:
        """Return the bytes of records of each partition of a reply."""
        head = self._exactly(_TOPIC_HEAD.size)
        error = _TOPIC_HEAD.unpack(head)[3]
        if error:
            raise RuntimeError(f"a Fetch has error {error}")
        self._exactly(len(self._topic))
        (count,) = struct.unpack(">i", self._exactly(4))
        return dict(self._partition() for _ in range(count))

    def _partition(self) -> tuple[int, int]:
        number, error, *_, aborted = _PARTITION_HEAD.unpack(self._exactly(_PARTITION_HEAD.size))
        if error:
            raise RuntimeError(f"{self._topic}-{number}: a Fetch has error {error}")
        self._exactly(_ABORTED_BYTES * max(0, aborted))
        _, size = _TAIL.unpack(self._exactly(_TAIL.size))
        left = max(0, size)
        while left:  # the kernel drops the bytes, so the client costs little
            left -= self._dropped(left)
        return number, max(0, size)

    def _dropped(self, count: int) -> int:
        dropped = self._socket.recv_into(self._sink, min(count, _DISCARDED), socket.MSG_TRUNC)
        if not dropped:
            raise RuntimeError("the server closed the connection")
        return dropped

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise RuntimeError("the server closed the connection")
            data += piece
        return data


def _header_of() -> tuple[Any, Any]:
    schema = _FETCH.FetchRequest.__header_schema__
    header = schema(request_api_key=1, request_api_version=_VERSION, correlation_id=1, client_id="raw")
    return entity_writer(schema), header
