"""A look-up where an index has nothing: live tails, odd bytes, damage, other incarnations; and its requests."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.made_seals import looking_for_seals
from tests.made_tail import MadeTail, plain, ship
from tests.made_views import view_of
from tests.matrix import sampled
from tests.md5_etags import Md5Etags
from tests.reader.archives import ScannedArchive
from tests.reader.decode.decoded_rows import decoded_to_the_damage
from tests.reader.decode.odd_bytes import ALL
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.erased_list import erased_key
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.errors import DataLoss
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_reader import Archive
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.building import Built, Lacking, build, lacking
from ts_reader.find.keeping import keep
from ts_reader.find.lookup import KeyLookup, read_runs
from ts_reader.find.merging import merge, stored_in
from ts_reader.find.rules import PARTS, Certificate, Entry
from ts_reader.find.runs import Pairs, Run, file_of, put_file, put_objects, read_pairs
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Query, Subscription
from ts_reader.query.read_split import read_split
from ts_uploader.shipping.sealing import seal


def index(archive: MadeArchive, partition: int = 0, topic: str = "t") -> int:
    """Add the segments of a partition that its index lacks; return their number."""
    view = view_of(archive, topic, partition)
    runs = read_runs(archive.store, archive.keys, view.keys.incarnation)
    return build(archive.store, archive.keys.find(view.keys.incarnation), lacking(view, runs), most_share=100).objects


def test_a_live_tail_is_always_read(archive: ScannedArchive) -> None:
    """No index has its entries, and the closed segments are left out next to them."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 130)))
    assert index(archive) > 0
    assert [row["offset"] for row in archive.rows(key_equals="120")] == [120]
    assert [row["offset"] for row in archive.rows(key_equals=["7", b"120"])] == [7, 120]
    assert archive.rows(key_equals=[]) == []
    assert archive.scan(key_equals="7").count_rows() == 1
    assert archive.scan(key_equals="7").dataset().count_rows() == 1
    assert [each.rows for each in archive.scan(key_equals="7").statistics()] == [1]


