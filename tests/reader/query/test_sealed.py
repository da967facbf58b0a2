"""Plans by sealed objects are those of a whole listing (reading rule 10)."""

import io
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_seals import looking_for_seals
from tests.matrix import examples
from ts_common.archive.catalog import PartitionCatalog, read_catalog, read_commit
from ts_common.archive.commit import Commit, Lineage
from ts_common.archive.gap_records import Gap
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.sealed_objects import SealedRange, SealJson
from ts_common.archive.segment_inspection import metadata_of
from ts_common.archive.unsealing import change_tokens, unsealed
from ts_common.archive.view import open_view
from ts_common.errors import PreconditionFailed
from ts_common.log_format.scan import scan_segment
from ts_common.store.wrappers.unconditional import UnconditionalStore
from ts_reader.query.filters import QueryFilters
from ts_reader.query.plan_query import QueryPlan, plan_query
from ts_spark.options.parse import parse_options
from ts_uploader.shipping import sealing
from ts_uploader.shipping.sealing import seal
from tsctl.gc.objects import removable
from tsctl.verify.inventory import list_partition
from tsctl.verify.sealed_check import check_sealed_ranges

HOUR = 3_600_000  # ms
KINDS = ("plain", "plain", "plain", "plain", "variant", "compacted", "late", "early", "missing", "gap", "transactional")
MADE = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3), st.booleans()), min_size=1, max_size=8)


def log(base: int, end: int, epoch: int, hour: int, *, compacted: bool = False) -> bytes:
    """Return a segment whose record times are in one hour; a compacted one lacks its first record."""
    records = [record(number) for number in range(int(compacted), end - base)]
    time = HOUR * hour
    return batch(
        base,
        records,
        last_offset_delta=end - base - 1,
        epoch=epoch,
        base_timestamp=time,
        max_timestamp=time,
    )


def put(archive: MadeArchive, made: list[tuple[str, int, bool]], log_start: int) -> int:
    """Put segments, and the commit; return the next offset."""
    base, epoch, epochs = 0, 0, [(0, 0)]
    for number, (kind, length, elects) in enumerate(made):
        if elects and base:
            epoch += 1
            epochs.append((epoch, base))
        end = base + length
        if kind == "gap":
            gap = Gap(base, end, "r", 1, 1)
            archive.store.put(archive.partition("t").gap(base, end), gap.encode())
        elif kind != "missing":
            data = log(base, end, epoch, number, compacted=kind in {"compacted", "early"} and length > 1)
            index = b"" if kind == "transactional" else None
            archive.put_segment("t", base, data, variant=kind == "variant", index=bytes(8), txnindex=index)
        if kind == "early" and base > epochs[-1][1]:
            archive.put_segment("t", base - 1, log(base - 1, end, epoch, number))
        if kind == "late" and length > 1:
            archive.put_segment("t", base + 1, log(base + 1, end + 1, epoch, number))
        base = end
    archive.commit("t", base, epochs=epochs, log_start=min(log_start, base))
    return base


def view_of(archive: MadeArchive, *, seals: bool) -> PartitionView:
    keys = archive.partition("t")
    return open_view(archive.store, read_catalog(archive.store, keys, seals=seals))


def planned(archive: MadeArchive, hours: tuple[int, int] | None, packed: int | None, **options: str) -> QueryPlan:
    given = {"path": archive.location, "cluster": CLUSTER, "subscribe": "t", "failOnDataLoss": "false", **options}
    query = parse_options(given).query
    query = replace(query, limits=replace(query.limits, packed_bytes=packed))
    filters = QueryFilters() if hours is None else QueryFilters(milliseconds=((hours[0] * HOUR, hours[1] * HOUR),))
    return plan_query(archive.store, query, filters)


PLAIN = [("plain", 2, False)] * 6


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[MadeArchive]:
    """An archive with sealed segments [0,12), two offsets each."""
    made = MadeArchive(tmp_path / "store")
    with made.store, looking_for_seals(1):
        put(made, PLAIN, 0)
        assert seal(made.store, made.partition("t"), 1, 1) == len(PLAIN)
        yield made


def is_used(archive: MadeArchive) -> bool:
    """Return whether a reader uses what is sealed; its view is that of a whole listing in any case."""
    seals, listed = view_of(archive, seals=True), view_of(archive, seals=False)
    assert seals.plan(seals.start, seals.end) == listed.plan(seals.start, seals.end)
    return bool(seals.sealed)


