"""Filters of a dataset are applied exactly, whatever is not read because of them."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import batches, steps
from tests.reader.archives import ScannedArchive
from tests.reader.observing import at, observed
from tests.reader.shapes import damaged_in_the_middle, fill, scanned

LONG = 9_000  # offsets of a segment that is longer than what narrowing is worth


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> ScannedArchive:
    """Return an archive with every shape of batch."""
    made = ScannedArchive(tmp_path_factory.mktemp("shapes") / "store")
    fill(made)
    log = batches(*steps(0, LONG, 1000))
    made.put_segment("long", 0, log, body=damaged_in_the_middle(log, len(batches(*steps(0, 4000, 1000))) + 80))
    made.put_segment("long", LONG, batches((LONG, LONG + 10)))
    made.commit("long", LONG + 10, highest_base=LONG)
    keys = [record(delta, b"%d" % (delta % 5000), b"v") for delta in range(LONG)]
    made.put_segment("long-keys", 0, batch(0, keys))
    made.commit("long-keys", LONG)
    return made


NUMBERS = st.one_of(
    st.integers(-1, 125),
    st.integers(LONG - 2, LONG + 2),
    st.sampled_from([4000, 4500, 4999, 5000, -(1 << 40), 1 << 40]),
)
MOMENTS = st.one_of(st.integers(990, 1250), st.sampled_from([-1, 0, 1500, 2000, 1000 + LONG, 1 << 40])).map(at)
BINARY = st.one_of(st.integers(0, 130).map(lambda n: b"%d" % n), st.sampled_from([b"", b"v", b"key-7", b"v0"]))
TEXT = st.sampled_from(["fields", "keys", "", "z", "copies", "damaged", "long", "holes"])
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "partition": st.one_of(st.integers(-1, 3), st.just(1 << 40)),
    "offset": NUMBERS,
    "timestamp": st.one_of(MOMENTS, MOMENTS.map(lambda moment: pa.scalar(moment, pa.timestamp("ns", tz="UTC")))),
    "timestampType": st.integers(-2, 2),
    "topic": TEXT,
    "key": BINARY,
    "value": BINARY,
    "_corrupt_record": BINARY,
}
TYPES: Final = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "_corrupt_record": pa.binary()}
OPERATORS: Final[list[Callable[[Any, Any], pc.Expression]]] = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


@st.composite
def leaves(draw: st.DrawFn, names: list[str]) -> pc.Expression:
    """Draw a condition on one column."""
    name = draw(st.sampled_from(names))
    field = pc.field(name)
    kinds = ["null", "valid"] if name not in VALUES else ["compare"] * 6 + ["swapped", "in", "null", "valid", "between"]
    kind = draw(st.sampled_from(kinds))
    if kind == "null":
        return field.is_null()
    if kind == "valid":
        return field.is_valid()
    if kind == "in" and name != "timestamp":
        values = draw(st.lists(VALUES[name], max_size=4)) + draw(st.sampled_from([[], [None]]))
        return field.isin(pa.array(values, TYPES.get(name, pa.int64())))
    if kind == "swapped":
        return draw(st.sampled_from(OPERATORS))(pc.scalar(draw(VALUES[name])), field)
    if kind == "between":
        return (field >= draw(VALUES[name])) & (field < draw(VALUES[name]))
    return draw(st.sampled_from(OPERATORS))(field, draw(VALUES[name]))


def filters(names: list[str]) -> st.SearchStrategy[pc.Expression]:
    """Return filters of some columns."""
    return st.recursive(
        leaves(names),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            inner.map(lambda each: ~each),
        ),
        max_leaves=5,
    )


FILTERED: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    **{name: scanned(name) for name in ("headers", "copies", "permissive", "latest", "several topics")},
    "long": ("long", {"mode": "DROPMALFORMED"}),
    "long, permissive": ("long", {"mode": "PERMISSIVE"}),
    "long, latest": ("long-keys", {"view": "latest"}),
}


@pytest.mark.parametrize("examples", [10, pytest.param(2000, marks=pytest.mark.full)])
def test_filters_are_applied_exactly(shapes: ScannedArchive, examples: int) -> None:
    """A filtered dataset has the rows and columns that Arrow's filter leaves of the whole table."""
    scans = {name: shapes.scan(topic, **arguments) for name, (topic, arguments) in FILTERED.items()}
    with capture_logs():
        tables = {name: scan.to_table() for name, scan in scans.items()}

        @settings(max_examples=examples)
        @given(st.data(), st.sampled_from(sorted(FILTERED)))
        def check(data: st.DataObject, name: str) -> None:
            scan, whole = scans[name], tables[name]
            names = scan.schema.names
            chosen = data.draw(filters(names), label="filter")
            columns = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True), label="columns")
            expected = whole.filter(chosen)
            expected = expected if columns is None else expected.select(columns)
            dataset = scan.dataset()
            found = dataset.to_table(columns, filter=chosen)
            assert found.num_rows == expected.num_rows
            assert found == expected
            assert dataset.count_rows(filter=chosen) == expected.num_rows

        check()


