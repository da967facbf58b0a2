"""`tsctl cat`: the records that Kafka's Java consumer returns, and reports of missing ones."""

import csv
import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dev.local import forks
from dev.local.oracle import OracleRecord
from tests.common.log_format.build import batch, record, sized, varint
from tests.made_archive import batches, steps
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.spark.archives import Archive
from tests.tsctl.conftest import CODECS, FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import PROGRAM, Run

_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
AS_BASE64 = ("--key", "base64", "--value", "base64", "--header", "base64")


def as_records(lines: list[dict[str, Any]]) -> list[OracleRecord]:
    """Convert lines of `cat` with everything in base64 to the oracle's records."""

    def data(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text, validate=True)

    return [
        OracleRecord(
            topic=line["topic"],
            partition=line["partition"],
            offset=line["offset"],
            timestamp=-1 if line["timestamp"] is None else line["timestamp"],
            timestamp_type=_TYPES[line["timestamp_type"]],
            key=data(line["key"]),
            value=data(line["value"]),
            headers=tuple((header["key"], data(header["value"])) for header in line["headers"]),
        )
        for line in lines
    ]


def test_the_records_are_those_of_kafkas_consumer(shipped: Shipped, run: Run) -> None:
    """All partitions are read in order, with nulls, empty fields, repeated headers, codecs and timestamps."""
    ended = run("cat", FIELDS, "--config", shipped.config, *AS_BASE64)
    assert (ended.code, ended.err) == (0, "")
    expected = [record for number in range(len(CODECS)) for record in shipped.of(FIELDS, number)]
    assert len(expected) > 3 * 300
    assert as_records(ended.lines) == expected


def test_r02_read_committed_shows_what_kafkas_consumer_shows(shipped: Shipped, run: Run) -> None:
    """Aborted transactions are hidden, and the view ends at the open one; by default all records are shown."""
    everything = run("cat", TRANSACTIONS, "--config", shipped.config, *AS_BASE64)
    committed = run("cat", TRANSACTIONS, "--config", shipped.config, *AS_BASE64, "--isolation", "read_committed")
    assert as_records(everything.lines) == shipped.of(TRANSACTIONS, 0)
    begun = next(r.offset for r in shipped.of(TRANSACTIONS, 0) if r.value == b"open")
    shown = as_records(committed.lines)
    assert shown == [record for record in shipped.committed if record.offset < begun]
    assert 0 < len(shown) < len([record for record in shipped.of(TRANSACTIONS, 0) if record.offset < begun])
    assert committed.code == 0


def test_a_range_of_offsets_ends_before_its_end(shipped: Shipped, run: Run) -> None:
    """The range may be inside one segment or span several, and `--max` applies first."""
    expected = [record for record in shipped.of(FIELDS, 1) if 17 <= record.offset < 250]
    ended = run("cat", FIELDS, "-p", 1, "--config", shipped.config, *AS_BASE64, "--from", 17, "--to", 250)
    assert as_records(ended.lines) == expected
    ended = run("cat", FIELDS, "-p", "1", "--config", shipped.config, *AS_BASE64, "--from", 17, "--max", 3)
    assert as_records(ended.lines) == expected[:3]


def test_a_time_is_the_first_record_that_reaches_it(shipped: Shipped, run: Run) -> None:
    """Timestamps may go back: the first record that reaches the time counts, as in Kafka's offsetsForTimes."""
    records = shipped.of(FIELDS, 0)
    low, high = records[100].timestamp, records[200].timestamp
    first = next(r.offset for r in records if r.timestamp >= low)
    end = next(r.offset for r in records if r.timestamp >= high)
    ended = run("cat", FIELDS, "-p", 0, "--config", shipped.config, *AS_BASE64, "--from", f"@{low}", "--to", f"@{high}")
    assert as_records(ended.lines) == [r for r in records if first <= r.offset < end]
    text = "2023-11-14T22:15:00Z"  # 1,700,000,100,000 ms
    ended = run("cat", FIELDS, "-p", 0, "--config", shipped.config, "--from", text, "--max", 1)
    assert ended.lines[0]["offset"] == next(r.offset for r in records if r.timestamp >= 1_700_000_100_000)


