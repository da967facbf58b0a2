"""Tables of each format of plain files: elections, deletions and names."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, put, verified
from tests.tables.test_parsed_tables import NAME, Made
from ts_common.errors import ConfigurationError, OperatorError
from ts_tables.claims.advance import OnTakenBack, Policy
from ts_tables.files.file_names import FileNames, check_template
from ts_tables.files.layout import FileFormat
from ts_tables.files.partitioning import Term, Transform

TEMPLATE = "{topic}/{generation}_{kafka_partition}_{first_offset}"
NEW = (FileFormat.ORC, FileFormat.TEXT, FileFormat.SEQUENCE, FileFormat.SEQUENCE_MESSAGEPACK)


def made(tmp_path: Path, form: FileFormat, **further: object) -> MadeTable:
    table = MadeTable(MadeArchive(tmp_path / "archive"), tmp_path / "lake", format=form, **further)  # type: ignore[arg-type]
    table.policy = Policy(on_taken_back=OnTakenBack.DELETE)
    table.create()
    return table


def lines(table: MadeTable) -> dict[str, Sequence[str]]:
    """Return the lines of each file of text."""
    root = table.directory / "files"
    return {path: (root / path).read_text().splitlines() for path in sorted(table.paths())}


@pytest.mark.parametrize("form", NEW)
def test_an_election_takes_rows_of_each_format_back(tmp_path: Path, form: FileFormat) -> None:
    """The rows below stay, in a file that is written again; those of the hour too."""
    table = made(tmp_path, form, partition_by=("hour(timestamp)",))
    put(table.archive, 0, 50, time=3_590_000)  # the hour ends at offset 10000
    put(table.archive, 0, 30, partition=1)
    table.run()
    assert verified(table).differences == ()
    table.archive.put_segment("t", 0, batches(*steps(0, 20), time=3_590_000), variant=True)
    table.archive.put_segment("t", 20, batches(*steps(20, 40), epoch=1, value=b"w", time=3_600_000), variant=True)
    table.archive.commit("t", 40, epochs=[(0, 0), (1, 20)], highest_base=20, last_stable_offset=40)
    table.run()
    assert [row["value"] for row in table.rows()] == [b"v"] * 20 + [b"w"] * 20 + [b"v"] * 30
    assert {path.partition("/")[0] for path in table.paths()} == {
        "timestamp_hour=1970-01-01-00",
        "timestamp_hour=1970-01-01-01",
    }
    found = verified(table)
    assert (found.differences, found.rows) == ((), 70)


@pytest.mark.parametrize("form", NEW)
def test_verify_finds_changes_in_each_format(tmp_path: Path, form: FileFormat) -> None:
    """A file has another file's rows, as after a mistaken copy."""
    table = made(tmp_path, form)
    put(table.archive, 0, 20)
    table.run()
    table.archive.put_segment("t", 20, batches(*steps(20, 40), value=b"x"))
    table.archive.commit("t", 40, highest_base=20, last_stable_offset=40)
    table.run()
    assert verified(table).differences == ()
    first, last = sorted(table.paths())
    root = table.directory / "files"
    (root / first).write_bytes((root / last).read_bytes())
    assert verified(table).differences


