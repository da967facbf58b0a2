"""Frozen segments of what a query reads: the planner's message, and stores that return objects of such a class."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.log_format.build import TRANSACTIONAL, batch, marker, record
from tests.made_archive import MadeArchive, batches
from tests.made_cold import STEP, ColdArchive, cold_archive
from ts_common.archive.catalog import read_catalog
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import ReadRange
from ts_common.archive.view import open_view
from ts_common.errors import ObjectFrozen
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_reader.query.frozen import Span, bytes_text, check_thawed, commands_of, explain, frozen_of, ranges_of
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Edge, Offset, Query, Subscription, Timestamp
from ts_reader.query.read_split import read_split

DAYS = 7


@pytest.fixture
def cold(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdArchive]:
    """Make an archive whose first two of three segments are frozen."""
    with cold_archive(moto_server, monkeypatch) as archive:
        archive.freeze(0, 10)
        yield archive


def view_of(archive: MadeArchive, store: ObjectStore | None = None) -> PartitionView:
    store = store or archive.store
    return open_view(store, read_catalog(store, archive.partition("t")))


def query_of(archive: MadeArchive, start: int = 0, end: int | None = None) -> Query:
    return Query(
        archive.location,
        "prod",
        0,
        Subscription(("t",)),
        start=Offset(start),
        end=Edge.LATEST if end is None else Offset(end),
    )


def test_a_plan_with_frozen_segments_names_count_bytes_and_command(cold: ColdArchive) -> None:
    """The command thaws exactly those, and then the same plan is read; a plan without them needs no thaw."""
    size = sum(cold.store.head(cold.key(base)).size for base in (0, 10))
    with pytest.raises(ObjectFrozen) as frozen:
        plan_query(cold.store, query_of(cold, 5))
    message = str(frozen.value)
    assert f"t-0: 2 of 3 segments to read, {bytes_text(size)}, are frozen (2 in GLACIER; the first is" in message
    command = re.search("`(.*)`", message)
    assert command is not None
    assert shlex.split(command[1]) == [
        *("tsctl", "thaw", "t", "-p", "0", "--from", "5", "--to", "20"),
        *("--url", cold.location, "--cluster", "prod"),
    ]
    assert plan_query(cold.store, query_of(cold, 20)).segments == 1
    cold.store.thaw(cold.key(0), DAYS, ThawTier.BULK)
    with pytest.raises(ObjectFrozen, match="1 of 3 segments to read"):  # moto lists no readable copies
        plan_query(cold.store, query_of(cold))
    cold.store.thaw(cold.key(10), DAYS, ThawTier.BULK)
    assert plan_query(cold.store, query_of(cold)).segments == 3


def test_a_time_that_frozen_segments_decide_is_explained(cold: ColdArchive) -> None:
    """The planner reads timestamps in the segment; the message counts the segments that the times need."""
    query = Query(cold.location, "prod", 0, Subscription(("t",)), start=Timestamp(1003), end=Timestamp(1005))
    with pytest.raises(ObjectFrozen, match=r"1 of 1 segment to read.*--from 0 --to 10 .*InvalidObjectState"):
        plan_query(cold.store, query)


def test_a_marker_in_a_frozen_segment_after_the_range_is_explained(
    moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner reads the segments after the range for the end of a transaction; the command thaws those too."""
    with cold_archive(moto_server, monkeypatch) as archive:
        records = [record(delta) for delta in range(STEP)]
        archive.put_segment("t", 30, batch(30, records, attributes=TRANSACTIONAL, producer_id=9))
        archive.put_segment("t", 40, marker(40, 9, 0), txnindex=b"frozen")
        archive.commit("t", 41, highest_base=40, last_stable_offset=41)
        archive.freeze(40, suffixes=(".log", ".txnindex"))
        query = replace(query_of(archive, 30, 40), read_committed=True)
        with pytest.raises(ObjectFrozen, match=r"1 of 2 segments to read.*--from 40 --to 41 .*InvalidObjectState"):
            plan_query(archive.store, query)


def test_a_frozen_index_costs_time_alone(cold: ColdArchive) -> None:
    """An index is a hint: the segment is read from its beginning."""
    cold.freeze(20, suffixes=(".index", ".timeindex"))
    (split,) = plan_query(cold.store, query_of(cold, 25)).splits
    (rows,) = read_split(cold.store, split, ["offset"])
    assert rows.column("offset").to_pylist() == [25, 26, 27, 28, 29]