def test_a_reader_lists_only_what_is_not_sealed(archive: MadeArchive) -> None:
    """A listing is needed for the tail alone."""
    put(archive, [*PLAIN, ("plain", 2, False)], 0)
    catalog = read_catalog(archive.store, archive.partition("t"), seals=True)
    assert [segment.name.base for segment in catalog.segments] == [12]
    assert is_used(archive)


def test_a_small_partition_is_listed(archive: MadeArchive) -> None:
    """Its listing costs less than a request for `seal.json`."""
    with looking_for_seals(1000):
        assert not is_used(archive)


def rewritten(archive: MadeArchive, **changes: object) -> None:
    """Write `seal.json` with other fields, as any identity can."""
    keys = archive.partition("t")
    found = SealJson.read(archive.store, keys.seal_json)
    assert found is not None
    archive.store.put(keys.seal_json, replace(found, **changes).encode())  # type: ignore[arg-type]


def sealed_key(archive: MadeArchive) -> str:
    """Return the key of the sealed object."""
    listed = archive.store.list(archive.partition("t").cache_objects)
    (key,) = [info.key for info in listed if info.key.endswith(".seal")]
    return key


def test_a_late_segment_below_a_sealed_end_is_read(archive: MadeArchive) -> None:
    """It begins in the sealed range, and no listing from there on has it: the hole above shows that."""
    archive.put_segment("t", 11, log(11, 20, 0, 0))
    archive.commit("t", 20)
    assert not is_used(archive)
    assert [step.end for step in view_of(archive, seals=True).plan(10, 20)] == [12, 20]
    with looking_for_seals(1):
        assert seal(archive.store, archive.partition("t"), 1, 1) == 5  # all but the one that it begins in
        assert is_used(archive)


def test_a_late_segment_next_to_a_compacted_one_is_read(archive: MadeArchive) -> None:
    """It has a record that the compacted one lacks, and leaves no hole: nothing is sealed below the compacted one."""
    keys = archive.partition("t")
    archive.put_segment("t", 12, log(12, 20, 0, 0, compacted=True))
    archive.commit("t", 20)
    assert not is_used(archive)
    assert seal(archive.store, keys, 1, 1) == 0
    archive.put_segment("t", 11, log(11, 20, 0, 0))
    assert not is_used(archive)
    assert [step.copies[0].base for step in view_of(archive, seals=True).ranges(12, 20)] == [11]
    assert seal(archive.store, keys, 1, 1) == 5  # no range needs the compacted one any more
    assert is_used(archive)
    archive.put_segment("t", 20, log(20, 22, 0, 0, compacted=True))
    put(archive, [("missing", 22, False), *PLAIN], 0)
    assert seal(archive.store, keys, 1, 1) == len(PLAIN)  # above both
    assert is_used(archive)


def test_a_late_segment_that_fills_a_recorded_gap_is_read(archive: MadeArchive) -> None:
    """Without a listing, readers would return the gap."""
    archive.store.put(archive.partition("t").gap(12, 20), Gap(12, 20, "r", 1, 1).encode())
    archive.commit("t", 20)
    assert not is_used(archive)
    archive.put_segment("t", 11, log(11, 20, 0, 0))
    assert not is_used(archive)


def test_a_repair_unseals_its_offsets_until_its_token_is_removed(archive: MadeArchive) -> None:
    """A killed repair leaves the token, and no agent seals there."""
    keys = archive.partition("t")
    change_tokens(archive.store, keys, {"repair": (4, 6)})
    assert not is_used(archive)
    assert seal(archive.store, keys, 1, 1) == 5
    assert not any(each.start <= 4 < each.end for each in view_of(archive, seals=True).sealed)
    change_tokens(archive.store, keys, {"repair": None})
    assert seal(archive.store, keys, 1, 1) == 1
    assert len(view_of(archive, seals=True).copies) == 6


