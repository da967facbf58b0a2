"""`tsctl erase` over an archive with a random key as the person: no reader, no output and no new object has it."""

import json
import secrets
from pathlib import Path

import pyarrow as pa
import pytest

from dev.local.stores.s3 import S3Server
from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive, batches
from tests.made_tail import MadeTail, entry, live
from tests.tsctl.erase.made import PERSON, made_archive, named, put_agent
from tests.tsctl.running import Run
from ts_common.archive.catalog import read_log_start
from ts_common.archive.erasures import Erasure, erasure_key
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.holds import Hold
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_common.store.protection import Protection
from tsctl.erase import live_cluster
from tsctl.erase.live_cluster import LivePartition, LiveTopic
from tsctl.sql.row_filter import RowFilter

TERMS = ("--topic", "t", "--reference", "letter of 1 May", "--due", "2090-01-31")


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions, with one record of a person each."""
    return made_archive(tmp_path / "bucket")


def file_of(tmp_path: Path, *lines: str, name: str = "keys") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def keys_shown(archive: MadeArchive, run: Run, topic: str = "t") -> list[str]:
    return [line["key"] for line in run("cat", topic, *named(archive)).lines]


def test_a_canary_is_hidden_from_each_command_and_is_in_no_new_object(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """`cat`, `find`, `sql` and `get` in both incarnations and the live tail; `status` lists the request."""
    canary = f"canary-{secrets.token_hex(8)}"
    archive.put_incarnations("u", "a" * 22, "b" * 22)
    for directory in ("u", f"u~{'b' * 22}"):
        archive.directories["u"] = directory
        archive.put_segment("u", 0, batches((0, 10)) + batch(10, [record(0, canary.encode(), b"v")]))
        archive.commit("u", 11, live=live((0, 11)) if "~" in directory else None)
    MadeTail(archive).put(entry(archive, "u", 11, batch(11, [record(0, canary.encode(), b"w")])))
    assert keys_shown(archive, run, "u").count(canary) == 2
    before = {info.key for info in archive.store.list()}
    keys = file_of(tmp_path, canary)
    terms = ("--topic", "u", "--key-file", keys, "--reference", "letter", "--due", "2090-01-31", *named(archive))
    planned = run("erase", "add", "case-1", *terms, "--dry-run", "--json")
    assert planned.code == 0
    found = {each["partition"]: (each["records"], each["end"]) for each in planned.document["partitions"]}
    assert found == {"u-0": (1, 11), f"u~{'b' * 22}-0": (2, 12)}
    assert {info.key for info in archive.store.list()} == before
    added = run("erase", "add", "case-1", *terms)
    assert added.code == 0
    assert "case-1: 3 records hidden from all readers" in added.out
    assert "case-1 is open: repeat this command once NEXT OFFSET has reached each END" in added.out
    shown = [added, planned, run("erase", "status", *named(archive), "--json")]
    for incarnation in ("oldest", "newest"):
        of = ("--incarnation", incarnation, *named(archive))
        shown += [run("cat", "u", *of), run("find", "--topic", "u", "--keys", keys, *of), run("sql", "from u", *of)]
    assert [each for each in shown if canary in each.out + each.err] == []
    (request,) = shown[2].document["requests"]
    assert (request["request"], request["state"], request["late"], request["records"]) == ("case-1", "open", False, 3)
    new = {info.key for info in archive.store.list()} - before
    assert [key for key in new if canary.encode() in archive.store.get(key)[0]] == []
    assert archive.keys.erasures + "case-1.json" in new


def test_a_condition_of_sql_finds_records_by_decoded_values(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """A value that its codec refuses is named: the request stays open, and the code is 1."""
    archive.put_segment("v", 0, batch(0, [record(at, None, b'{"user":{"id":%d}}' % at) for at in range(5)]))
    archive.commit("v", 5)
    of = ("--reference", "r", "--due", "2090-01-31", *named(archive))
    condition = "json_extract_string(value, '$.user.id') = '3'"
    done = run("erase", "add", "a", "--topic", "v", "--where", condition, "--value", "utf8", *of, "--json")
    assert (done.code, done.document["requests"][0]["records"]) == (0, 1)
    assert [line["offset"] for line in run("cat", "v", *named(archive)).lines] == [0, 1, 2, 4]
    refused = run("erase", "add", "b", "--topic", "t", "--where", "value is null", "--value", "long", *of)
    assert (refused.code, len(keys_shown(archive, run))) == (1, 62)
    assert "with a key or value that its codec refuses" in refused.err
    assert "b is open: 2 places could not be searched; act on each warning" in refused.out
    again = run("erase", "add", "a", "--topic", "v", "--where", condition, "--value", "utf8", *of)
    assert "a is hidden, and its bytes are stored: start tsctl erase run each night" in again.out
    states = {
        each["request"]: each["state"]
        for each in run("erase", "status", *named(archive), "--json").document["requests"]
    }
    assert states == {"a": "hidden", "b": "open"}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("nothing = 1", "nothing"),
        ("key = (select max(key) from records)", "a subquery"),
        ("true) ; select (1", "one condition is expected"),
        ("partition =", "syntax error"),
    ],
)
def test_a_wrong_condition_is_one_message(archive: MadeArchive, run: Run, condition: str, said: str) -> None:
    """It is found before a record is read."""
    ended = run("erase", "add", "a", *TERMS, "--where", condition, *named(archive))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err


def test_offsets_are_read_from_lines_of_text_and_of_find(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """An offset at or above the end, and a partition that the archive lacks, are mistakes."""
    lines = run("find", "--topic", "t", "--key", PERSON.decode(), "--offsets", "-p", "0", *named(archive)).out
    path = file_of(tmp_path, *lines.splitlines(), "t-1 30 0")
    done = run("erase", "add", "a", *TERMS, "--offsets", path, *named(archive), "--json")
    assert (done.code, done.document["requests"][0]["records"]) == (0, 2)
    assert PERSON.decode() not in keys_shown(archive, run)
    for line, said in (("t-0 31", "t-0: --offsets has 31, and the partition ends at 31"), ("t-7 1", "no object below")):
        wrong = run("erase", "add", "b", *TERMS, "--offsets", file_of(tmp_path, line), *named(archive))
        assert (wrong.code, said in wrong.err) == (2, True)


def test_offsets_of_find_hide_records_of_a_restored_log_in_its_former_place(run: Run, tmp_path: Path) -> None:
    """`find` returns both; the former place keeps other records at offsets from the end of the restore on."""
    former = made_archive(tmp_path / "store", "old")
    former.put_segment("t", 31, batches((31, 40)))
    former.commit("t", 40, highest_base=31, log_start=None)
    archive = MadeArchive(tmp_path / "store")
    put_agent(archive)
    archive.put_segment("t", 31, batch(31, [record(0, PERSON, b"v")]))
    archive.commit("t", 32, highest_base=31, log_start=31)
    archive.put_restored(former.keys, 31)
    lines = run("find", "--topic", "t", "--key", PERSON.decode(), "--offsets", *named(archive)).out
    offsets = file_of(tmp_path, *lines.splitlines())
    added = run("erase", "add", "a", *TERMS, "--offsets", offsets, *named(archive), "--json")
    assert (added.code, added.document["requests"][0]["records"]) == (0, 3)  # offset 30 is listed in both places
    assert PERSON.decode() not in keys_shown(archive, run)
    assert "31" in [
        line["key"] for line in run("cat", "t", "-p", "0", "--url", archive.location, "--cluster", "old").lines
    ]


def test_mistakes_of_a_command_line_are_reported_at_once(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """No key is in a message, and nothing is written."""
    before = {info.key for info in archive.store.list()}
    keys = file_of(tmp_path, PERSON.decode())
    wrong = run(
        *("erase", "add", ".x", "--topic", "t", "--key-file", keys, "--where", "true", "--incarnation", "0"),
        *("--reference", f"of {PERSON.decode()}", "--due", "soon", *named(archive)),
    )
    assert wrong.code == 2
    for said in ("'.x' is no id", "give one of them", "--incarnation=0", "--due=soon", "contains a key of --key-file"):
        assert said in wrong.err
    assert PERSON.decode() not in wrong.err
    lines = file_of(tmp_path, "t-0", "t-0 1 2 3", "u-0 1", '{"topic":"t"}', name="offsets")
    wrong = run("erase", "add", "a", *TERMS, "--offsets", lines, *named(archive))
    assert (wrong.code, wrong.err.count("offsets: line")) == (2, 4)
    unknown = run("erase", "add", "a", "--topic", "tt", *TERMS[2:], "--key-file", keys, *named(archive))
    assert (unknown.code, "topic tt" in unknown.err) == (2, True)
    assert {info.key for info in archive.store.list()} == before


def test_a_request_is_added_once_and_repeated_with_the_same_terms(
    archive: MadeArchive, run: Run, tmp_path: Path
) -> None:
    """Another reference is a mistake; the same terms search again, and note who did it when."""
    keys = file_of(tmp_path, PERSON.decode())
    assert run("erase", "add", "a", *TERMS, "--key-file", keys, *named(archive)).code == 0
    again = run("erase", "add", "a", *TERMS, "--key-file", keys, *named(archive), "--json")
    assert (again.code, again.document["requests"][0]["state"]) == (0, "hidden")
    (note,) = (info.key for info in archive.store.list(f"{archive.keys.erasures}a.run-"))
    assert json.loads(archive.store.get(note)[0])["partitions"] == [["t-0", 31, 31, 1, 1], ["t-1", 31, 31, 1, 1]]
    stored = read_log_start(archive.store, archive.partition("t").log_start)
    assert stored is not None
    assert stored.content.erased == 1
    other = run("erase", "add", "a", *TERMS[:2], "--reference", "x", *TERMS[4:], "--key-file", keys, *named(archive))
    assert (other.code, "has another one of this id" in other.err) == (2, True)


def test_records_of_a_partition_that_no_agent_has_shipped_keep_a_request_open(
    archive: MadeArchive, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running cluster has three partitions with records, and one without."""
    bounds = ((0, 31), (0, 31), (5, 9), (4, 4))
    partitions = (LivePartition(TopicPartition("t", at), *each) for at, each in enumerate(bounds))
    live = LiveTopic(tuple(partitions), None, compacts=False)
    monkeypatch.setattr(live_cluster, "read_live_topic", lambda *_: live)
    keys = file_of(tmp_path, PERSON.decode())
    added = run("erase", "add", "a", *TERMS, "--key-file", keys, "--bootstrap-server", "x:1", *named(archive), "--json")
    (request,) = added.document["requests"]
    assert (added.code, request["state"]) == (0, "open")
    assert [(each["partition"], each["end"]) for each in request["partitions"]] == [
        ("t-0", 31),
        ("t-1", 31),
        ("t-2", 9),
    ]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_of_keys_can_begin_with_a_byte_order_mark(
    archive: MadeArchive, run: Run, tmp_path: Path, ends: str
) -> None:
    """Editors and spreadsheets of Windows write one; without this, no record has the first key."""
    keys = tmp_path / "keys"
    keys.write_bytes(f"\ufeff{PERSON.decode()}{ends}other{ends}{ends}".encode())
    assert run("erase", "add", "a", *TERMS, "--key-file", keys, *named(archive)).code == 0
    assert PERSON.decode() not in keys_shown(archive, run)


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("user-1\ruser-2\r", (), "keys: line 1 has a carriage return"),
        ("61\n  \n", ("--hex",), "--hex: a key has spaces only"),
    ],
)
def test_a_file_of_keys_that_can_mean_others_is_a_mistake(
    archive: MadeArchive, run: Run, tmp_path: Path, content: str, options: tuple[str, ...], said: str
) -> None:
    """A key with a carriage return would be two keys, and spaces the empty one: other people's records."""
    keys = tmp_path / "keys"
    keys.write_bytes(content.encode())
    wrong = run("erase", "add", "a", *TERMS, "--key-file", keys, *options, *named(archive))
    assert (wrong.code, said in wrong.err, "user" in wrong.err) == (2, True, False)


