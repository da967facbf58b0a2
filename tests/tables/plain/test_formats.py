"""Tables of each format of plain files: elections, deletions and names."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches, steps
from tests.tables.made_tables import MadeTable, put, verified
from tests.tables.test_parsed_tables import NAME, Made
from ts_common.errors import ConfigurationError, OperatorError
from ts_common.model import TopicPartition
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnRecreated, OnTakenBack, Policy
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
def test_an_election_removes_rows_of_each_format(tmp_path: Path, form: FileFormat) -> None:
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


@pytest.mark.parametrize("form", [FileFormat.TEXT, FileFormat.SEQUENCE_MESSAGEPACK, FileFormat.ORC])
def test_files_of_a_topic_that_was_created_again_are_apart(tmp_path: Path, form: FileFormat) -> None:
    """Equal offsets of both get two names, and held rows are not merged with those of the other one."""
    ids = ("A" * 22, "B" * 22)
    table = made(tmp_path, form, file_names=TEMPLATE, max_age=3600)
    table.policy = Policy(on_recreated=OnRecreated.FOLLOW)
    for number, topic_id in enumerate(ids, 1):
        table.archive.put_incarnations("t", *ids[:number])
        if number > 1:
            keys = table.archive.keys.partition(TopicPartition("t", 0), f"t~{topic_id}")
            table.archive.partition = lambda _topic, _partition=0, keys=keys: keys  # type: ignore[method-assign, misc]
        for start in (0, 10):
            table.archive.put_segment("t", start, batches(*steps(start, start + 10), value=topic_id.encode()))
            table.archive.commit("t", start + 10, highest_base=start, last_stable_offset=start + 10)
            table.run()
    assert table.paths() == []
    table.max_age = 0
    table.run()
    assert [path.partition(".")[0] for path in sorted(table.paths())] == [
        "t/1_0_00000000000000000000",
        "t/1_0_00000000000000000000_2",
    ]
    assert sorted((row["_topic_id"], row["_offset"]) for row in table.rows()) == [
        (topic_id, offset) for topic_id in ids for offset in range(20)
    ]
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


def test_refused_records_have_names_without_the_partition_key(tmp_path: Path) -> None:
    """Their table has none."""
    more = {
        "partition_by": "id",
        "file_names": "{topic}/{partition}/{generation}_{kafka_partition}_{first_offset}",
        "parser": {"type": "json", "columns": {"id": "long"}},
    }
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "json", more)
    table.put_values(0, [b'{"id": 1}', b"{"])
    table.tables.create(NAME)
    assert table.tables.run(NAME).refused == 1
    assert [
        Path(each).relative_to(table.directory).as_posix() for each in (*table.files(), *table.files("_quarantine"))
    ] == [
        "files/t/id=1/1_0_00000000000000000000.jsonl.gz",
        "files_quarantine/t/1_0_00000000000000000001.jsonl.gz",
    ]
    assert table.tables.verify(NAME).differences == ()


@pytest.mark.parametrize("topic", ["_ts", "_schemas", ".x"])
def test_no_topic_hides_its_files(tmp_path: Path, topic: str) -> None:
    """Programs ignore names that begin with _ or a dot; `_ts` has the ledger."""
    table = made(tmp_path, FileFormat.TEXT, topics=(topic,), file_names=TEMPLATE)
    table.archive.put_segment(topic, 0, batches(*steps(0, 5)))
    table.archive.commit(topic, 5, last_stable_offset=5)
    for _ in range(2):
        table.run()
    root = table.directory / "files"
    (file,) = root.rglob("*.txt.gz")
    assert file.relative_to(root).parts[0] == f"%{ord(topic[0]):X}{topic[1:]}"
    assert verified(table).differences == ()


@pytest.mark.parametrize("value", ["x" * 5000, "\u4f60" * 28, "%" * 300], ids=["long", "wide", "escaped"])
def test_a_long_partition_value_has_a_short_directory(tmp_path: Path, value: str) -> None:
    """With a digest, so that two such values differ; the ledger has the whole."""
    more = {"partition_by": "id", "parser": {"type": "json", "columns": {"id": "string"}}}
    table = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "parquet", more)
    table.put_values(0, [json.dumps({"id": each}).encode() for each in (value, f"{value}y")])
    table.tables.create(NAME)
    assert table.tables.run(NAME).files == 2
    names = [Path(each).parent.name for each in table.files()]
    assert len({*names}) == 2
    assert all(len(name) < 210 for name in names)
    assert table.tables.run(NAME).commits == 0
    assert table.tables.verify(NAME).differences == ()


def test_rows_that_are_claimed_late_are_merged_in_their_order(tmp_path: Path) -> None:
    """A file of text has the order of the log, if its rows wait for each other."""
    table = made(tmp_path, FileFormat.TEXT, compression="none", max_age=3600)
    table.policy = Policy(on_hole=OnHole.PASS)
    for start in (0, 10, 5):
        table.archive.put_segment("t", start, batches(*steps(start, start + 5), value=b"%d" % start))
        end = 15 if start else 5
        table.archive.commit("t", end, highest_base=end - 5, last_stable_offset=end)
        table.run()
    table.max_age = 0
    table.run()
    assert [each for some in lines(table).values() for each in some] == ["0"] * 5 + ["5"] * 5 + ["10"] * 5


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
