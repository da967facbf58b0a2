"""Values beyond what a column can hold: in each output a value is exact, warned of, or its record is refused."""

import csv
import io
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.types import TimestamptzType
from structlog.testing import capture_logs

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.matrix import cases, examples
from tests.tables.parsers.made_records import made_records, parsed
from tests.tsctl.running import runner
from ts_reader import Archive, FarTimes
from ts_reader.decode.arrow_schema import LATEST_MILLISECONDS
from ts_spark.source import KafkaSegmentsSource
from ts_tables import Tables
from ts_tables.files.file_writer import FileWriter
from ts_tables.files.fitting import FittingParser
from ts_tables.files.formats import FORMATS
from ts_tables.files.layout import FileFormat, Layout
from ts_tables.files.reading import TableFile
from ts_tables.generations import CATALOG
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.parsers.contract import Parsed, Parser
from ts_tables.parsers.json_values import JsonParser
from ts_tables.parsers.parser_columns import make_column

NAME = "lake.t"
NOW = 1_700_000_000_000
HOURS_END = (1 << 31) * 3_600_000  # ms; Iceberg's hours have 32 bits
ORC_END = 9_223_372_036_854  # ms
CENTRES = (0, NOW, NOW * 1000, NOW * 1_000_000, 1 << 31, 1 << 53, -62_135_596_800_000, 253_402_300_800_000)
LIMITS = (LATEST_MILLISECONDS, HOURS_END, ORC_END, (1 << 63) - 1)
STEPS = (-1000, -1, 0, 1, 999, 1000, 3_600_000, -3_600_001)


def times(count: int) -> list[int]:
    """Return times in milliseconds: around each limit of a column, and any 64 bits."""
    draw = random.Random(44)
    around = [sign * place + step for place in (*LIMITS, *CENTRES) for sign in (1, -1) for step in STEPS]
    found = list(dict.fromkeys(each for each in around if -(1 << 63) <= each < 1 << 63))
    draw.shuffle(found)
    found = [-1, (1 << 63) - 1, -(1 << 63), NOW * 1_000_000, NOW * 1000, -1500, *found]
    while len(found) < count:
        found.append(draw.randrange(-(1 << 63), 1 << 63) >> draw.randrange(0, 40))
    return list(dict.fromkeys(found))[:count]


def archived(directory: Path, stamps: list[int]) -> MadeArchive:
    """Return an archive of topic `t`: a batch for each time, whose value is the time as JSON."""
    archive = MadeArchive(directory)
    data = b"".join(
        batch(at, [record(0, b"k", b'{"a": %d}' % time)], base_timestamp=time, max_timestamp=time)
        for at, time in enumerate(stamps)
    )
    archive.put_segment("t", 0, data)
    archive.commit("t", len(stamps), last_stable_offset=len(stamps))
    return archive


def tables_of(archive: MadeArchive, directory: Path, form: str, **more: Any) -> Tables:
    """Return a file of tables with one table, whose tasks run in this process."""
    definition: dict[str, Any] = {"topics": "t", "format": form, **more}
    if form != "iceberg":
        definition["location"] = f"file://{directory}/files"
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}/w"}
    directory.mkdir(parents=True, exist_ok=True)
    content = {
        "archive": {"url": archive.location, "cluster": CLUSTER},
        "catalog": catalog,
        "tables": {NAME: definition},
    }
    return Tables(content, engine=lambda tasks: [task() for task in tasks])


def rows_of(directory: Path, form: str, of: str = "") -> list[dict[str, Any]]:
    """Return the rows of a table's files by their offsets, read without this project; times are numbers."""
    rows: list[dict[str, Any]] = []
    if form == "iceberg":
        properties = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}/w"}
        table = open_catalog(CATALOG, properties).load_table(f"{NAME}{of}")
        for task in table.scan().plan_files():
            found = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read()
            partition = task.file.partition
            rows += [{**row, "key_of_file": partition[0] if len(partition) else None} for row in _numbers(found)]
    endings = {"json": "*.jsonl.gz", "iceberg": "*.none"}
    for path in sorted((directory / f"files{of}").rglob(endings.get(form, f"*.{form}"))):
        if form == "json":
            rows += [json.loads(line) for line in pa.input_stream(str(path), compression="gzip").read().splitlines()]
        else:
            rows += _numbers(orc.ORCFile(path).read() if form == "orc" else pq.ParquetFile(path).read())
    return sorted(rows, key=lambda row: row["_offset"])


