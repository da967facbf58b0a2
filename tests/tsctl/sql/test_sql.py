"""`tsctl sql` on a made archive: results in each format, what a statement may reach, and messages."""

import csv
import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dev.local import forks
from tests.made_archive import MadeArchive, batches, steps
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.transactions import data
from tests.transactions import ended as ended_at
from tests.tsctl.running import Ended, Run, runner
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import SegmentName

TIME = 1_767_222_000_000  # 2025-12-31T23:00:00Z
MINUTE = 60_000
CONFINED = [
    pytest.param("select * from read_csv('{file}')", id="a function that reads a file"),
    pytest.param("select * from '{file}'", id="a file as a table"),
    pytest.param("copy (select 1) to '{file}.copy'", id="COPY"),
    pytest.param("attach '{file}.db'", id="ATTACH"),
    pytest.param("export database '.tmp'", id="DuckDB's own directory for temporary files"),
    pytest.param("copy (select 1) to '.tmp/copy.csv'", id="a file there"),
    pytest.param("install httpfs", id="INSTALL"),
    pytest.param("load httpfs", id="LOAD"),
    pytest.param("set enable_external_access = true", id="the setting itself"),
    pytest.param("select * from glob('{directory}/*')", id="names of files"),
    pytest.param("select * from archive", id="a variable of the program"),
]
MISTAKES = [
    pytest.param(["select * from click"], "no such topic; did you mean clicks?", id="topic"),
    pytest.param(["select * from nothing_like_it"], "it has a-b, broken, clicks", id="a topic like none"),
    pytest.param(["selec 1"], 'syntax error at or near "selec"', id="SQL"),
    pytest.param(["select nope from clicks"], 'column "nope" not found', id="a column"),
    pytest.param([""], "no statement: give SQL", id="no statement"),
    pytest.param(["select 1", "--from", "yesterday"], "--from=yesterday: expected a time", id="a time"),
    pytest.param(["select 1", "--to", "4711"], "--to=4711: a time is expected", id="an offset"),
    pytest.param(["select 1", "--at", "noon"], "--at=noon: expected a time", id="a moment"),
    pytest.param(["select 1", "--at", "4711"], "--at=4711: a time is expected", id="an offset as a moment"),
    pytest.param(["select 1", "--unproven"], "--unproven: it needs --at", id="no moment"),
    pytest.param(["select 1", "--format", "xml"], "--format=xml: accepted are table, csv,", id="a format"),
    pytest.param(["select 1", "--format", "parquet"], "--output FILE is needed", id="Parquet on a terminal"),
    pytest.param(["select 1", "--format", "csv", "--output", "taken"], "the file exists", id="a file that exists"),
    pytest.param(
        ["select 1", "--format", "csv", "--output", "no/such"], "No such file or directory", id="no directory"
    ),
    pytest.param(["from clicks", "--partition", "7"], "no partition 7 of topic clicks, only 0, 1", id="a partition"),
    pytest.param(["select 1", "--entropy-bits", "3"], "has no objects of cluster prod", id="bits"),
]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions of `clicks`, a record each second in segments of a minute; `a-b`; and a damaged topic."""
    archive = MadeArchive(tmp_path / "store")
    for partition in range(2):
        for base in range(0, 300, 60):
            log = b"".join(
                batches(step, value=b"\xff" if step[0] == 0 else b'{"n":1}', time=TIME + 1000 * step[0] - step[0])
                for step in steps(base, base + 60, 1)
            )
            archive.put_segment("clicks", base, log, partition=partition)
        archive.commit("clicks", 300, partition=partition, highest_base=240)
    archive.put_segment("a-b", 0, batches((0, 3)))
    archive.commit("a-b", 3)
    whole = batches((0, 5), (5, 10))
    archive.put_segment("broken", 0, whole, body=bytes([*whole[:-1], whole[-1] ^ 1]))
    archive.commit("broken", 10)
    return archive


@pytest.fixture
def sql(
    archive: MadeArchive, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run `tsctl sql` on the archive, in a directory with a file `taken`."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work" / "taken").write_text("mine")
    run = runner(capfd)

    def ended(*arguments: object) -> Ended:
        return run("sql", "--url", archive.location, "--cluster", "prod", *arguments)

    return ended


def test_a_topic_is_a_table_in_every_format(sql: Run) -> None:
    """The same rows as a table, CSV, JSON lines and Parquet; bytes that are not UTF-8 are digits, but in Parquet."""
    statement = 'select "offset", value, timestamp from clicks where partition = 1 and "offset" < 2 order by 1'
    expected = [(0, "\\xff", "2025-12-31T23:00:00Z"), (1, '{"n":1}', "2025-12-31T23:00:01Z")]
    table = sql(statement).out.splitlines()
    assert table[0].split() == ["offset", "value", "timestamp"]
    assert table[1].split() == ["0", "\\xff", "2025-12-31T23:00:00Z"]
    rows = list(csv.reader(io.StringIO(sql(statement, "--format", "csv").out)))
    assert rows[0] == ["offset", "value", "timestamp"]
    assert rows[1:] == [[str(offset), value, time] for offset, value, time in expected]
    lines = sql(statement, "--format", "json").lines
    assert [tuple(line.values()) for line in lines] == expected
    ended = sql(statement, "--format", "parquet", "--output", "rows.parquet")
    assert ended.out == "rows.parquet: 2 rows\n"
    assert pq.read_table("rows.parquet").column("value").to_pylist() == [b"\xff", b'{"n":1}']
    assert pq.read_table("rows.parquet").column("timestamp")[0].as_py() == datetime(2025, 12, 31, 23, tzinfo=UTC)


def test_a_name_with_a_hyphen_needs_quotation_marks(sql: Run) -> None:
    """And the message of a name without them shows them."""
    assert sql('select count(*) from "a-b"').out.split() == ["count_star()", "3"]
    assert sql('select count(*) from "A-B"').out.split() == ["count_star()", "3"]


def test_show_tables_lists_the_topics(sql: Run) -> None:
    """And views; DuckDB alone has only the topics that a statement named."""
    assert sql("--format", "csv", "Show  tables;").out.split() == ["name", "a-b", "broken", "clicks"]
    ended = sql("--format", "csv", "create view few as from clicks limit 5; show all tables")
    assert ended.out.split() == ["name", "a-b", "broken", "clicks", "few"]


def test_conditions_and_bounds_leave_out_segments(sql: Run) -> None:
    """`--explain` shows what a statement reads; it reads no record, not even of a damaged topic."""

    def segments(*arguments: str) -> str:
        return " ".join(sql("--explain", *arguments).out.splitlines()[1].split()[2:5])

    assert segments("select count(*) from clicks") == "10 of 10"
    assert segments("select count(*) from clicks where timestamp >= '2025-12-31T23:04:00Z'") == "2 of 10"
    assert segments('select count(*) from clicks where partition = 0 and "offset" between 70 and 80') == "1 of 10"
    assert segments("--from", "2025-12-31T23:04:00Z", "select count(*) from clicks") == "2 of 10"
    assert segments("--to", f"@{TIME + MINUTE}", "--partition", "0", "select count(*) from clicks") == "1 of 5"
    assert sql("--explain", "select count(*) from broken").code == 0
    assert sql("--from", "2025-12-31T23:04:00Z", "select count(*) from clicks").out.split()[-1] == "120"


def test_a_cut_shows_topics_as_of_a_time(sql: Run, archive: MadeArchive) -> None:
    """It fails where records up to then can be missing; with `--unproven` it warns."""
    for partition in range(2):
        archive.put_segment("clicks", 300, batches((300, 301), time=TIME + 6 * MINUTE), partition=partition)
        archive.commit("clicks", 301, partition=partition, highest_base=300)
    cut = ("--at", "2025-12-31T23:01:00.0005Z", "select count(*), max(timestamp) from clicks")
    assert sql("--format", "csv", *cut).out.splitlines()[1] == "122,2025-12-31T23:01:00Z"
    joined = 'select count(*) from clicks, "a-b"'
    ended = sql("--at", f"@{TIME}", joined)
    assert ended.code == 2
    assert "cut at 2025-12-31T23:00:00.000Z: records up to then can be missing in a-b-0: " in ended.err
    assert len(ended.err.splitlines()) == 1
    place = ["tsctl", "sql", "--url", archive.location, "--cluster", "prod", "--at", f"@{TIME}", "--unproven", joined]
    # In a process of its own: in this one, loggers keep the standard error of the first test that logged.
    done = forks.run(place, cwd=Path.cwd(), env=os.environ, timeout=300)
    assert done.stdout.split()[-1] == "6"
    assert "can be missing in a-b-0" in done.stderr


def test_transactions_are_whole_between_the_topics_of_a_statement(sql: Run, archive: MadeArchive) -> None:
    """The commit marker of one topic is later; a statement of the other topic alone has not read it."""
    for topic, time in (("paid", TIME), ("sent", TIME + 1)):
        log = data(0, TIME - 5, epoch=3) + ended_at(1, time, epoch=4) + batches((2, 3), time=TIME + 5 * MINUTE)
        archive.put_segment(topic, 0, log)
        archive.commit(topic, 3, last_stable_offset=3)
    rows = {
        statement: sql("--at", f"@{TIME}", statement).out.split()[-1]
        for statement in ("select count(*) from paid", "select count(*) from (from paid union all from sent)")
    }
    assert [*rows.values()] == ["1", "0"]


@pytest.mark.parametrize("statement", CONFINED)
def test_a_statement_reaches_nothing_but_topics(sql: Run, statement: str, tmp_path: Path) -> None:
    """No file, no other database, no extension, and no variable; `--files` allows files."""
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    ended = sql(statement.format(file=file, directory=tmp_path))
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "store", "work"]


def test_files_are_read_if_they_are_allowed(sql: Run, tmp_path: Path) -> None:
    """A join of a topic with a local file."""
    (tmp_path / "wanted.csv").write_text("number\n5\n7\n")
    statement = f"select count(*) from clicks join '{tmp_path}/wanted.csv' on \"offset\" = number"
    assert sql("--files", statement).out.split()[-1] == "4"


def test_a_topic_that_is_named_like_a_file_is_read_before_the_file(sql: Run, archive: MadeArchive) -> None:
    """With --files too, in any capitals and quotation marks; a function of DuckDB or a path names the file."""
    names = ["orders.csv", "t.parquet", "t.json", "t.avro", "Log.db", "x.csv.gz", "t.xlsx"]
    for name in names:
        archive.put_segment(name, 0, batches((0, 3)))
        archive.commit(name, 3)
        Path(name).write_text("number\n5\n")
    for options in ((), ("--files",)):
        counts = ", ".join(f'(select count(*) from "{name}")' for name in names)
        assert sql(*options, f"select {counts}").out.split()[-len(names) :] == ["3"] * len(names)
        assert sql(*options, "select count(*) from 'ORDERS.csv'").out.split()[-1] == "3"
    for place in ("read_csv('orders.csv')", "'./orders.csv'"):
        assert sql("--files", f"select number from {place}").out.split()[-1] == "5"
        assert "--files allows it" in sql(f"select number from {place}").err
    for options in ((), ("--files",)):  # without quotation marks, DuckDB would read the file
        for statement in ("select * from orders.csv", "create view v as from Orders.csv; from v"):
            ended = sql(*options, statement)
            assert ended.code == 2
            assert 'rders.csv: write "orders.csv" with its quotation marks' in ended.err


def test_topics_that_differ_in_capitals_only_are_never_mixed_up(sql: Run, archive: MadeArchive) -> None:
    """Each is read in its capitals; a statement that names both is refused, also by way of a view."""
    for name, end in (("Orders", 3), ("orders", 5)):
        archive.put_segment(name, 0, batches((0, end)))
        archive.commit(name, end)
    both = 'select count(*) from orders; select count(*) as n from "Orders"; select count(*) as "Orders" from orders'
    assert sql("--format", "json", both).lines == [{"count_star()": 5}, {"n": 3}, {"Orders": 5}]
    for statement in (
        'select (select count(*) from "Orders"), (select count(*) from orders)',
        'create view v as from "Orders"; select (select count(*) from v), (select count(*) from orders)',
        "create table t as from orders, Orders",
        "select count(*) from ORDERS",
    ):
        ended = sql(statement)
        assert (ended.code, ended.out) == (2, "")
        assert "topics Orders, orders differ in capitals only" in ended.err
    assert sql("create table t as from Orders; select count(*) from orders").out.split()[-1] == "5"


def test_a_topic_with_the_name_of_a_view_of_duckdbs_is_read(sql: Run, archive: MadeArchive) -> None:
    """Qualified, the name is the view's; `show tables` works with each of them."""
    names = ["sqlite_master", "pg_class", "duckdb_tables", "duckdb_views"]
    for name in names:
        archive.put_segment(name, 0, batches((0, 7)))
        archive.commit(name, 7)
    counts = ", ".join(f'(select count("offset") from {name})' for name in names)
    assert sql(f"select {counts}").out.split()[-len(names) :] == ["7"] * len(names)
    assert (
        sql("--format", "csv", 'create view v as from PG_CLASS; select count("offset") from v').out.split()[-1] == "7"
    )
    assert sql("select count(relname) from pg_catalog.pg_class").code == 0
    assert {*names} <= {*sql("--format", "csv", "from pg_class limit 0; show tables").out.split()}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_a_message_with_code_2(sql: Run, arguments: list[str], message: str, tmp_path: Path) -> None:
    """One line for each problem, and nothing is written."""
    ended = sql(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert any(part in ended.err for part in message.split("|")), ended.err
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["taken"]
    assert Path("taken").read_text() == "mine"


def test_r04_a_damaged_topic_is_this_projects_error(sql: Run, archive: MadeArchive) -> None:
    """It names the object, and no file is left of a result that was not complete."""
    ended = sql("select max(key) from broken")
    assert ended.code == 1
    key = archive.partition("broken").segment(SegmentName(0))
    assert ended.err.startswith(f"tsctl: broken-0: {key} in {archive.location}: ")
    assert len(ended.err.splitlines()) == 1
    for form in ("parquet", "csv"):
        assert sql("from broken", "--format", form, "--output", f"out.{form}").code == 1
    assert [path.name for path in Path().iterdir()] == ["taken"]


def test_several_statements_run_in_turn(sql: Run) -> None:
    """A view of one is a table of the next; a statement without a result prints nothing."""
    ended = sql("create view few as from clicks limit 5; select count(*) from few; select 2")
    assert ended.out.split() == ["count_star()", "5", "2", "2"]


def test_a_long_table_is_cut_with_a_warning(sql: Run) -> None:
    """The other formats have every row."""
    statement = "from clicks, range(3)"
    ended = sql(statement)
    assert len(ended.out.splitlines()) == 1001
    assert "only the first 1000 rows are shown" in ended.err
    assert len(sql(statement, "--format", "json").lines) == 1800


def test_r16_control_characters_of_values_do_not_reach_a_terminal(sql: Run, archive: MadeArchive) -> None:
    """They are escaped, in cells and in names of columns."""
    archive.put_segment("odd", 0, batches((0, 1), value=b"\x1b]0;owned\x07"))
    archive.commit("odd", 1)
    ended = sql('select value as "\x1b[31mred" from odd')
    assert "\x1b" not in ended.out
    assert "\x07" not in ended.out
    assert json.loads(sql("select value from odd", "--format", "json").out) == {"value": "\x1b]0;owned\x07"}


def test_values_are_columns_by_a_codec(sql: Run, archive: MadeArchive) -> None:
    """By topic or for all; `--undecoded null` keeps the rows that a codec refuses, with the reasons."""
    archived(archive, [schema_record("orders-value", 1, 7, '"string"')])
    archive.put_segment("orders", 0, batches((0, 3), value=framed(7, b"\x02x")))
    archive.commit("orders", 3)
    query = "select value, count(*) as n from orders group by 1"
    named = ("--value", "orders=registry", "--registry", "topic:_schemas", "--format", "json")
    assert sql(query, *named).lines == [{"value": "x", "n": 3}]
    refused = sql("select count(value) from clicks", "--value", "int")
    assert refused.code == 1
    assert "clicks-0, offset 0: value: 1 byte; expected an integer of 4. To have null" in refused.err
    assert "add --undecoded null" in refused.err
    query = "select count(*) as n, count(value) as v, count(value_error) as e from clicks"
    assert sql(query, "--value", "int", "--undecoded", "null", "--format", "json").lines == [
        {"n": 600, "v": 0, "e": 600}
    ]


def test_lost_offsets_end_a_statement_unless_they_are_allowed(sql: Run, archive: MadeArchive) -> None:
    """Each loss is a warning then."""
    archive.put_segment("holes", 5, batches((5, 8)))
    archive.commit("holes", 8, highest_base=5)
    lost = sql("select count(*) as n from holes", "--format", "json")
    assert lost.code == 1
    assert "holes-0: offsets 0 to 4 are lost" in lost.err
    assert "add --allow-loss" in lost.err
    allowed = sql("select count(*) as n from holes", "--format", "json", "--allow-loss")
    assert (allowed.code, allowed.lines) == (0, [{"n": 3}])
    assert allowed.err.startswith("tsctl: holes-0: offsets 0 to 4 are lost")


def test_a_word_that_contains_a_topics_name_opens_no_table(sql: Run, archive: MadeArchive) -> None:
    """Neither its codec nor its completeness matters: only tables that DuckDB looks for are opened."""
    archive.put_segment("order", 0, batches((0, 3)))
    archive.commit("order", 3)
    archive.put_segment("orders", 0, batches((0, 4), time=TIME))
    archive.commit("orders", 4)
    count = ("--format", "csv", "select count(*) as n from orders")
    assert sql("--value", "order=avro,schema.file=/does/not/exist", *count).out.split() == ["n", "4"]
    ended = sql("--at", f"@{TIME + 1}", "--unproven", *count)
    assert (ended.code, ended.out.split()) == (0, ["n", "2"])
    assert "order-0" not in ended.err


def test_partitions_are_those_of_the_incarnation(sql: Run, archive: MadeArchive) -> None:
    """A topic may have had more partitions before it was created again."""
    archive.put_incarnations("again", "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB")
    directories = [each.directory for each in read_incarnations(archive.store, archive.keys, "again")[0].entries]
    for directory, partitions in zip(directories, (2, 1), strict=True):
        for partition in range(partitions):
            archive.put_segment(directory, 0, batches((0, 3)), partition=partition)
            archive.commit(directory, 3, partition=partition)
    query = ("-p", "0,1", "--format", "csv", "select count(*) as n from again")
    assert sql("--incarnation", "oldest", *query).out.split() == ["n", "6"]
    assert sql(*query).out.split() == ["n", "3"]


def test_columns_of_one_name_are_all_written(sql: Run, tmp_path: Path) -> None:
    """A name that was there already gets a number."""
    query = "select 1 as a, 2 as a, 3 as a_1"
    assert sql("--format", "json", query).lines == [{"a": 1, "a_1": 2, "a_1_1": 3}]
    assert sql("--format", "parquet", "--output", tmp_path / "result", query).code == 0
    assert pq.read_table(tmp_path / "result").to_pylist() == [{"a": 1, "a_1": 2, "a_1_1": 3}]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_times_beyond_the_calendar_are_text(sql: Run, archive: MadeArchive, form: str) -> None:
    """A producer may write microseconds as milliseconds; DuckDB has infinite times, and arrays of them."""
    far = 1_700_000_000_000_000
    archive.put_segment("far", 0, batches((0, 1), time=far))
    archive.commit("far", 1)
    assert f"@{far * 1000} us" in sql("--format", form, "select timestamp from far").out
    ended = sql("--format", form, "select 'infinity'::timestamp as t, ['infinity'::date] as d, 5 as five")
    assert ended.code == 0
    assert "5" in ended.out


def test_a_type_that_parquet_lacks_is_a_message(sql: Run, tmp_path: Path) -> None:
    """Nothing is written."""
    ended = sql("--format", "parquet", "--output", tmp_path / "result", "select interval '1' month as m")
    assert ended.code == 2
    assert "--format=parquet" in ended.err
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["select 1", "--output", "x.parquet"], "--output=x.parquet with --format=table: add --format parquet"),
        (["select 1; select 2", "--output", "x", "--format", "csv"], "2 statements have a result; give one"),
        (["select 1", "--value", "click=json"], "--value=click=...: no such topic; did you mean clicks?"),
        (["select 1", "--at", f"@{TIME}", "--from", f"@{TIME + 1}"], f"--from=@{TIME + 1} is after --at=@{TIME}"),
        (["select offset from clicks"], 'write "offset", and names such as "my-topic", in quotation marks'),
        (["select 1;\nselec 2"], "in line 2"),
        (["from shop.orders"], "table shop.orders: cluster prod has no such topic; it has"),
        (["from shop.orders"], '; write "shop.orders" with its quotation marks'),
        (["select 1", "--value", "avro"], None),
    ],
)
def test_a_users_mistake_has_a_way_out(sql: Run, arguments: list[str], message: str | None) -> None:
    """Nothing is written; a codec that no topic of the statement needs is no mistake."""
    ended = sql(*arguments)
    assert (ended.code, Path("x").exists()) == (0 if message is None else 2, False)
    assert (message or "") in ended.err
