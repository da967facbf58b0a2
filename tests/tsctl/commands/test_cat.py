"""`tsctl cat`: the records that Kafka's Java consumer returns, and reports of missing ones."""

import os
import subprocess
from base64 import b64decode
from typing import Any

import pytest

from tests.common.log_format.build import batch, record, sized, varint
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.tsctl.conftest import CODECS, FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import PROGRAM, Run
from ts_local.oracle import OracleRecord

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


def test_r03_a_hole_is_said_and_the_rest_is_shown(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
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
    assert "offsets 10 to 19 are below the log's start 20" in ended.err
    assert "offsets 40 to 44 are not in the store" in ended.err
    assert ended.code == 1


def test_r05_copies_are_shown_as_one(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """Of two leaders' segments, one with a dead tail, each offset is shown once, in the live epoch."""
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
        ("json", b'"\\ud800"', "\ud800"),
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("int", (-2).to_bytes(4, "big", signed=True), -2),
        ("long", (1 << 40).to_bytes(8, "big"), 1 << 40),
    ],
)
def test_values_are_decoded_as_asked(
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
        ("json", b"{", "Expecting"),
        ("json", b"[NaN, 1e999]", "NaN is not a number"),
        ("json", b"[" * 100_000, "nested too deeply"),
        ("int", b"12345", "expected an integer of 4 bytes, found 5"),
    ],
)
def test_what_cannot_be_decoded_comes_as_base64(
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
    first, second = run("cat", "t", *named, "--value", form, "--value-schema", tmp_path / "order.avsc").lines
    assert first["value"] == {"id": 5, "note": "hi", "raw": "/w==", "at": "2023-11-14T22:13:20+00:00"}
    assert "1 bytes are left over" in second["undecoded"]["value"]


def test_u21_all_mistakes_are_told_at_once(named: tuple[str, ...], run: Run, tmp_path: Any) -> None:
    """The exit code is 2, before any request to the store."""
    (tmp_path / "no.avsc").write_text('{"type": "nothing"}')
    ended = run(
        *("cat", "t", *named, "--from", "yesterday", "--key", "avro", "--value", "avro"),
        *("--value-schema", tmp_path / "no.avsc"),
    )
    assert ended.code == 2
    assert "3 problems" in ended.err
    for told in ("--from=yesterday", "--key-schema FILE", "not an Avro schema"):
        assert told in ended.err
    assert run("cat", "t", *named, "--from", "9", "--to", "3").code == 2
