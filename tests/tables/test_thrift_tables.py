"""Tables of values of Thrift: each record is a row or refused, as of other parsers."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from tests.tables.parsers.thrift.made_thrift import classes_of, encoded, written_idl
from tests.tables.test_parsed_tables import NAME, Made
from ts_common.errors import ConfigurationError, OperatorError

IDL = """
include "inc/common.thrift"
struct Event { 1: required i64 id; 2: optional string note; 3: list<common.Point> points; 4: common.Kind kind }
"""
QUERY = "select _offset, id, note, kind, points from {} order by _offset"


def made_table(directory: Path, table_format: str, **more: object) -> Made:
    """Return a table of the IDL in a directory."""
    options = {"idl": str(written_idl(directory / "idl", IDL)), "struct": "Event", "protocol": "compact"}
    parser = {"type": "thrift", "options": options}
    return Made(MadeArchive(directory / "archive"), directory / "lake", table_format, {"parser": parser, **more})


def values_of(directory: Path, numbers: Sequence[int]) -> list[bytes | None]:
    """Return values of the IDL in a directory."""
    module = classes_of(directory / "idl/event.thrift")
    point = module.common.Point(x=0.5)
    return [encoded(module.Event(id=number, points=[point], kind=5), "compact") for number in numbers]


@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
def test_each_record_is_a_row_or_refused(tmp_path: Path, table_format: str) -> None:
    """A cut value is refused with the reason, and a tombstone is a row of nulls."""
    made = made_table(tmp_path, table_format)
    first, second = values_of(tmp_path, [1, 2])
    made.put_values(0, [first, (second or b"")[:-1], None, second])
    assert made.tables.create(NAME)
    summary = made.tables.run(NAME)
    assert (summary.records, summary.refused) == (3, 1)
    points = [{"x": 0.5, "y": None}]
    assert made.select(QUERY) == [
        (0, 1, None, "BUY", points),
        (2, None, None, None, None),
        (3, 2, None, "BUY", points),
    ]
    ((offset, reason, parser),) = made.select("select _offset, _reason, _parser from {}", "_quarantine")
    assert (offset, reason) == (1, "0 bytes left; 1 expected")
    assert parser.startswith("thrift:")
    assert made.tables.verify(NAME).differences == ()


@pytest.mark.parametrize("mode", ["append", "changes"])
def test_a_table_has_one_struct(tmp_path: Path, mode: str) -> None:
    """Wherever its IDL is, and whatever else is in it; a struct whose rows would differ is refused."""
    made = made_table(tmp_path, "parquet", mode=mode)
    made.put_values(0, values_of(tmp_path, [1]))
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(1, values_of(tmp_path, [2]))
    options = made.more["parser"]["options"]
    path = written_idl(tmp_path / "other", f"{IDL}\n// a comment\nstruct Other {{ 1: i32 a }}", "events")
    made.more["parser"] = {"type": "thrift", "options": {**options, "idl": str(path)}}
    assert made.tables.run(NAME).records == 1
    made.put_values(2, values_of(tmp_path, [3]))
    for change in (("optional string note", "optional string note = 'x'"), ("4: common", "5: common")):
        path.write_text(IDL.replace(*change))
        with pytest.raises(OperatorError, match="the table has the rows of parser thrift:"):
            made.tables.run(NAME)
    made.more["parser"]["options"]["protocol"] = "binary"
    path.write_text(IDL)
    with pytest.raises(OperatorError, match="the table has the rows of parser thrift:"):
        made.tables.run(NAME)


@pytest.mark.parametrize(
    ("struct", "reason"),
    [
        ("Evnt", r"has no struct 'Evnt'; did you mean Event\?; it has Event, common.Target, common.Point"),
        ("Event", r"tables\.lake\.events\.parser: 1 problem\n  - options.idl: .*event.thrift: cannot be read: No such"),
    ],
)
def test_a_struct_or_a_file_that_does_not_exist_is_a_wrong_configuration(
    tmp_path: Path, struct: str, reason: str
) -> None:
    """When the table is opened; the file of tables alone is right."""
    made = made_table(tmp_path, "parquet")
    made.more["parser"]["options"]["struct"] = struct
    if struct == "Event":
        (tmp_path / "idl/event.thrift").unlink()
    tables = made.tables
    with pytest.raises(ConfigurationError, match=reason):
        tables.create(NAME)


def test_a_column_of_a_struct_is_no_name_of_the_table(tmp_path: Path) -> None:
    """As of all parsers."""
    made = made_table(tmp_path, "parquet")
    written_idl(tmp_path / "idl", "struct Event { 1: i64 _offset }")
    with pytest.raises(ConfigurationError, match="column _offset: the table has another one of this name"):
        made.tables.create(NAME)