def test_a_value_with_the_delimiter_ends_the_run(tmp_path: Path) -> None:
    """Nothing is written; another delimiter is the way out."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches(*steps(0, 5), value=b"a\nb"))
    archive.commit("t", 5, last_stable_offset=5)
    for number, (delimiter, message) in enumerate(((b"\n", "t-0, offset 0: the value contains"), (b";", ""))):
        table = MadeTable(archive, tmp_path / str(number), format=FileFormat.TEXT, delimiter=delimiter)
        table.create()
        if message:
            with pytest.raises(OperatorError, match=message):
                table.run()
            assert table.files() == set()
        else:
            assert table.run().records == 5
            assert verified(table).differences == ()


def test_files_have_the_names_of_the_template(tmp_path: Path) -> None:
    """Each has rows of one Kafka partition; after an election a name is not used again."""
    table = made(tmp_path, FileFormat.TEXT, compression="none", file_names=TEMPLATE)
    put(table.archive, 0, 2)
    put(table.archive, 0, 3, partition=1)
    table.run()
    assert lines(table) == {
        "t/1_0_00000000000000000000.txt": ["v"] * 2,
        "t/1_1_00000000000000000000.txt": ["v"] * 3,
    }
    table.archive.put_segment("t", 0, batches(*steps(0, 1)), variant=True)
    table.archive.put_segment("t", 1, batches(*steps(1, 3), epoch=1, value=b"w"), variant=True)
    table.archive.commit("t", 3, epochs=[(0, 0), (1, 1)], highest_base=1, last_stable_offset=3)
    table.run()
    assert lines(table) == {
        "t/1_0_00000000000000000000_2.txt": ["v"],
        "t/1_0_00000000000000000001.txt": ["w"] * 2,
        "t/1_1_00000000000000000000.txt": ["v"] * 3,
    }
    assert verified(table).differences == ()


def test_rows_that_wait_are_merged_by_kafka_partition(tmp_path: Path) -> None:
    """A file with a name of one partition, or a SequenceFile, has no rows of another."""
    table = made(tmp_path, FileFormat.SEQUENCE, max_age=3600)
    for start in (0, 10):
        put(table.archive, start, start + 10)
        put(table.archive, start, start + 10, partition=1)
        table.run()
    assert table.paths() == []
    table.max_age = 0
    table.run()
    assert len(table.paths()) == 2
    assert [table.offsets(number) for number in range(2)] == [[*range(20)]] * 2
    assert verified(table).differences == ()


def test_the_partition_key_is_a_part_of_the_name() -> None:
    """A term is a directory; an offset has as many digits as the largest."""
    template = "{topic}/{partition}/g{generation}-{kafka_partition}-{first_offset}"
    names = FileNames(
        (Term(Transform.DAY, "timestamp"), Term(Transform.IDENTITY, "topic")),
        ".seq",
        template,
        2,
    )
    check_template(template, True)
    assert names.path((20_000, "a/b"), "a", 7, 1 << 40, "unused") == (
        "a/timestamp_day=2024-10-04/topic=a%2Fb/g2-7-00000001099511627776.seq"
    )


@pytest.mark.parametrize(
    ("template", "has_key", "reason"),
    [
        ("{first_offset}_{kafka_partition}", True, "{partition} is one of the directories"),
        ("{partition}/{first_offset}_{kafka_partition}", False, "{partition} is one of the directories"),
        ("x{partition}/{first_offset}_{kafka_partition}", True, "{partition} is one of the directories"),
        ("{first_offset}/{kafka_partition}", False, "the last part has"),
        ("a/{first_offset}", False, "the last part has"),
        ("{first_offset}{kafka_partition}", False, "two fields adjoin"),
        ("_ts/{first_offset}_{kafka_partition}", False, "a part is of letters"),
        ("../{first_offset}_{kafka_partition}", False, "a part is of letters"),
        ("/{first_offset}_{kafka_partition}", False, "a part is of letters"),
        ("{offset}_{kafka_partition}", False, "{offset} is unknown; accepted are"),
        ("{first_offset}_{kafka_partition", False, "a part is of letters"),
    ],
)
def test_a_wrong_template_is_refused(template: str, has_key: bool, reason: str) -> None:
    """A name could leave the table, be hidden, or be that of another file."""
    with pytest.raises(ValueError, match=reason):
        check_template(template, has_key)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"format": "text", "parser": {"type": "json", "columns": {"id": "long"}}},
            "parser: files of text have the values as",
        ),
        ({"format": "sequence", "parser": None, "sort_by": "key"}, "sort_by: records of sequence are in the order"),
        ({"format": "sequence", "parser": None, "compression": "zstd"}, "compression: sequence has none, gzip"),
        ({"format": "orc", "parser": None, "delimiter": ";"}, "delimiter: orc has none"),
        ({"format": "iceberg", "parser": None, "file_names": TEMPLATE}, "file_names: an Iceberg table names"),
    ],
)
def test_what_a_format_lacks_is_refused(tmp_path: Path, more: dict[str, object], reason: str) -> None:
    """Before a table exists."""
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", str(more["format"]), {**more})
    with pytest.raises(ConfigurationError, match=reason):
        table.tables.create(NAME)
