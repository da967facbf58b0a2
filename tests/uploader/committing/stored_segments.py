"""Segments in a store that no agent of the test shipped."""

from tests.uploader.local_directory import ID, KEYS, TP
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_common.store.contract import ObjectStore
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import Shipped

LEADERSHIP = Leadership(5, ID, 0)


def put_segment(store: ObjectStore, base: int, end: int, *epochs: tuple[int, int]) -> None:
    metadata = SegmentMetadata(end, epochs, end - base, 1, 1, 0)
    store.put(KEYS.segment(SegmentName(base)), b"x", metadata=metadata.encode())


def shipped(base: int, end: int, *epochs: tuple[int, int]) -> Shipped:
    return Shipped(TP, 0, LEADERSHIP, base, end, end, epochs, end, 1, 0, 0.0)