def test_an_object_that_freezes_after_the_plan_names_the_command(cold: ColdArchive) -> None:
    """As one does in an archive tier that no listing shows."""
    (split,) = plan_query(cold.store, query_of(cold, 20)).splits
    cold.freeze(20)
    with pytest.raises(ObjectFrozen, match=r"class GLACIER.*this task reads.*tsctl thaw t -p 0 --from 20 --to 30"):
        list(read_split(cold.store, split, ["offset"]))


class Shown(WrappedStore):
    """A store whose listing shows each segment in an archive class; its objects can be read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, threads=1)
        self.looks = 0

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for info in self._inner.list(prefix, start_after=start_after):
            is_log = info.key.endswith(".log")
            yield ObjectInfo(
                info.key,
                info.size,
                info.etag,
                info.modified,
                storage_class="COLD" if is_log else None,
                is_frozen=is_log,
            )

    def thaw_state(self, key: str) -> ThawState:
        self.looks += 1
        return ThawState("COLD", is_frozen=True)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeArchive]:
    archive = MadeArchive(tmp_path / "store")
    with archive.store:
        for base in range(0, 40, 10):
            archive.put_segment("t", base, batches((base, base + 10)))
        archive.commit("t", 40, highest_base=30)
        yield archive


def test_a_store_that_returns_objects_of_the_class_needs_no_thaw(made: MadeArchive) -> None:
    """Two requests show it, for any number of segments."""
    store = Shown(made.store)
    plan = plan_query(store, query_of(made))
    assert (plan.segments, store.looks) == (4, 1)


def test_without_frozen_segments_no_request_is_sent(made: MadeArchive) -> None:
    """No plan of an archive in a warm class is slower."""
    store = Shown(made.store)
    check_thawed(store, ranges_of(view_of(made), Span()))
    assert store.looks == 0


def test_the_listing_alone_explains_a_range(made: MadeArchive) -> None:
    """The endpoint explains its errors so. Many partitions are counted."""
    store = Shown(made.store)
    ranges = ranges_of(view_of(made, store), Span())
    assert frozen_of(ranges) == list(ranges)
    message = explain(store, ranges[:2], ranges, "2")
    assert message.startswith("t-0: 2 of 4 segments to read")
    assert "(2 in COLD; the first is prod/t-0/" in message
    assert "--incarnation 2" in message
    many = [
        ReadRange(
            0, 1, tuple(type(copy)(made.partition("t", number), copy.segment, copy.metadata) for copy in part.copies)
        )
        for number, part in enumerate(ranges * 2)
    ]
    assert len(commands_of(store, many)) == 8
    assert "8 partitions: 8 of 8 segments" in explain(store, many, many)
    assert "; and for 3 partitions more; then repeat" in explain(store, many, many)


def test_a_segment_without_times_may_have_any_time(made: MadeArchive) -> None:
    """As a Java uploader's, if only its two ends were read: a thaw from a time on includes it."""
    view = view_of(made)
    untimed = replace(view.copies[1].metadata, time_max=None, crc32c=0, rebuilt=True, records=None)
    view = replace(view, copies=(view.copies[0], replace(view.copies[1], metadata=untimed), *view.copies[2:]))
    assert [part.start for part in ranges_of(view, Span(since=1020))] == [10, 20, 30]


def test_the_command_has_the_entropy_bits_of_the_keys(tmp_path: Path) -> None:
    """An archive of an earlier release has no layout that names them."""
    archive = MadeArchive(tmp_path / "store", entropy_bits=5)
    with archive.store:
        archive.put_segment("t", 0, batches((0, 10)))
        archive.commit("t", 10)
        (command,) = commands_of(archive.store, ranges_of(view_of(archive), Span()))
    assert command.endswith("--cluster prod --entropy-bits 5")


@pytest.mark.parametrize(
    ("span", "bases"),
    [
        (Span(), [0, 10, 20, 30]),
        (Span(9, 11), [0, 10]),
        (Span(10, 20), [10]),
        (Span(50, 60), []),
        (Span(since=1010), [10, 20, 30]),
        (Span(since=1010, until=1019), [10]),
        (Span(until=1010), [0, 10]),
        (Span(since=9999), []),
    ],
    ids=["all", "two", "one", "none", "since", "one by time", "until", "later"],
)
def test_a_span_needs_whole_segments(made: MadeArchive, span: Span, bases: list[int]) -> None:
    """Records have the time 1000 plus their offset; the segment where a time is looked for is needed too."""
    assert [copy.base for part in ranges_of(view_of(made), span) for copy in part.copies] == bases


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (10**16, "10,000.0 TB")],
)
def test_bytes_are_shown_in_the_unit_of_their_size(size: int, text: str) -> None:
    """Decimal units, as in other output of `tsctl`."""
    assert bytes_text(size) == text
