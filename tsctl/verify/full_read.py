"""Reads a whole segment once, for the scan that checks it and for the decoder."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ts_common.archive.fetch import ResumableReader
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from tsctl.scan_options import batch_limit

_PIECES_AHEAD = 4  # pieces of up to 1 MiB that the scan is ahead of the decoder


def read_whole(store: ObjectStore, key: str, size: int, timeindex: TimeIndex | None) -> tuple[SegmentScan, "Decoded"]:
    """Scan and decode a segment.

    Args:
        store: the store of the segment.
        key: the key of its `.log`.
        size: its size in bytes.
        timeindex: its time index, compared with its batches.

    Returns:
        The scan, and what the decoder found.

    Raises:
        BatchTooLarge: a batch needs more memory than --max-batch-bytes allows.
        ObjectNotFound, StoreUnavailable, AccessDenied: a request failed.
    """
    with ResumableReader(store, key) as reader, _Decoding(size) as decoding:

        def read(count: int) -> bytes:
            if piece := reader.read(count):
                decoding.give(piece)
            return piece

        scan = scan_segment(Filling(read), size, timeindex)
        decoding.finish()
    return scan, Decoded(decoding.rows, decoding.damage, decoding.contradicted)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a segment decodes to.

    Attributes:
        rows: the number of records that readers return, without control records.
        damage: the decoder's error, or None.
        contradicted: the number of batches whose records have other offsets than their headers.
    """

    rows: int
    damage: str | None
    contradicted: int


class _Decoding:
    """A decoder on its own thread; it drops pieces after an error."""

    def __init__(self, size: int) -> None:
        self.rows = 0
        self.damage: str | None = None
        self.contradicted = 0
        self._error: Exception | None = None
        self._size = size
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_PIECES_AHEAD)
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    def __enter__(self) -> "_Decoding":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def give(self, piece: bytes) -> None:
        """Add the next bytes."""
        self._pieces.put(piece)

    def finish(self) -> None:
        """Wait until all added bytes are decoded."""
        if self._thread.is_alive():
            self._pieces.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # What decodes: only for --depth full.
        from ts_reader.decode.columns import Projection  # noqa: PLC0415
        from ts_reader.decode.segment_decoder import SegmentDecoder  # noqa: PLC0415

        pieces = iter(self._pieces.get, None)
        try:
            # Decoding checks the lengths of keys, values and headers without copying them.
            decoder = SegmentDecoder(
                Projection(key=False, value=False, headers=False), size=self._size, limit=batch_limit()
            )
            for columns in decoder.decode(pieces):
                self.rows += columns.row_count
            self.contradicted = decoder.contradicted
        except CorruptData as error:
            self.damage = str(error)
        except Exception as error:  # noqa: BLE001  (raised by who waits)
            self._error = error
        for _ in pieces:
            pass  # so that the producer of pieces never waits


class Filling:
    """Adapts a function that returns bytes to the scan's interface, which fills a buffer."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill part of the buffer; return 0 at the end."""
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