def test_r03_a_hole_is_reported_and_the_rest_is_shown(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """Standard error has the offsets, and the exit code is 1; another range without a hole is complete."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.put_segment("t", 30, batches((30, 40)))
    hand_made.commit("t", 40)
    ended = run("cat", "t", *named)
    assert [line["offset"] for line in ended.lines] == [*range(10), *range(30, 40)]
    assert "t-0: offsets 10 to 29 are lost" in ended.err
    assert ended.code == 1
    assert run("cat", "t", *named, "--from", "30").code == 0


def test_what_lies_outside_the_view_is_not_shown(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """Offsets below log start and from the next offset on are missing if they were requested by number."""
    hand_made.put_segment("t", 0, batches(*steps(0, 40)))
    hand_made.put_segment("t", 40, batches(*steps(40, 60)))
    hand_made.commit("t", 40, log_start=20)
    assert [line["offset"] for line in run("cat", "t", *named).lines] == list(range(20, 40))
    ended = run("cat", "t", *named, "--from", "10", "--to", "45")
    assert [line["offset"] for line in ended.lines] == list(range(20, 40))
    assert "offsets 10 to 19 are lost: below the log's start 20" in ended.err
    assert "offsets 40 to 44 are not in the store" in ended.err
    assert ended.code == 1


def test_r05_copies_are_shown_as_one(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """In two leaders' segments, one with a dead tail, each offset is shown once, in the live epoch."""
    hand_made.put_segment("t", 0, batches((0, 10), (10, 20), value=b"dead"))
    hand_made.put_segment("t", 10, batches((10, 30), epoch=1, value=b"live"))
    hand_made.commit("t", 30, epochs=((0, 0), (1, 10)))
    lines = run("cat", "t", *named).lines
    assert [line["offset"] for line in lines] == list(range(30))
    assert {line["value"] for line in lines[10:]} == {"live"}


def test_r04_a_damaged_object_is_named(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """The message has partition, object and position; the exit code is 1, without a traceback."""
    whole = batches((0, 10), (10, 20))
    hand_made.put_segment("t", 0, whole, body=whole[:-3] + b"xyz")
    hand_made.commit("t", 20)
    ended = run("cat", "t", *named)
    assert "t-0: prod/t-0/00000000000000000000.log" in ended.err
    assert "position" in ended.err
    assert ended.code == 1


def test_a_closed_pipe_ends_it_quietly(hand_made: Archive, named: tuple[str, ...]) -> None:
    """With a pipe closed as by `| head`, standard error is empty, the command succeeds, and it reads no further."""
    hand_made.put_segment("t", 0, batches(*steps(0, 20_000, 100)))
    hand_made.commit("t", 20_000)
    with subprocess.Popen(
        [PROGRAM, "cat", "t", *named], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "LANG": "C"}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"offset":0' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


@pytest.mark.parametrize(
    ("form", "data", "shown"),
    [
        ("utf8", "h\u00e9".encode(), "h\u00e9"),
        ("json", b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("int", (-2).to_bytes(4, "big", signed=True), -2),
        ("long", (1 << 40).to_bytes(8, "big"), 1 << 40),
    ],
)
def test_values_are_decoded_as_requested(
    hand_made: Archive, named: tuple[str, ...], run: Run, form: str, data: bytes, shown: object
) -> None:
    """The forms are those of Kafka's serializers."""
    hand_made.put_segment("t", 0, batch(0, [record(0, b"k", data)]))
    hand_made.commit("t", 1)
    (line,) = run("cat", "t", *named, "--value", form).lines
    assert line["value"] == shown
    assert "undecoded" not in line


@pytest.mark.parametrize(
    ("form", "data", "why"),
    [
        ("utf8", b"\xff", "utf-8"),
        ("json", b"{", "unexpected end of data"),
        ("json", b'"\\ud800"', "no low surrogate"),
        ("json", b"[NaN, 1e999]", "unexpected character"),
        ("json", b"1" * 5000, ""),
        ("json", b"[" * 100_000, "depth"),
        ("int", b"12345", "5 bytes; expected an integer of 4"),
    ],
)
def test_a_value_that_cannot_be_decoded_is_shown_as_base64(
    hand_made: Archive, named: tuple[str, ...], run: Run, form: str, data: bytes, why: str
) -> None:
    """The line has the reason, and the following records are shown."""
    hand_made.put_segment("t", 0, batch(0, [record(0, b"k", data), record(1, b"k", None)]))
    hand_made.commit("t", 2)
    first, second = run("cat", "t", *named, "--value", form).lines
    assert b64decode(first["value"]) == data
    assert why in first["undecoded"]["value"]
    assert second["value"] is None


SCHEMA = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}, {"name": "raw", "type": "bytes"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""
# Avro's long is the varint of Kafka's record format, and strings and bytes begin with their length.
ENCODED = varint(5) + varint(1) + sized(b"hi") + sized(b"\xff") + varint(1_700_000_000_000)


@pytest.mark.parametrize(("form", "frame"), [("avro", b""), ("avro-framed", b"\x00\x00\x00\x00\x07")])
def test_avro_is_decoded_with_a_schema(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Any, form: str, frame: bytes
) -> None:
    """It works with and without a schema registry's frame; bytes after the record are an error."""
    (tmp_path / "order.avsc").write_text(SCHEMA)
    rows = [record(0, b"k", frame + ENCODED), record(1, b"k", frame + ENCODED + b"!")]
    hand_made.put_segment("t", 0, batch(0, rows))
    hand_made.commit("t", 2)
    first, second = run("cat", "t", *named, "--value", f"{form},schema.file={tmp_path / 'order.avsc'}").lines
    assert first["value"] == {"id": 5, "note": "hi", "raw": "/w==", "at": "2023-11-14T22:13:20Z"}
    assert "1 byte left over" in second["undecoded"]["value"]


def test_u21_all_mistakes_are_reported_at_once(named: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """The exit code is 2, before any request to the store."""
    ended = run(
        *("cat", "t", *named, "--from", "yesterday", "--key", "utf9", "--value", "avro,schema.fil"),
        *("--registry", "registry:8081", "--format", "parquet"),
    )
    assert ended.code == 2
    assert "5 problems" in ended.err
    for told in (
        "--from=yesterday: expected an offset, or a time",
        "did you mean utf8?",
        "'schema.fil'",
        "a URL as in",
        "--output",
    ):
        assert told in ended.err
    assert run("cat", "t", *named, "--from", "9", "--to", "3").code == 2
    (tmp_path / "no.avsc").write_text('{"type": "nothing"}')
    ended = run("cat", "t", *named, "--value", f"avro,schema.file={tmp_path / 'no.avsc'}")
    assert ended.code != 0
    assert "no.avsc" in ended.err


def test_values_of_a_registrys_archived_topic_are_decoded(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """A value whose schema is unknown is base64 with the reason, among the others."""
    archived(hand_made, [schema_record("t-value", 1, 7, SCHEMA)])
    rows = [record(0, b"k", framed(7, ENCODED)), record(1, b"k", framed(8, ENCODED))]
    hand_made.put_segment("t", 0, batch(0, rows))
    hand_made.commit("t", 2)
    first, second = run("cat", "t", *named, "--value", "registry", "--registry", "topic:_schemas").lines
    assert first["value"]["note"] == "hi"
    assert b64decode(second["value"]) == framed(8, ENCODED)
    assert "does not have schema id 8" in second["undecoded"]["value"]


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_records_are_written_as_columns_with_types(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path, form: str
) -> None:
    """Decoded values keep their type, a refused one is null with its reason, and lost offsets end with code 1."""
    values = [b"\0\0\0\1", b"no integer"]
    hand_made.put_segment("t", 5, batch(5, [record(at, b"k", value) for at, value in enumerate(values)]))
    hand_made.commit("t", 7, highest_base=5)
    file = tmp_path / "records"
    ended = run("cat", "t", *named, "--value", "int", "--format", form, "--output", file)
    assert (ended.code, ended.out) == (1, "")
    assert "t-0: offsets 0 to 4 are lost" in ended.err
    if form == "csv":
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == [("5", "k", "1"), ("6", "k", "")]
        assert "expected an integer of 4" in rows[1]["value_error"]
        return
    table = pq.read_table(file) if form == "parquet" else pa.ipc.open_file(file).read_all()
    assert table.schema.field("value").type == pa.int32()
    assert table["offset"].to_pylist() == [5, 6]
    assert table["value"].to_pylist() == [1, None]
    assert table["key"].to_pylist() == [b"k", b"k"]
    assert run("cat", "t", *named, "--format", form, "--output", file).code == 2
    assert (
        run("cat", "t", *named, "--format", form, "--output", tmp_path / "one", "--max", "1", "--from", "5").code == 0
    )


def test_a_corrupt_place_is_left_out_or_a_line_of_its_own(hand_made: Archive, named: tuple[str, ...]) -> None:
    """By `--mode`, as of the Spark source; standard error has the place."""

    def lines(mode: str) -> list[dict[str, Any]]:
        # A process of its own: a logger keeps the standard error of the first test that it writes in.
        ended = forks.run(["tsctl", "cat", "t", *named, "--mode", mode], cwd=Path.cwd(), env=os.environ, timeout=60)
        assert "corrupt_batches_skipped" in ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    whole = batches((0, 10), (10, 20))
    hand_made.put_segment("t", 0, whole, body=whole[:-3] + b"xyz")
    hand_made.commit("t", 20)
    assert [line["offset"] for line in lines("dropmalformed")] == [*range(10)]
    permissive = lines("permissive")
    assert [line["offset"] for line in permissive] == [*range(11)]
    assert b64decode(permissive[10]["corrupt"]).endswith(b"xyz")


def test_an_avro_time_beyond_the_calendar_is_text(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """A record next to it is shown as ever."""
    (tmp_path / "at.avsc").write_text('{"type": "long", "logicalType": "timestamp-millis"}')
    values = [varint(1 << 50), varint(1_700_000_000_000)]
    hand_made.put_segment("t", 0, batch(0, [record(at, b"k", value) for at, value in enumerate(values)]))
    hand_made.commit("t", 2)
    lines = run("cat", "t", *named, "--value", f"avro,schema.file={tmp_path / 'at.avsc'}").lines
    assert [line["value"] for line in lines] == [f"@{1 << 50} ms", "2023-11-14T22:13:20Z"]