def test_status_ends_with_1_where_a_request_is_late(archive: MadeArchive, run: Run) -> None:
    """No release removes the bytes yet, so each request is late from its due date on."""
    assert run("erase", "status", *named(archive)).out == "no requests\n"
    late = Erasure("a", "t", 1, None, "r", 2, 0, ())
    archive.store.put(erasure_key(archive.keys, "a"), late.encode())
    ended = run("erase", "status", *named(archive))
    assert (ended.code, "late" in ended.out) == (1, True)


def test_check_names_agents_holds_and_marks(archive: MadeArchive, run: Run) -> None:
    """Code 2 while an agent is too low; a dry run is possible, with the reason as a warning."""
    fine = run("erase", "check", "--topic", "t", *named(archive))
    assert fine.code == 0
    assert "agent of broker 1" in fine.out
    assert "kafka-delete-records" in fine.out
    archive.store.put(archive.keys.ends_of(2), Ends(2, 1, {}, "0.2.0").encode())
    archive.store.put(archive.keys.hold("audit"), Hold(name="audit", topics=("t",), reason="audit").encode())
    archive.store.delete([archive.partition("t").log_start])
    low = run("erase", "check", "--topic", "t", *named(archive), "--json")
    assert low.code == 2
    verdicts = [(each["verdict"], each["check"]) for each in low.document["checks"]]
    assert verdicts == [
        ("fine", "agent of broker 1"),
        ("error", "agent of broker 2"),
        ("warning", "holds"),
        ("error", "marks"),
    ]
    put_agent(archive, 2)
    assert run("erase", "check", *named(archive)).code == 0


