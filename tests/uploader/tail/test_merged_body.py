"""Merges that read the broker's logs: what they put, and what they do if a log has changed."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from dev.local.waiting import wait_for
from tests.uploader.tail.test_live_log import begin
from tests.uploader.tail.test_pack_log import EPOCH, InPieces, content, entry
from tests.uploader.tail.test_shipper import KEYS, Agent, Broker, logged, shown
from ts_common.errors import SegmentChanged
from ts_common.store.contract import ByteRange, ObjectStore, ObjectStream
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark
from ts_uploader.metrics.counters import MERGE_TAIL
from ts_uploader.tail import merged_body, merging
from ts_uploader.tail.merged_body import LogPlace, LogsAtHand, MergedBody
from ts_uploader.tail.merging import Merged, Merger, plan_merge
from ts_uploader.tail.pack_log import PackLog


class Opened(WrappedStore):
    """Notes the objects that are read as streams, as only merges read them."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.opened: list[str] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> AbstractContextManager[ObjectStream]:
        """Note the name."""
        self.opened.append(key.removeprefix(KEYS.tail("1")))
        return super().open(key, byte_range)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Opened]:
    (tmp_path / "store").mkdir()
    with open_store((tmp_path / "store").as_uri()) as opened:
        yield Opened(opened)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    (tmp_path / "log").mkdir()
    return Broker(tmp_path / "log")


def marked(directory: Path) -> EpochsMark:
    """Write leader epochs; return the mark of their file."""
    begin(directory, (EPOCH, 0))
    mark = epochs_mark(directory)
    assert mark is not None
    return mark


@pytest.mark.parametrize(
    ("base", "behind", "read"), [(0, 0, 0), (0, 30, 0), (40, 0, 1), (60, 0, 2), (120, 0, 3), (40, 30, 1)]
)
def test_a_merge_reads_what_the_newest_file_of_a_log_has_and_the_rest_from_the_store(
    store: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int, behind: int, read: int
) -> None:
    """The file can begin amid the entries of a merge, or of a pack, and end behind them."""
    monkeypatch.setattr(merged_body, "_WINDOW_BYTES", 16)
    log, data = PackLog(store, KEYS, "1"), random.Random(1).randbytes(150)
    log.read()
    for start in (0, 40, 80):
        log.put(1, [entry("t-0", start, data[start : start + 40])], [data[start : start + 40]])
    (tmp_path / f"{base:020d}.log").write_bytes(data[base:])
    monkeypatch.setattr(merging, "PACKS", 1)
    plan, merged = plan_merge(log, lambda _: True), Merged()
    assert plan is not None
    later = [entry("t-0", 120, data[120 : 120 + behind])] if behind else []
    mark = marked(tmp_path)
    place = LogPlace(str(tmp_path), base, EPOCH, 120 + behind, 120 + behind - base, mark)
    plan = replace(plan, logs=LogsAtHand({"t-0": place}, [*log.rows, *later]))
    Merger(InPieces(store, threads=1), KEYS, "1").run(plan, merged)
    assert len(store.opened) == read
    ((row,),) = (listed.rows for listed in merged.indexes)
    assert content(store, [row]) == {"t-0": dict(enumerate(data[:120]))}


def test_the_logs_of_another_leadership_or_with_a_gap_are_not_read(tmp_path: Path) -> None:
    """Their bytes would not be those of the entries."""
    mark = marked(tmp_path)
    places = {"t-0": LogPlace(str(tmp_path), 0, EPOCH, 9, 9, mark)}
    assert LogsAtHand(places).find("t-0", EPOCH, 9) == places["t-0"]
    assert LogsAtHand(places).find("t-0", EPOCH - 1, 9) is None
    assert LogsAtHand(places).find("t-1", EPOCH, 9) is None
    for found in ([entry("t-0", 7, b"ab", epoch=EPOCH - 1)], [entry("t-0", 6, b"ab")], [entry("t-0", 5, b"abcd")]):
        assert LogsAtHand(places, found).find("t-0", EPOCH, 6) is None
    known = LogsAtHand(places, [entry("t-0", 6, b"abc")])
    assert known.find("t-0", EPOCH, 6) == LogPlace(str(tmp_path), 0, EPOCH, 6, 6, mark)
    assert known.find("t-0", EPOCH, 10) is None


def test_a_client_that_repeats_a_request_gets_no_bytes_that_were_rejected(tmp_path: Path) -> None:
    """The SDK sends a body again after an error that it counts as one of the connection."""
    (tmp_path / f"{0:020d}.log").write_bytes(b"other")
    with closing(MergedBody(None)) as body:
        body.add(5, LogPlace(str(tmp_path), 0, EPOCH, 0, 0, marked(tmp_path)), crc32c(b"bytes"))
        for _ in range(2):
            body.seek(0)
            with pytest.raises(SegmentChanged, match="has not the batches that were shipped"):
                body.read()


@pytest.mark.parametrize("change", ["none", "cut", "other bytes", "gone", "another leader"])
def test_a_log_that_changed_after_it_was_shipped_changes_no_merged_object(
    store: Opened, broker: Broker, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The store has the batches, so that is no failure. An agent reads none of them while the logs have them."""
    monkeypatch.setattr(merging, "PACKS", 4)
    monkeypatch.setattr(merging, "_ALIKE", 2)
    monkeypatch.setattr(merging, "_FEWER", 1)
    first, second = broker.lead("a"), broker.lead("b")
    agent = Agent(broker, store)
    for _ in range(3):
        broker.append(first, 4)
        broker.append(second, 4)
        agent.ship()
    file = broker.log_dir / str(second) / f"{0:020d}.log"
    whole = file.read_bytes()
    if change == "cut":
        file.write_bytes(whole[:-20])
    elif change == "other bytes":
        file.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    elif change == "gone":
        file.unlink()
    elif change == "another leader":
        begin(file.parent, (5, 0), (7, 3), (9, 12))
    merges: list[str] = []

    def has_merged(times: int) -> bool:
        broker.append(first, 1)
        agent.ship()
        merges[:] = [info.key for info in store.list(KEYS.tail("1") + "merged/")]
        return len(merges) >= times

    wait_for(partial(has_merged, 3), "a merge of merged objects", state=lambda: agent.shipper.state)
    assert bool(store.opened) == (change != "none")
    assert (shown(store, broker, first), shown(store, broker, second)) == (logged(broker, first), whole)
    (errors,) = agent.metrics.errors.collect()
    assert not any(MERGE_TAIL in sample.labels.values() for sample in errors.samples)
    assert agent.shipper.state.late is None