def test_a_repair_in_between_makes_sealing_fail(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token changes the ETag that the agent read before it listed."""
    keys, read = archive.partition("t"), read_catalog

    def repaired(*given: Any, **named: Any) -> PartitionCatalog:
        catalog = read(*given, **named)
        with unsealed(archive.store, keys, "repair", 0, 30):
            archive.put_segment("t", 0, log(0, 2, 0, 0), variant=True)
        return catalog

    archive.put_segment("t", 12, log(12, 14, 0, 0))
    archive.commit("t", 14)
    monkeypatch.setattr(sealing, "read_catalog", repaired)
    with pytest.raises(PreconditionFailed):
        seal(archive.store, keys, 1, 1)
    assert not is_used(archive)


def test_a_run_grows_the_object_that_it_continues(archive: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object has all of them, up to the greatest number of rows; the next one has the rest."""
    monkeypatch.setattr(sealing, "_MOST", 8)
    keys = archive.partition("t")
    for count, ranges in ((7, [(0, 14)]), (8, [(0, 16)]), (9, [(0, 16), (16, 18)]), (10, [(0, 16), (16, 20)])):
        put(archive, PLAIN[:1] * count, 0)
        assert seal(archive.store, keys, 1, 2 if count == 10 else 1) == 1
        found = SealJson.read(archive.store, keys.seal_json)
        assert found is not None
        assert [(each.start, each.end) for each in found.sealed] == ranges
        assert is_used(archive)


def test_each_window_of_time_leaves_out_the_same_segments(tmp_path: Path) -> None:
    """Rows without a time, of several records and of one, whose least time is known; a window before, in, after."""
    archive = MadeArchive(tmp_path / "store")
    put(archive, [("plain", length, False) for length in (1, 1, 1, 2, 2, 1)], 0)
    seal(archive.store, archive.partition("t"), 1, 1)
    for window in ((low, high) for low in range(-1, 8) for high in range(low + 1, 8)):
        found = []
        for after in (1, 1 << 30):
            with looking_for_seals(after):
                found.append(planned(archive, window, None))
        assert found[0] == found[1], window
    with looking_for_seals(1):
        assert planned(archive, (5, 6), None).segments == 1


def test_an_object_with_epochs_that_the_commit_lacks_does_not_grow(archive: MadeArchive) -> None:
    """An agent removed the pairs that retention has passed, and only the object has them."""
    put(archive, [*PLAIN, ("plain", 2, True)], 0)
    archive.commit("t", 14, epochs=((0, 4), (1, 12)), log_start=4)
    assert seal(archive.store, archive.partition("t"), 1, 1) == 1
    assert len(view_of(archive, seals=True).sealed) == 2
    assert is_used(archive)


@pytest.mark.parametrize(
    "changes",
    [{"lineage": Lineage(1, 2, 3)}, {"sealed": ()}, {"sealed": (SealedRange(0, 12, "0-12.00000000.seal"),)}],
    ids=["another lineage", "nothing", "a missing object"],
)
def test_a_forged_list_of_ranges_is_not_used(archive: MadeArchive, changes: dict[str, object]) -> None:
    """Readers list then."""
    rewritten(archive, **changes)
    assert not is_used(archive)


def test_a_forged_list_of_thousands_of_ranges_costs_few_requests(archive: MadeArchive) -> None:
    """A good range before them is used, and what follows is listed."""
    keys = archive.partition("t")
    found = SealJson.read(archive.store, keys.seal_json)
    assert found is not None
    missing = [SealedRange(at, at + 1, f"{at}-{at + 1}.00000000.seal") for at in range(12, 10_012)]
    rewritten(archive, sealed=(*found.sealed, *missing))
    with looking_for_seals(1) as read:
        assert is_used(archive)
    assert len(read) < 100


@pytest.mark.parametrize("content", [b"", b"{}", b"TSSC\x01"], ids=str)
def test_a_damaged_object_is_not_used(archive: MadeArchive, content: bytes) -> None:
    """Neither the list of ranges, nor a sealed object."""
    key = sealed_key(archive)
    data, _ = archive.store.get(key)
    archive.store.put(key, content)
    assert not is_used(archive)
    archive.store.put(key, data)
    assert is_used(archive)
    archive.store.put(archive.partition("t").seal_json, content)
    assert not is_used(archive)


@pytest.mark.parametrize("epochs", [((0, 0), (1, 11)), ((1, 0),), ((0, 5), (1, 7))], ids=str)
def test_another_line_of_epochs_is_not_used(archive: MadeArchive, epochs: tuple[tuple[int, int], ...]) -> None:
    """An election lost records that are sealed, and the lineage is forged."""
    archive.commit("t", 12, epochs=epochs)
    assert not view_of(archive, seals=True).sealed


def test_epochs_below_the_commits_first_pair_are_used(archive: MadeArchive) -> None:
    """Retention has passed them, and an agent removed their pairs."""
    put(archive, [*PLAIN, ("plain", 2, True)], 0)
    archive.commit("t", 14, epochs=((0, 4), (1, 12)), log_start=4)
    assert is_used(archive)


def test_without_log_start_a_reader_lists_all(archive: MadeArchive) -> None:
    """Retention may have removed the lowest segments."""
    archive.store.delete([archive.partition("t").log_start, archive.partition("t").segment(SegmentName(0))])
    assert view_of(archive, seals=True).start == 2
    assert not is_used(archive)


def test_a_commit_that_replaced_a_java_uploaders_is_listed(archive: MadeArchive) -> None:
    """That uploader writes over segments."""
    commit, _ = read_commit(archive.store, archive.partition("t"))
    assert isinstance(commit, Commit)
    archive.store.put(archive.partition("t").commit, replace(commit, java=1).encode())
    assert not is_used(archive)


def test_nothing_is_sealed_in_a_store_without_conditional_writes(archive: MadeArchive) -> None:
    """There an agent could write `seal.json` over a token."""
    keys = archive.partition("t")
    archive.store.delete([keys.seal_json])
    assert seal(UnconditionalStore(archive.store, threads=1), keys, 1, 1) == 0
    assert seal(archive.store, keys, 1, 1) == len(PLAIN)


def test_verify_compares_sealed_ranges_with_the_listing(archive: MadeArchive) -> None:
    """A segment that readers would not list, one that was removed, and a damaged object; none of a good one."""
    keys, store = archive.partition("t"), archive.store

    def found() -> list[str]:
        listing = list_partition(store, keys)
        assert listing.has_seals
        assert not listing.foreign_count
        return [each.detail for each in check_sealed_ranges(store, listing.catalog, "t-0", 0.0, 0.0)]

    assert found() == []
    archive.put_segment("t", 11, log(11, 20, 0, 0))
    store.delete([keys.segment(SegmentName(2))])
    assert found() == ["the store has 1 segment that it lacks, and lacks 1 that it has"]
    archive.commit("t", 12, log_start=4)
    assert found() == ["the store has 1 segment that it lacks, and lacks 0 that it has"]
    store.put(sealed_key(archive), b"TSSC")
    assert ["CRC-32C" in each for each in found()] == [True]


def test_retention_deletes_what_is_below_the_floor(archive: MadeArchive) -> None:
    """As cache objects in JSON, when none of its segments is left; readers list then."""
    key, view = sealed_key(archive), view_of(archive, seals=False)
    commit, _ = read_commit(archive.store, archive.partition("t"))
    assert isinstance(commit, Commit)

    def removed(below: int) -> set[str]:
        listed = list(archive.store.list(archive.partition("t").prefix))
        return {each.key for each in removable(archive.partition("t"), listed, view.copies, commit, below, 0)}

    assert key not in removed(10)
    assert key in removed(12)
    archive.store.delete([key])
    assert not is_used(archive)


def test_a_copy_that_replaces_a_sealed_segment_is_used(archive: MadeArchive) -> None:
    """A stale list of ranges names the damaged object, and the good copy begins elsewhere."""
    data = log(12, 14, 0, 0)
    metadata = metadata_of(scan_segment(io.BytesIO(data), len(data)), 12, "t")
    replacing = replace(metadata, replaces=SegmentName(10).stem)
    archive.store.put(archive.partition("t").segment(SegmentName(12)), data, metadata=replacing.encode())
    archive.commit("t", 14)
    assert not is_used(archive)


@settings(max_examples=examples(200, quick=20), deadline=None)
@given(MADE, MADE, st.integers(0, 12), st.integers(0, 15), st.integers(1, 6))
def test_a_plan_by_sealed_objects_is_that_of_a_listing(
    sealed: list[tuple[str, int, bool]],
    later: list[tuple[str, int, bool]],
    log_start: int,
    hour: int,
    packed: int,
) -> None:
    """Whatever the partition is like, and whatever followed since it was sealed."""
    with tempfile.TemporaryDirectory() as directory:
        archive = MadeArchive(Path(directory) / "store")
        put(archive, sealed, log_start)
        with looking_for_seals(1):
            seal(archive.store, archive.partition("t"), 1, 1)
            put(archive, [*sealed, *later], log_start)
            seals, listed = view_of(archive, seals=True), view_of(archive, seals=False)
        for start, stop in ((seals.start, seals.end), (seals.start + 1, seals.end - 1), (3, 7)):
            assert seals.plan(start, max(start, stop)) == listed.plan(start, max(start, stop))
        assert list(seals.copies) == list(listed.copies)
        assert list(seals.retired) == list(listed.retired)
        assert seals.own == listed.own
        for hours in (None, (hour, hour + 2)):
            for isolation, limit in (("read_uncommitted", None), ("read_committed", 100 * packed)):
                found = []
                for after in (1, 1 << 30):
                    with looking_for_seals(after):
                        found.append(planned(archive, hours, limit, **{"kafka.isolation.level": isolation}))
                assert found[0] == found[1]
                assert pickle.loads(pickle.dumps(found[0].splits)) == found[1].splits