def test_the_newest_record_of_a_key_is_found_before_a_filter(shapes: ScannedArchive) -> None:
    """A part of the plan without matching rows can have the newest record of a key; a partition cannot."""
    for topic, bound in (("keys", 60), ("long-keys", 4500)):
        dataset, noting = observed(shapes.scan(topic, view="latest"))
        whole = dataset.to_table()
        for chosen in (pc.field("offset") < bound, pc.field("timestamp") < at(1000 + bound)):
            assert dataset.to_table(filter=chosen) == whole.filter(chosen)
        assert {estimate.segments for estimate in noting.estimates} == {noting.estimates[0].segments}
    dataset, noting = observed(shapes.scan("keys", view="latest"))
    assert dataset.count_rows(filter=pc.field("partition") == 1) == 17
    assert noting.estimates[0].partitions == 1


def test_r04_a_corrupt_place_has_its_row_whatever_is_read_of_it(shapes: ScannedArchive) -> None:
    """Columns and filters without the raw bytes do not make it disappear, and a filter does not move it."""
    dataset = shapes.scan("damaged", mode="PERMISSIVE", partitions=[0]).dataset()
    assert dataset.count_rows() == 81
    assert dataset.to_table(["key"], filter=pc.field("key").is_null()).to_pylist() == [{"key": None}]
    assert dataset.to_table({"next": pc.field("offset") + 1}).num_rows == 81
    assert dataset.to_table([]).num_rows == 81
    long = shapes.scan("long", mode="PERMISSIVE").dataset()
    for start, first in ((3999, 3999), (4000, 4000), (4001, 5000), (4500, 5000), (5001, 5001)):
        found = long.to_table(["offset"], filter=pc.field("offset") >= start)["offset"].to_pylist()
        assert found[:2] == [first, 5000 if first == 4000 else first + 1]


def test_a_narrow_filter_of_offsets_reads_few_of_a_long_segment(shapes: ScannedArchive) -> None:
    """Its parts at both ends that cannot match are left out; rows in between are read."""
    dataset, noting = observed(shapes.scan("fields"))
    assert dataset.count_rows() == 200
    long, noting = observed(shapes.scan("long", mode="DROPMALFORMED", ending_offsets={0: LONG}))
    assert long.to_table(["offset"], filter=pc.field("offset") == 17)["offset"].to_pylist() == [17]
    assert long.to_table(["offset"], filter=pc.field("offset") >= LONG - 3).num_rows == 3
    assert long.to_table(["offset"], filter=pc.field("offset").isin([5, LONG - 5])).num_rows == 2
    assert [estimate.offsets for estimate in noting.estimates] == [LONG // 4, LONG // 4, LONG]
    assert noting.estimates[0].bytes < noting.estimates[2].bytes * 0.3
    assert all(estimate.segments == 1 for estimate in noting.estimates)


def test_a_filter_by_the_place_of_a_field_is_applied_to_that_field(shapes: ScannedArchive) -> None:
    """Columns that are left out would move it to another one."""
    dataset = shapes.scan("fields").dataset()
    place = dataset.schema.get_field_index("partition")
    found = dataset.to_table(columns=["offset"], filter=pc.field(place) == 0)
    assert found == dataset.to_table(columns=["offset"], filter=pc.field("partition") == 0)
    assert 0 < found.num_rows < dataset.count_rows()
