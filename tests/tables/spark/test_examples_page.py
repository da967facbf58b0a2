"""docs/table-examples.md, run from top to bottom: its commands, DuckDB and Spark print what the page shows."""

import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from tests.common.log_format.build import batch, record
from tests.docs.commands import CHECKOUT, Block, blocks, commands
from tests.made_archive import MadeArchive
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.tables.test_page import PAGE as TABLES_PAGE
from tests.tables.test_page import placed
from tests.tsctl.running import runner
from ts_reader.query.timestamps import milliseconds_of

PAGE = CHECKOUT / "docs/table-examples.md"
DAY = "2026-11-25"
LATE = ("13:08", "09:58")  # the times of a record and of its event
REFUSED = {3: '{"id": 3', 5: '{"id": "32", "type": "view"}', 6: '{"type": "view"}'}  # the last record of an hour

Keyed = tuple[int, bytes | None, bytes | None]  # ms, key, value


def time_of(time: str) -> int:
    """Return the milliseconds of a time of the page's day."""
    return milliseconds_of(f"{DAY}T{time}Z")


def events() -> Iterator[list[tuple[str, str]]]:
    """Yield the time and value of each record, by hour: views, clicks of even hours, and purchases in the morning."""
    number = 0
    for hour in range(24):
        found = []
        types = ["view"] * (3 + hour % 2) + ["click"] * (hour % 2 == 0) + ["purchase"] * (8 <= hour < 14)
        for minute, kind in enumerate(types):
            number += 1
            sent, happened = LATE if (hour, kind) == (13, "purchase") else (f"{hour:02d}:{minute:02d}",) * 2
            event: dict[str, Any] = {"id": number, "type": kind, "time": f"{DAY}T{happened}:00Z"}
            found.append((sent, json.dumps(event | ({"amount": hour + 0.25} if kind == "purchase" else {}))))
        yield found + ([(f"{hour:02d}:10", REFUSED[hour])] if hour in REFUSED else [])


def tables_of(section: str) -> list[list[list[str]]]:
    """Return the cells of each Markdown table of a section, without headings and backticks."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^\|.*\n)+", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return [[row_of(line) for line in each.splitlines()[2:]] for each in found]


def row_of(line: str, edge: str = "|") -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip(" `") for cell in line.split(edge)[1:-1]]


def cells_of_duckdb(printed: str) -> list[list[str]]:
    """Return the names of columns and the rows, without the types."""
    names, _, *rows = (row_of(line, "│") for line in printed.splitlines() if line.startswith("│"))
    return [names, *rows]


def cells_of_spark(printed: str) -> list[list[str]]:
    """Return the names of columns and the rows."""
    return [row_of(line) for line in printed.splitlines() if line.startswith("|")]


def arguments_of(command: str) -> list[str]:
    """Return the arguments of a command of `tsctl`; no worker process starts."""
    _, *found = shlex.split(command)
    return found if found[1] == "create" else [*found, "--workers", "1"]


def measured(printed: str) -> str:
    """Return what the commands print, without sizes of files and seconds."""
    return re.sub(r"[\d.,]+ (s|bytes)\b", r"... \1", printed)


def files_that_spark_reads(spark: SparkSession, condition: str) -> int:
    """Return Spark's own metric of a scan, which its page has as `number of result data files`."""
    found: Any = spark.table("events").where(condition)
    found.collect()
    scan = found._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().apply("resultDataFiles").name().get() == "number of result data files"
    return int(scan.metrics().apply("resultDataFiles").value())