def test_odd_bytes_of_producers_lose_no_row(tmp_path: Path) -> None:
    """Offsets that contradict headers, old messages, null keys: each key has the rows of a full scan."""
    made = MadeArchive(tmp_path)
    names = [name for name, data in ALL.items() if not decoded_to_the_damage(data)[1]]
    overrunning, lacked = set(), list[Lacking]()
    for number, name in enumerate(names):
        end = max((row[0] for row in decoded_to_the_damage(ALL[name])[0]), default=0) // 2 + 1
        made.put_segment("t", 0, ALL[name], partition=number, end=end)
        made.put_segment("t", end, batches((end, end + 20)), partition=number)
        made.commit("t", end + 20, partition=number, highest_base=end)
        view = view_of(made, "t", number)
        lacked += lacking(view, [])
        if any(isinstance(part, ReadRange) and part.before for part in view.plan(0, end + 20)):
            overrunning.add(number)
    assert build(made.store, made.keys.find("t"), lacked, most_share=100).objects > len(names)
    archive = Archive(made.location, CLUSTER, workers=1)

    def rows(keys: list[bytes] | None) -> list[tuple[Any, ...]]:
        scan = archive.scan("t", columns=["key", "partition", "offset"], key_equals=keys)
        return sorted(tuple(row.values()) for row in scan.to_table().to_pylist() if row["key"] is not None)

    every = rows(None)
    keys = sorted({row[0] for row in every if isinstance(row[0], bytes)})
    reaching = {row[0] for row in every if row[1] in overrunning and row[0] != b"%d" % row[2]}
    assert len(reaching) > 5  # keys of records that reach into the next segment
    for key in sampled([*sorted(reaching)[:20], *keys[:: max(len(keys) // 6, 1)]], step=4):
        assert rows([key]) == [row for row in every if row[0] == key]


def test_damage_is_not_indexed(archive: ScannedArchive) -> None:
    """The builder leaves out what it cannot read; a look-up then finds the damage, as a scan does."""
    good = batches((0, 10))
    archive.put_segment("t", 0, good, body=good[:-1] + bytes([good[-1] ^ 1]))
    archive.put_segment("t", 10, batches((10, 20)))
    archive.commit("t", 20, highest_base=10)
    view = view_of(archive)
    built = build(archive.store, archive.keys.find("t"), lacking(view, []), most_share=100)
    assert (built.objects, len(built.unread)) == (1, 1)
    assert archive.scan(key_equals="12", mode="DROPMALFORMED").found is not None
    assert [row["offset"] for row in archive.rows(key_equals="12", mode="DROPMALFORMED")] == [12]
    with pytest.raises(Exception, match="CRC"):
        archive.rows(key_equals="12")


def test_a_later_incarnation_has_an_index_of_its_own(archive: ScannedArchive) -> None:
    """Its objects have other directories."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    index(archive)
    archive.put_incarnations("t", "A", "B")
    archive.directories["t"] = archive.keys.later_incarnation("t", "B")
    archive.put_segment("t", 0, batches((0, 20)))
    archive.commit("t", 20)
    found = archive.scan(key_equals="15").found
    assert found is not None
    assert (found.indexed, found.unindexed) == (0, 1)
    index(archive)
    found = archive.scan(key_equals="15").found
    assert found is not None
    assert (found.indexed, found.unindexed, found.unindexed_bytes) == (1, 0, 0)
    assert [row["offset"] for row in archive.rows(key_equals="15")] == [15]
    assert archive.rows(key_equals="15", incarnation="oldest") == []


def _written(archive: ScannedArchive, name: str, data: bytes) -> None:
    """Write an object of the only run again, whose list then has its ETag."""
    (run,) = read_runs(archive.store, archive.keys, "t")
    etag = archive.store.put(f"{run.prefix}{name}", data).etag
    if name != "objects.parquet":
        archive.store.delete([f"{run.prefix}objects.parquet"])
        put_objects(archive.store, run.prefix, run.entries.items(), {name[:2]: (len(data), etag)})


def _list_of(version: int, **changes: int) -> bytes:
    buffer = io.BytesIO()
    row = {"directory": "t-0", "stem": f"{0:020d}", "size": 1, "etag": "e", "base": 0, "end": 10, "parts": 256}
    row |= {"murmur2": 1, "crc32": 1, "fnv1a": 1, **changes}
    about = json.dumps({"version": version, "files": {}, "replaces": []})
    pq.write_table(pa.Table.from_pylist([row]).replace_schema_metadata({"ts-find": about}), buffer)
    return buffer.getvalue()


def _file_of(places: list[int | None], rows: list[int], parts: list[int]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"h": places, "s": rows, "p": parts}), buffer)
    return buffer.getvalue()


PLACE = hashed(b"5").place
NAME = f"{file_of(PLACE)}.parquet"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("objects.parquet", b""),
        ("objects.parquet", b"PAR1" + bytes(100) + b"PAR1"),
        ("objects.parquet", _list_of(2)),
        ("objects.parquet", _list_of(1, end=0)),
        ("objects.parquet", _list_of(1, parts=7)),
        ("objects.parquet", _list_of(1, murmur2=-1)),
        ("objects.parquet", _file_of([1], [1], [1])),
        (NAME, b"garbage"),
        (NAME, _file_of([PLACE], [9], [0])),
        (NAME, _file_of([PLACE], [0], [256])),
        (NAME, _file_of([PLACE], [0], [-2])),
        (NAME, _file_of([None], [0], [0])),
        (NAME, _list_of(1)),
    ],
)
def test_an_index_that_is_damaged_or_of_a_later_release_is_not_there(
    archive: ScannedArchive, name: str, data: bytes
) -> None:
    """What it would cover is read, with a warning."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    index(archive)
    _written(archive, name, data)
    with capture_logs() as logs:
        assert [row["offset"] for row in archive.rows(key_equals="5")] == [5]
    assert [each["event"] for each in logs] == ["index_of_keys_unusable"]


def test_a_rare_key_costs_few_requests(tmp_path: Path) -> None:
    """One of 200 sealed segments is read, whatever the index has of the others: a run is a list and a file."""
    archive = MadeArchive(tmp_path)
    for base in range(0, 2000, 10):
        archive.put_segment("t", base, batches((base, base + 10)), index=bytes(8))
    archive.commit("t", 2000, highest_base=1990)
    with looking_for_seals(1):
        seal(archive.store, archive.partition("t"), 1, 1)
        assert index(archive) == 200
        counts = StoreCounts()
        store = CountedStore(archive.store, counts)
        query = Query(archive.location, CLUSTER, 0, Subscription(("t",)), key_equals=frozenset([b"1234"]))
        plan = plan_query(store, query)
    assert plan.segments == 1
    planning = counts.requests.total()
    rows = [row for split in plan.splits for some in read_split(store, split, ["key"]) for row in some.to_pylist()]
    assert rows == [{"key": b"1234"}]
    counts = StoreCounts()
    catalog = read_catalog(archive.store, archive.partition("t"))
    found, windows = KeyLookup(CountedStore(archive.store, counts), [catalog.keys], [b"1234"]).windows(
        [view_of(archive)]
    )
    assert (found.indexed, found.unindexed, found.runs) == (200, 0, 1)
    assert sum(high - low for low, high in windows[view_of(archive).partition]) == 1
    assert dict(counts.requests) == {"list": 1, "get": 2}
    assert planning <= 12


def test_an_index_saves_the_requests_for_commits_that_did_not_move(tmp_path: Path) -> None:
    """Of two partitions one moves: only its commit is read, before a second listing, and its new record is found.

    When the index is older than its commits were, a commit is read first, and each partition is listed once.
    """
    archive = MadeArchive(tmp_path)
    for partition in (0, 1):
        archive.put_segment("t", 0, batches((0, 50)), partition=partition)
        archive.commit("t", 50, partition=partition)
    store = Md5Etags(archive.store, threads=1)

    def add(prefix: str, copies: Sequence[Lacking], commits: Mapping[str, str]) -> Built:
        return build(store, prefix, copies, most_share=100, commits=commits)

    keep(store, [read_catalog(store, archive.partition("t", number)) for number in (0, 1)], add)
    query = Query(archive.location, CLUSTER, 0, Subscription(("t",)), key_equals=frozenset([b"70"]))
    places = [archive.partition("t", number) for number in (0, 1)]

    def found() -> tuple[list[int], list[int], int]:
        """Return for each partition the reads of its commit and the listings, and the segments of the plan."""
        store.reads.clear()
        store.listings.clear()
        plan = plan_query(store, query)
        return (
            [store.reads[each.commit] for each in places],
            [store.listings[each.prefix] for each in places],
            (plan.segments),
        )

    assert found() == ([0, 0], [1, 1], 0)
    archive.put_segment("t", 50, batches((50, 100)), partition=1)
    archive.commit("t", 100, partition=1, highest_base=50)
    assert found() == ([0, 1], [1, 2], 1)
    (run,) = read_runs(store, archive.keys, "t")
    merge(store, archive.keys.find("t"), "2026", [run], stored_in([view_of(archive)]))
    assert found() == ([0, 1], [1, 2], 1)
    store.later = 2 * store.current_time()
    assert found() == ([1, 1], [1, 1], 1)


def _left_out(archive: MadeArchive, key: bytes) -> bool:
    """Return whether partition 0 is left out by its listing."""
    catalog = read_catalog(archive.store, archive.partition("t"))
    return KeyLookup(archive.store, [catalog.keys], [key]).leaves_out(catalog, tails=True)


def test_a_partition_is_left_out_by_its_listing(tmp_path: Path) -> None:
    """Commit and listing suffice, if certificates exclude the key and segments follow each other without a hole."""
    every = [b"%d" % number for number in range(400)]
    keys = [key for key in every if hashed(key).murmur2 % 2 == 0]
    there, elsewhere = keys[3], next(key for key in every if hashed(key).murmur2 % 2)
    archive = MadeArchive(tmp_path)
    for base in (0, 50, 100):
        log = batch(base, [record(at, keys[base + at]) for at in range(50)])
        archive.put_segment("t", base, log)
        archive.commit("t", base + 50, highest_base=base)
    assert not _left_out(archive, elsewhere)
    index(archive)
    assert _left_out(archive, elsewhere)
    assert not _left_out(archive, there)
    counts = StoreCounts()
    query = Query(archive.location, CLUSTER, 0, Subscription(assigned={"t": (0,)}), key_equals=frozenset([elsewhere]))
    plan = plan_query(CountedStore(archive.store, counts), query)
    assert (plan.segments, plan.found and (plan.found.indexed, plan.found.excluded)) == (0, (3, 3))
    assert counts.requests["head"] == 0
    archive.commit("t", 150, highest_base=100, log_start=70)
    assert _left_out(archive, elsewhere)
    archive.commit("t", 151, highest_base=100)
    assert not _left_out(archive, elsewhere)
    archive.commit("t", 150, highest_base=100, live=Live("1", (), EpochHistory()))
    assert not _left_out(archive, elsewhere)
    archive.commit("t", 150, highest_base=100)
    archive.store.put(erased_key(archive.partition("t"), 1), b"garbage")
    assert not _left_out(archive, elsewhere)
    with pytest.raises(DataLoss, match="not a list of erased offsets"):
        plan_query(archive.store, query)
    archive.store.delete([erased_key(archive.partition("t"), 1)])
    assert _left_out(archive, elsewhere)
    archive.store.delete([archive.partition("t").segment(SegmentName(50))])
    assert not _left_out(archive, elsewhere)


@pytest.mark.parametrize(("begins", "is_left_out"), [(50, True), (69, True), (70, True), (71, False), (100, True)])
def test_an_epoch_that_begins_inside_of_a_segment_needs_its_metadata(
    tmp_path: Path, begins: int, is_left_out: bool
) -> None:
    """There the segment can be a dead tail, above a hole; below `log.start` no reader looks."""
    archive, key, (other, *_) = _two_segments(tmp_path)
    archive.commit("t", 100, highest_base=50, epochs=((0, 0), (1, begins)), log_start=70)
    catalog = read_catalog(archive.store, archive.partition("t"))
    assert KeyLookup(archive.store, [catalog.keys], [other]).leaves_out(catalog, tails=True) == is_left_out
    assert not KeyLookup(archive.store, [catalog.keys], [key]).leaves_out(catalog, tails=True)


def test_an_object_put_again_needs_its_metadata(tmp_path: Path) -> None:
    """The same bytes can have the same ETag in some stores, and other metadata, so another coverage."""
    archive, _, (other, *_) = _two_segments(tmp_path)
    catalog = read_catalog(archive.store, archive.partition("t"))
    lookup = KeyLookup(archive.store, [catalog.keys], [other])
    first, second = catalog.segments
    again = replace(second, modified=int(archive.store.current_time() * 1000) + 1)
    assert lookup.leaves_out(catalog, tails=True)
    assert not lookup.leaves_out(replace(catalog, segments=(first, again)), tails=True)
    (run,) = read_runs(archive.store, catalog.keys.cluster, catalog.keys.incarnation)
    stored = stored_in([view_of(archive)])
    put_again = {identity: again.modified for identity in stored if identity[1] == second.name.stem}
    merge(archive.store, catalog.keys.cluster.find("t"), "2026", [run], stored | put_again)
    newest, _ = read_runs(archive.store, catalog.keys.cluster, catalog.keys.incarnation)
    assert set(newest.entries) == set(stored) - set(put_again)


def _two_segments(directory: Path) -> tuple[MadeArchive, bytes, list[bytes]]:
    """Return an archive of two indexed segments, a key that it has, and keys that it has not."""
    every = [b"%d" % number for number in range(400)]
    keys = [key for key in every if hashed(key).murmur2 % 2 == 0]
    archive = MadeArchive(directory)
    for base in (0, 50):
        archive.put_segment("t", base, batch(base, [record(at, keys[base + at]) for at in range(50)]))
    archive.commit("t", 100, highest_base=50)
    index(archive)
    return archive, keys[60], [key for key in every if hashed(key).murmur2 % 2]


@pytest.mark.parametrize(("count", "requests"), [(100_000, 1), (900_000, 2)])
def test_a_file_costs_one_request_or_two(tmp_path: Path, count: int, requests: int) -> None:
    """A small file is read whole; of a large one its end, and then the groups that can have the place."""
    archive, generator = MadeArchive(tmp_path), np.random.default_rng(3)
    places = np.sort(generator.integers(7 << 32, 8 << 32, count))
    pairs = Pairs(places, generator.integers(0, 3, count), generator.integers(0, PARTS, count))
    file = put_file(archive.store, "run/", "07", pairs)
    entry = Entry(0, 0, 10, PARTS, Certificate(1, 1, 1))
    run = Run("run", "run/", {("t-0", str(row), 1, "e"): replace(entry, row=row) for row in range(3)}, {"07": file})
    for wanted in (places[0], places[count // 2], places[-1]):
        counts = StoreCounts()
        found = read_pairs(CountedStore(archive.store, counts), run, "07", [int(wanted)])
        assert (found.place == wanted).all()
        assert len(found) == (places == wanted).sum()
        assert dict(counts.requests) == {"get": requests}
    assert (read_pairs(archive.store, run, "07").place == places).all()


def test_a_hot_key_is_one_window_of_a_segment(archive: ScannedArchive) -> None:
    """A key in many parts of a segment costs as much as a scan of it, and not a request for each part."""
    records = [record(at, b"hot" if at % 3 else b"%d" % at) for at in range(900)]
    archive.put_segment("t", 0, batch(0, records))
    archive.commit("t", 900)
    index(archive)
    view = view_of(archive)
    catalog = read_catalog(archive.store, archive.partition("t"))
    _, windows = KeyLookup(archive.store, [catalog.keys], [b"hot"]).windows([view])
    assert windows[view.partition] == ((0, 900),)
    assert len(archive.rows(key_equals="hot")) == 600