@pytest.mark.full  # tests/erased adds requests in a bucket with versions
def test_records_are_hidden_on_a_real_s3_server(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write has its condition; the same command again finds the list and the request."""
    with S3Server(tmp_path, tmp_path) as server:
        server.create_bucket("erased")
        for name, value in server.environment(server.admin).items():
            monkeypatch.setenv(name, value)
        made = made_archive("s3://erased/base")
        keys = file_of(tmp_path, PERSON.decode())
        for _ in range(2):
            done = run("erase", "add", "a", *TERMS, "--key-file", keys, *named(made), "--json")
            assert (done.code, done.document["requests"][0]["state"]) == (0, "hidden")
            assert PERSON.decode() not in keys_shown(made, run)
        lists = [info.key for info in made.store.list(made.partition("t").erased)]
        assert lists == [f"{made.partition('t').erased}1.bin"]
        made.store.close()


def test_a_row_filter_sees_rows_by_number() -> None:
    """The order of DuckDB's result does not matter, and a comment ends with its line."""
    rows = pa.RecordBatch.from_pydict({"n": list(range(5000)), "offset": list(range(5000))})
    found = RowFilter('n % 7 = 3 and "offset" > 10 -- a comment', rows.schema).matches(rows)
    assert [*found.nonzero()[0]] == [n for n in range(11, 5000) if n % 7 == 3]


def test_an_error_of_sql_names_no_value_of_a_row() -> None:
    """DuckDB's message has the value, and the lines of a command end in logs."""
    rows = pa.RecordBatch.from_pydict({"text": ["17", "canary"]})
    with pytest.raises(QueryError, match="Conversion Error in one of 2 records") as raised:
        RowFilter("CAST(text AS INTEGER) = 17", rows.schema).matches(rows)
    assert "canary" not in str(raised.value)


def test_add_prints_when_running_readers_obey(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """An officer must not count on an endpoint a moment too early."""
    (tmp_path / "keys").write_bytes(PERSON)
    added = run("erase", "add", "case-1", *TERMS, "--key-file", tmp_path / "keys", *named(archive))
    assert (added.code, "running endpoints within about 5 seconds" in added.err) == (0, True)


def test_check_names_a_bucket_that_keeps_versions_and_does_not_list_them(
    archive: MadeArchive, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Google's with soft delete: no run can see an end of a request there."""
    kept = Protection(versioned=True, locks=False, default_retention=None)
    monkeypatch.setattr(type(archive.store), "protection", lambda _: kept)
    checks = run("erase", "check", *named(archive), "--json").document["checks"]
    (found,) = (each for each in checks if each["check"] == "versions")
    assert (found["verdict"], "requests stay hidden" in found["text"]) == ("warning", True)
