"""Reading all of a segment once: its bytes go to the scan, which checks them, and to the decoder, which opens them."""

import queue
import threading

from ts_common.archive.fetch import ResumableReader
from ts_common.errors import CorruptData
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import SegmentScan, scan_segment
from ts_common.store.contract import ObjectStore
from tsctl.limits import batch_limit

_PIECES_AHEAD = 4  # of up to 1 MiB, that the scan has read and the decoder has not


def read_whole(
    store: ObjectStore, key: str, size: int, timeindex: TimeIndex | None
) -> tuple[SegmentScan, int, str | None]:
    """Scan and decode a segment.

    Args:
        store: where it lies.
        key: of the `.log`.
        size: of it, in bytes.
        timeindex: what stands beside it, to be held against its batches.

    Returns:
        What the scan says; how many records came out (no control records); what the decoder could not read, or None.

    Raises:
        BatchTooLarge: a batch takes more memory than --max-batch-bytes allows.
        ObjectNotFound, StoreUnavailable, AccessDenied: the store's.
    """
    with ResumableReader(store, key) as reader, _Decoding(size) as decoding:
        scan = scan_segment(_Tee(reader, decoding), size, timeindex)
        decoding.finish()
    return scan, decoding.rows, decoding.damage


class _Decoding:
    """A decoder on a thread of its own, which takes pieces until it has read its fill, and drops the rest."""

    def __init__(self, size: int) -> None:
        self.rows = 0
        self.damage: str | None = None
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
        """The next bytes."""
        self._pieces.put(piece)

    def finish(self) -> None:
        """Wait until all that was given is decoded."""
        if self._thread.is_alive():
            self._pieces.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        # numba: at full depth alone
        from ts_common.decode.columns import Projection  # noqa: PLC0415
        from ts_common.decode.segment_decoder import SegmentDecoder  # noqa: PLC0415

        pieces = iter(self._pieces.get, None)
        try:
            # Lengths of keys, values and headers are checked without copying them.
            decoder = SegmentDecoder(
                Projection(key=False, value=False, headers=False), size=self._size, limit=batch_limit()
            )
            for columns in decoder.decode(pieces):
                self.rows += columns.row_count
        except CorruptData as error:
            self.damage = str(error)
        except Exception as error:  # noqa: BLE001  (raised by who waits)
            self._error = error
        for _ in pieces:
            pass  # so that whoever gives is never held up


class _Tee:
    """An object's reader as the scan reads; what is read is given to the decoder, too."""

    def __init__(self, reader: ResumableReader, decoding: _Decoding) -> None:
        self._reader = reader
        self._decoding = decoding

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill some of the buffer; 0 at the end."""
        data = self._reader.read(len(buffer))
        buffer[: len(data)] = data
        if data:
            self._decoding.give(data)
        return len(data)
