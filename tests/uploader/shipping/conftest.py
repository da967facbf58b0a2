"""A partition directory with a real store (a directory), and the scans of its segments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.uploader.shipping.partition_log import Interrupted, Log
from ts_common.log_format.index_files import TimeIndex
from ts_common.log_format.scan import Readable, SegmentScan, scan_segment
from ts_common.store.factory import open_store


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "store").mkdir()
    with open_store((tmp_path / "store").as_uri()) as store:
        yield Log(tmp_path, store)


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[tuple[Log, Interrupted]]:
    (tmp_path / "store").mkdir()
    with Interrupted(tmp_path / "store") as store:
        yield Log(tmp_path, store), store


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each segment that is read from its begin to its end, in order."""
    read: list[int] = []

    def counted(reader: Readable, size: int, timeindex: TimeIndex) -> SegmentScan:
        read.append(size)
        return scan_segment(reader, size, timeindex)

    monkeypatch.setattr("ts_uploader.shipping.uploader.scan_segment", counted)
    return read