def _numbers(table: pa.Table) -> list[dict[str, Any]]:
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.timestamp("us")).cast(pa.int64()))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def held(form: str, key: str) -> range:
    """Return the times that a column holds, in milliseconds; ORC lacks some before 1970."""
    found = range(-LATEST_MILLISECONDS, LATEST_MILLISECONDS + 1)
    if key.startswith("hour"):
        found = range(-HOURS_END, HOURS_END)
    return range(-ORC_END // 1000 * 1000 + 1000, ORC_END + 1) if form == "orc" else found


def milliseconds(shown: str | int) -> int:
    """Return a time of JSON lines, which is text or a number."""
    if isinstance(shown, int):
        return shown
    return (datetime.fromisoformat(shown) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


OUTPUTS = [
    (form, key) for form in ("iceberg", "parquet", "json", "orc") for key in ("", "hour(timestamp)", "day(timestamp)")
]


@pytest.mark.parametrize(
    "output", cases(OUTPUTS, quick=[("iceberg", "hour(timestamp)"), ("json", ""), ("orc", "")]), ids=" ".join
)
def test_t06_a_raw_table_has_the_time_or_the_nearest_one_and_counts_it(tmp_path: Path, output: tuple[str, str]) -> None:
    """JSON lines have each time; `verify` finds no difference, and the partition values are those of Iceberg."""
    form, key = output
    stamps = times(examples(1000, quick=8))
    directory = tmp_path / "lake"
    tables = tables_of(archived(tmp_path / "a", stamps), directory, form, **({"partition_by": key} if key else {}))
    tables.create(NAME)
    summary = tables.run(NAME)
    rows = rows_of(directory, form)
    assert [row["_offset"] for row in rows] == list(range(len(stamps)))
    times_held = held(form, key)
    changed = 0
    for time, row in zip(stamps, rows, strict=True):
        shown = row["timestamp"]
        if form == "json":
            assert milliseconds(shown) == time
            continue
        if shown is None:
            assert (form, time < 0, time % 1000 > 0) == ("orc", True, True), time
        elif shown // 1000 != time:
            nearest = times_held[0] if time < 0 else times_held[-1]
            assert (shown, time in times_held) == (nearest * 1000, False), time
        changed += shown is None or shown // 1000 != time
        if form == "iceberg" and key:
            transform: Any = HourTransform() if key.startswith("hour") else DayTransform()
            assert row["key_of_file"] == transform.transform(TimestamptzType())(shown)
    assert summary.changed_times == changed
    assert bool(changed) == (form != "json")
    assert tables.verify(NAME).differences == ()


@pytest.mark.parametrize("output", cases(OUTPUTS, quick=[("parquet", "hour(timestamp)")]), ids=" ".join)
def test_t06_a_parsed_table_refuses_a_time_that_no_column_holds(tmp_path: Path, output: tuple[str, str]) -> None:
    """Each record is a row with its time, or refused with its time as the reason."""
    form, key = output[0], output[1].replace("timestamp", "_timestamp")
    stamps = times(examples(1000, quick=8))
    directory = tmp_path / "lake"
    parser = {"type": "json", "columns": {"a": "long"}}
    more = {"partition_by": key} if key else {}
    tables = tables_of(archived(tmp_path / "a", stamps), directory, form, parser=parser, **more)
    tables.create(NAME)
    tables.run(NAME)
    rows, refused = rows_of(directory, form), rows_of(directory, form, "_quarantine")
    assert len(rows) + len(refused) == len(stamps)
    for row in rows:
        shown = milliseconds(row["_timestamp"]) if form == "json" else row["_timestamp"] // 1000
        assert shown == stamps[row["_offset"]] == row["a"]
    times_held = held(form, key)
    for row in refused:
        time = stamps[row["_offset"]]
        assert f"timestamp: {time} ms since 1970" in row["_reason"]
        assert time not in times_held or (form, time < 0, time % 1000 > 0) == ("orc", True, True)
    assert refused
    assert tables.verify(NAME, deep=True).differences == ()
    assert tables.run(NAME).records == 0


def test_a_reader_warns_once_and_has_the_time_as_stored(tmp_path: Path) -> None:
    """Statistics, and the optional column, are exact; the column of microseconds has its limit."""
    stamps = times(1000)
    archive = archived(tmp_path / "a", stamps)
    heard: list[Any] = []
    reader = Archive(archive.location, cluster=CLUSTER, workers=1, warn=heard.append)
    table = reader.scan("t", include_timestamp_ms=True).to_table()
    assert table["timestampMs"].to_pylist() == stamps
    shown = table["timestamp"].cast(pa.int64()).to_pylist()
    nearest = [max(-LATEST_MILLISECONDS, min(time, LATEST_MILLISECONDS)) * 1000 for time in stamps]
    assert shown == nearest
    (warning,) = heard
    assert isinstance(warning, FarTimes)
    assert warning.rows == sum(abs(time) >= LATEST_MILLISECONDS for time in stamps)
    (statistics,) = reader.scan("t").statistics()
    assert (statistics.least_timestamp, statistics.greatest_timestamp) == (min(stamps), max(stamps))
    heard.clear()
    reader.scan("t", columns=["offset", "timestampMs"], include_timestamp_ms=True).to_table()
    assert not heard


def test_spark_warns_once_in_a_task_and_has_the_time_as_stored_by_an_option(tmp_path: Path) -> None:
    """The column `timestampMs` has each time."""
    stamps = times(200)
    archive = archived(tmp_path / "a", stamps)
    options = {"path": archive.location, "cluster": CLUSTER, "subscribe": "t", "includeTimestampMs": "true"}
    source = KafkaSegmentsSource(options)
    reader = source.reader(source.schema())
    (split,) = reader.partitions()
    with capture_logs() as logged:
        rows = pa.Table.from_batches(reader.read(split))
    assert rows["timestampMs"].to_pylist() == stamps
    (warning,) = [each["message"] for each in logged if each["event"] == "query_warning"]
    far = sum(abs(time) >= LATEST_MILLISECONDS for time in stamps)
    assert warning.startswith(f"{far} rows with a timestamp at or beyond a limit of its column")
    assert 'option("includeTimestampMs", "true")' in warning


def test_cat_prints_each_time_and_sql_has_it_by_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """JSON lines have no limit, and need no warning; columns with types have one."""
    stamps = times(200)
    tsctl, archive = runner(capfd), archived(tmp_path / "a", stamps)
    place = ("--url", archive.location, "--cluster", CLUSTER)
    lines = tsctl("cat", "t", *place)
    assert [line["timestamp"] for line in lines.lines] == stamps
    assert "at or beyond a limit" not in lines.err
    statement = 'select "timestamp", "timestampMs" from t'
    for command in (["cat", "t", "--format", "csv"], ["sql", "--format", "csv", statement]):
        printed = tsctl(*command, "--timestamp-ms", *place)
        found = list(csv.DictReader(io.StringIO(printed.out)))
        assert [int(row["timestampMs"]) for row in found] == stamps
        assert printed.err.count("at or beyond a limit of its column") == 1


NUMBERS = ("0", "-0", "1.5", "1e400", "-1e400", "1e39", "1e-50", "1e-400", "0.1", "1e2", "1.0", "NaN", '"1"', "true")


def number_texts(count: int) -> list[str]:
    """Return numbers of JSON: around the limits of each type, and any digits."""
    draw = random.Random(45)
    powers = [1 << bits for bits in (8, 16, 24, 31, 32, 53, 63, 64, 127)] + [10**digits for digits in (8, 9, 10, 38)]
    found = [*NUMBERS, *(str(sign * each + step) for each in powers for sign in (1, -1) for step in (-1, 0, 1))]
    while len(found) < count:
        digits = str(draw.randrange(10 ** draw.randrange(1, 30)))
        at = draw.randrange(len(digits))
        fraction = f"{digits[:at] or '0'}.{digits[at:]}" if draw.random() < 0.5 else digits
        found.append(f"{draw.choice(['', '-'])}{fraction}{draw.choice(['', '', f'e{draw.randrange(-330, 330)}'])}")
    return found[:count]


def fits(text: str, kind: str) -> Any:
    """Return the value that a column has of a number of JSON; None if the record is refused."""
    try:
        number = Decimal(text.strip('"') if kind.startswith("decimal") else text)
    except ArithmeticError:
        return None
    if not number.is_finite():
        return None
    is_integer = number.as_tuple().exponent == 0
    match kind:
        case "int" | "long":
            whole = number == number.to_integral_value()
            bits = 31 if kind == "int" else 63
            return int(number) if whole and -(1 << bits) <= number < 1 << bits else None
        case "decimal(10,2)":
            exact = number.adjusted() < 8 or not number
            return number.quantize(Decimal("0.01")) if exact and number == round(number, 2) else None
        case _:
            found = float(text)
            if kind == "float" and abs(found) <= 3.4028234663852886e38:
                found = pa.array([found], pa.float32())[0].as_py()
            elif kind == "float":
                return None
            is_held = found == number if is_integer else bool(found) == bool(number)
            return found if abs(found) != float("inf") and is_held else None


@pytest.mark.parametrize("kind", ["int", "long", "float", "double", "decimal(10,2)"])
def test_a_number_of_json_fits_its_column_or_refuses_its_record(kind: str) -> None:
    """An integer is exact, a fraction of a double the nearest one, and what is not 0 does not become 0."""
    texts = [text for text in dict.fromkeys(number_texts(1000)) if text.lstrip("-0") or text in {"0", "-0"}]
    texts = [text for text in texts if json_accepts(text)]
    rows, refused = parsed(JsonParser([make_column("n", kind)]), [b'{"n": %s}' % text.encode() for text in texts])
    for at, row in rows:
        expected = fits(texts[at], kind)
        # A number such as 1e2 is a whole one that a parser of integers may refuse, and accept.
        assert (expected is not None, row["n"]) == (True, expected), texts[at]
    for at in refused:
        expected = fits(texts[at], kind)
        is_written_otherwise = kind in {"int", "long"} and not texts[at].lstrip("-").isdigit()
        assert expected is None or is_written_otherwise, (texts[at], refused[at])
    assert len(rows) > 20
    assert len(refused) > 20


def json_accepts(text: str) -> bool:
    """Return whether a text is a number of JSON: without leading zeros."""
    digits = text.lstrip("-")
    return not (digits[:1] == "0" and digits[1:2].isdigit())


FAR_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "date": (pa.date32(), [0, -1, -719_162, -719_163, 2_932_896, 2_932_897, (1 << 31) - 2, 2 - (1 << 31)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [0, -1, 253_402_300_800_000_000, -62_135_596_800_000_001, 1 << 62]),
    "local": (pa.timestamp("us"), [0, -1, 253_402_300_800_000_000, -62_135_596_800_000_001, -(1 << 62)]),
    "time": (pa.time64("us"), [0, 86_399_999_999, 1]),
    "long": (pa.int64(), [(1 << 63) - 1, -(1 << 63), (1 << 53) + 1]),
    "double": (pa.float64(), [5e-324, 1.7976931348623157e308, float("inf"), -0.0, 0.1]),
    "float": (pa.float32(), [3.4028234663852886e38, 1e-45, float("-inf")]),
    "decimal": (pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999"), Decimal("-1e-10")]),
}


def far_columns(kind: pa.DataType, values: list[Any]) -> Iterator[tuple[str, pa.Array]]:
    """Yield a column of the values, and columns with them inside of lists, structs and maps."""
    column = pa.array(values, kind)
    rows = list(range(len(values) + 1))
    yield "plain", column
    yield "list", pa.ListArray.from_arrays(pa.array(rows, pa.int32()), column)
    yield "struct", pa.StructArray.from_arrays([column], ["s"])
    keys = pa.array([str(row) for row in rows[:-1]])
    yield "map", pa.MapArray.from_arrays(pa.array(rows, pa.int32()), keys, column)


@pytest.mark.parametrize("name", FAR_VALUES)
@pytest.mark.parametrize("form", [FileFormat.PARQUET, FileFormat.JSON_LINES, FileFormat.ORC])
def test_each_value_that_a_parser_accepts_is_read_back(name: str, form: FileFormat) -> None:
    """For dates and times beyond Python's calendar, and nested ones too; what ORC lacks is refused before."""
    kind, values = FAR_VALUES[name]
    if form is FileFormat.ORC and name == "time":
        return  # such a table is refused
    for what, column in far_columns(kind, values):
        parser = FittingParser(_Given(column), Layout(pa.schema([]), format=form))
        found = parser.parse(made_records([b"%d" % at for at in range(len(values))]))
        assert not len(found.refused) or (form is FileFormat.ORC and pa.types.is_timestamp(kind)), what
        kept = column.take(found.records)
        assert read_back(kept, form).equals(kept), what


def read_back(column: pa.Array, form: FileFormat) -> pa.Array:
    """Return a column after it was written to a file of a format, and read."""
    schema = pa.schema([("_offset", pa.int64()), ("v", column.type)])
    stream, codec = _Kept(), FORMATS[form].codecs[0]
    writer = FileWriter(Layout(schema, compression=codec, format=form), lambda _: ("f", stream))
    offsets = pa.array(range(len(column)), pa.int64())
    writer.add(pa.RecordBatch.from_arrays([offsets, column], schema=schema))
    writer.close()
    file = TableFile("f", lambda: io.BytesIO(stream.data), form, codec, True)
    return pa.concat_arrays([column[:0], *(rows["v"] for rows in file.rows(schema))])


class _Given(Parser):
    """A parser whose rows are a given column."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    @property
    def columns(self) -> pa.Schema:
        return pa.schema([("v", self._column.type)])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        numbers = pa.array(range(records.num_rows), pa.int32())
        rows = pa.RecordBatch.from_arrays([self._column], schema=self.columns)
        return Parsed(rows, numbers, pa.array([], pa.int32()), pa.array([], pa.string()))


class _Kept(io.BytesIO):
    """A stream whose bytes stay after it is closed."""

    data = b""

    def close(self) -> None:
        self.data = self.getvalue()
        super().close()
