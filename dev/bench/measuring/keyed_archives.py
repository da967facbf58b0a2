"""Archives whose records have chosen keys: segments of one form of batch, each with keys, offsets and CRC of its own.

Keys have one length, so they are written into the encoded batch. A broker's default of one index entry in 4 KiB gives
each batch one.
"""

from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from awscrt.checksums import crc32c

from dev.bench.measuring.made_archives import CLUSTER, RECORDS_A_BATCH, TIME, ship
from dev.bench.measuring.records import json_value
from ts_common.archive.metadata_cache import CACHE_OBJECT_SEGMENTS
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.decode.codecs import Codec
from ts_reader.decode.columns import BinaryColumn
from ts_reader.decode.compression import compress
from ts_reader.decode.key_hashes import hashes_of
from ts_uploader.shipping.metadata_cache_writer import write_cache_object

Numbers = npt.NDArray[np.int64]

KEY_BYTES: Final = 11  # as keys of the other benchmarks
_DIGITS: Final = 8
_PLACEHOLDER: Final = b"\xff" * KEY_BYTES
_VALUES: Final = 40  # forms of a batch, so that the values of neighbours differ


def key_of(number: int) -> bytes:
    """Return the key with a number."""
    return f"key{number:0{_DIGITS}d}".encode()


def keys_of(numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Return keys as bytes, of the shape of the numbers with one dimension more."""
    digits = numbers[..., None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10 + ord("0")
    keys = np.empty((*numbers.shape, KEY_BYTES), np.uint8)
    keys[..., : KEY_BYTES - _DIGITS] = np.frombuffer(b"key", np.uint8)
    keys[..., KEY_BYTES - _DIGITS :] = digits
    return keys


def partitions_of(numbers: Numbers, partitions: int) -> Numbers:
    """Return the partitions that Java's producer chooses for keys."""
    bounds = np.arange(len(numbers) + 1, dtype=np.int32) * KEY_BYTES
    column = BinaryColumn(bounds, keys_of(numbers).reshape(-1), np.empty(0, np.uint8), 0)
    return hashes_of(column, np.arange(len(numbers))).murmur2 % partitions


class KeyedSegments:
    """Makes segments of batches of 51 records with values of about 300 bytes."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        generator = Random(7)
        values = [json_value(generator, number) for number in range(_VALUES * RECORDS_A_BATCH)]
        forms = [self._form(values[at * RECORDS_A_BATCH :][:RECORDS_A_BATCH]) for at in range(_VALUES)]
        self._forms = [np.frombuffer(form, np.uint8) for form in forms]
        self._places = [_places(form) for form in forms]

    @staticmethod
    def _form(values: list[bytes]) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        for number, value in enumerate(values):
            builder.append(number, TIME + number, _PLACEHOLDER, value, [])
        return bytes(builder.build())

    def make(self, base: int, numbers: Numbers) -> tuple[bytes, bytes, bytes]:
        """Return `.log`, `.index` and `.timeindex` of a segment.

        Args:
            base: its first offset, and the milliseconds of its first record after `TIME`.
            numbers: of the keys of its records, as whole batches.
        """
        keys = keys_of(numbers.reshape(-1, RECORDS_A_BATCH))
        log, positions = bytearray(), []
        for number, of_batch in enumerate(keys):
            positions.append(len(log))
            log += self._batch(base + number * RECORDS_A_BATCH, number % _VALUES, of_batch)
        lasts = np.arange(1, len(keys) + 1) * RECORDS_A_BATCH - 1
        index = np.column_stack((lasts, positions))[1:].astype(">i4").tobytes()
        timeindex = np.empty(len(keys) - 1, [("time", ">i8"), ("last", ">i4")])
        timeindex["time"], timeindex["last"] = TIME + base + lasts[1:], lasts[1:]
        return bytes(log), index, timeindex.tobytes()

    def _batch(self, offset: int, form: int, keys: npt.NDArray[np.uint8]) -> bytes:
        batch = self._forms[form].copy()
        batch[self._places[form]] = keys
        data = bytearray(batch.tobytes())
        if self._codec is not Codec.NONE:
            data[HEADER_SIZE:] = compress(self._codec, bytes(data[HEADER_SIZE:]))
            data[22] |= self._codec
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[:8] = offset.to_bytes(8, "big")
        data[27:35], data[35:43] = ((TIME + each).to_bytes(8, "big") for each in (offset, offset + RECORDS_A_BATCH - 1))
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        return bytes(data)


def _places(form: bytes) -> Numbers:
    """Return where the bytes of each key are in a batch."""
    found, at = [], form.find(_PLACEHOLDER, HEADER_SIZE)  # a header has such bytes too
    while at >= 0:
        found.append(at)
        at = form.find(_PLACEHOLDER, at + KEY_BYTES)
    return np.array(found)[:, None] + np.arange(KEY_BYTES)


def put_partition(
    store: ObjectStore, topic: str, partition: int, made: KeyedSegments, numbers: Numbers, segments: int
) -> int:
    """Put a partition as its agent does, with its cache object; return the bytes of its `.log` objects.

    Args:
        numbers: of the keys of its records.
        segments: to divide them into, of equal lengths; what is left is dropped.
    """
    records = len(numbers) // (segments * RECORDS_A_BATCH) * RECORDS_A_BATCH
    bases = [number * records for number in range(segments)]
    logs = [(base, made.make(base, numbers[base : base + records])) for base in bases]
    size = ship(store, topic, logs, segments * records, partition)
    keys = ClusterKeys(CLUSTER).partition(TopicPartition(topic, partition))
    while write_cache_object(store, keys, segments * records)[1] == CACHE_OBJECT_SEGMENTS:
        pass
    return size