@dataclass
class Example:
    """The page's file, catalog and Python session.

    Attributes:
        archive: of the page's topics.
        directory: of the file and the lake.
        names: of the Python session.
        ends: the next offset by topic.
    """

    archive: MadeArchive
    directory: Path
    names: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def put(self, topic: str, records: Sequence[Keyed]) -> None:
        """Archive the next segment of a topic."""
        start, first = self.ends.get(topic, 0), records[0][0]
        made = [record(at, key, value, timestamp_delta=time - first) for at, (time, key, value) in enumerate(records)]
        log = batch(start, made, base_timestamp=first, max_timestamp=max(time for time, *_ in records))
        self.archive.put_segment(topic, start, log)
        end = self.ends[topic] = start + len(records)
        self.archive.commit(topic, end, highest_base=start, last_stable_offset=end)

    def execute(self, block: Block) -> None:
        """Run a block of Python in the page's session."""
        text = placed(block.text, self.directory)
        exec(compile("\n" * block.line + text, str(PAGE), "exec"), self.names)

    def check(
        self, sections: Sequence[str], steps: Sequence[Callable[[], None]], capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Run commands and Python of sections, and compare what they print with the page.

        Args:
            sections: their headings.
            steps: what the topics' producers do before each block of commands.
            capfd: of the test.
        """
        tsctl, waiting, of_duckdb = runner(capfd), iter(steps), list[list[list[str]]]()
        for block in [block for section in sections for block in blocks(PAGE, section)]:
            line = f"{PAGE.name}, line {block.line}"
            if block.language == "sh":
                next(waiting)()
                ended = [tsctl(*arguments_of(command)) for command in commands(block)]
                assert [each.code for each in ended] == [0] * len(ended), ended
                assert measured("".join(each.out for each in ended)) == measured(block.shown), line
            elif block.language == "python":
                capfd.readouterr()
                self.execute(block)
                printed = capfd.readouterr().out
                if "lake.sql" in block.text:
                    of_duckdb.append(cells_of_duckdb(printed))
                else:
                    assert printed.rstrip() == block.shown.rstrip(), line
                if "spark.sql" in block.text:
                    assert cells_of_spark(printed) == of_duckdb.pop(), line
        assert of_duckdb == []
        assert [*waiting] == []


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The page's file and Spark's settings; both engines have the catalog."""
    directory = tmp_path_factory.mktemp("example")
    example = Example(MadeArchive(directory / "store"), directory)
    first, *of_examples = blocks(PAGE, language="yaml")
    text = placed(first.text.replace("s3://bucket/base/prefix", example.archive.location), directory)
    (directory / "tables.yaml").write_text(text + "".join(each.text for each in of_examples))
    (settings,) = blocks(TABLES_PAGE, language="properties")
    (directory / "spark.properties").write_text(placed(settings.text, directory))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for block in blocks(PAGE, "Before you start", language="python"):
            example.execute(block)
    assert example.names["spark"] is spark
    return example


@pytest.fixture(autouse=True)
def _in_its_directory(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example.directory)


def test_a_day_of_json_events(example: Example, capfd: pytest.CaptureFixture[str]) -> None:
    """By type and hour; a query reads the files of its type and hours, in Spark too."""
    sections = ("A day of JSON events", "Only the files of a type and an hour", "What was refused")
    hours = [*events()]
    (samples,) = tables_of(sections[0])
    assert {(time, value) for time, value in samples} <= {each for hour in hours for each in hour}
    assert f", {sum(map(len, hours))} records in all" in PAGE.read_text()

    def send() -> None:
        for hour in hours:
            example.put("events", [(time_of(time), None, value.encode()) for time, value in hour])

    example.check(sections, [send], capfd)
    assert files_that_spark_reads(example.names["spark"], example.names["morning"]) == 3


def test_avro_with_an_evolving_schema(example: Example, capfd: pytest.CaptureFixture[str]) -> None:
    """By the schemas and orders of the page: former rows have NULL in the new column."""
    section = "Avro with an evolving schema"
    schemas = [block.text for block in blocks(PAGE, section, language="json")]
    (orders,) = tables_of(section)

    def register(version: int) -> None:
        archived(example.archive, [schema_record("orders-value", version, version, schemas[version - 1])], version - 1)

    def write(rows: Sequence[Sequence[str]]) -> None:
        for number, customer, amount, coupon, version in rows:
            out = io.BytesIO()
            order = {"id": int(number), "customer": customer, "amount": float(amount), "coupon": coupon or None}
            fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schemas[int(version) - 1])), order)
            example.put("orders", [(time_of("12:00"), number.encode(), framed(int(version), out.getvalue()))])

    def begin() -> None:
        register(1)
        write(orders[:2])

    def evolve() -> None:
        register(2)
        write(orders[2:])

    example.check([section], [begin, evolve], capfd)


def test_a_changelog_as_the_newest_record_of_each_key(example: Example, capfd: pytest.CaptureFixture[str]) -> None:
    """By the records of the page: a deleted key has no row."""
    section = "A changelog as the newest record of each key"

    def writing(rows: Sequence[Sequence[str]]) -> Callable[[], None]:
        records = [(time_of("12:00"), key.encode(), value.encode() or None) for _, key, value in rows]
        return lambda: example.put("customers", records)

    example.check([section], [writing(rows) for rows in tables_of(section)], capfd)
