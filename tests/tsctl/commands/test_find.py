"""`tsctl find` and its index: records of keys, what is read for them, and runs that are merged."""

import calendar
import json
import re
from pathlib import Path

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.tsctl.running import Run
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.lookup import read_runs
from ts_reader.find.merging import clear, mergeable
from ts_reader.find.runs import Run as IndexRun
from ts_reader.find.runs import joined, put_objects

DAY = 86_400.0
KEYS = [b"user-%d" % number for number in range(40)]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Topic `t`, two partitions by Java's partitioner, each with segments [0,50) and [50,100)."""
    made = MadeArchive(tmp_path / "store")
    for partition in (0, 1):
        keys = [key for key in KEYS if hashed(key).murmur2 % 2 == partition]
        for base in (0, 50):
            records = [
                record(at, keys[(base + at) // 3 % len(keys)], json.dumps({"user": {"id": at}}).encode())
                for at in range(50)
            ]
            made.put_segment("t", base, batch(base, records), partition=partition)
        made.commit("t", 100, partition=partition, highest_base=50)
    return made


def named(archive: MadeArchive) -> tuple[str, ...]:
    return "--url", archive.location, "--cluster", CLUSTER


def runs_of(archive: MadeArchive) -> list[IndexRun]:
    return read_runs(archive.store, archive.keys, "t")


def test_records_of_keys_are_printed_as_cat_prints_them(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """With and without an index; it leaves out the other partition by certificates."""
    key = KEYS[5].decode()
    expected = [line for line in run("cat", "t", *named(archive)).lines if line["key"] == key]
    before = run("find", "--topic", "t", "--key", key, *named(archive))
    assert before.lines == expected
    assert "4 segments without an index" in before.err
    built = run("find", "index", "t", *named(archive), "--most-share", "9", "--json")
    assert built.document["topics"][0]["segments"] == 4
    after = run("find", "--topic", "t", "--key", key, *named(archive))
    assert after.lines == expected
    assert "an index covers 4 segments; certificates leave out 2 of them" in after.err
    assert "without an index" not in after.err
    keys = tmp_path / "keys"
    keys.write_text(f"{key}\nnobody\n")
    places = run("find", "--topic", "t", "--keys", keys, "--offsets", *named(archive))
    assert [(line["partition"], line["offset"]) for line in places.lines] == [
        (line["partition"], line["offset"]) for line in expected
    ]
    hexadecimal = run("find", "--topic", "t", "--key", KEYS[5].hex(), "--hex", *named(archive))
    assert hexadecimal.lines == expected


PRICES = """
name: a store
currency: EUR
bytes_per_gb: 1
default_class: STANDARD
classes:
  STANDARD: {storage_per_gb_month: 0, write_per_1000: 0, read_per_1000: 1000, retrieval_per_gb: 0.5}
"""


def test_a_dry_run_prints_what_would_be_read_and_its_cost(archive: MadeArchive, run: Run, tmp_path: Path) -> None:
    """By the prices of a file, with how much no index has; it reads no record."""
    (tmp_path / "prices.yaml").write_text(PRICES)
    wanted = ("find", "--topic", "t", "--key", KEYS[5].decode(), "--dry-run", *named(archive))
    run("find", "index", "t", *named(archive), "--most-share", "0")
    archive.put_segment("t", 100, batch(100, [record(0)]))
    archive.commit("t", 101, highest_base=100)
    found = run(*wanted, "--json", "--prices", tmp_path / "prices.yaml").document
    size = sum(info.size for info in archive.store.list() if info.key.endswith(".log"))
    assert found["topic"]["segments"] == 5
    assert found["topic"]["bytes"] == size
    assert found["index"] == {
        "segments": 4,
        "left_out_by_certificates": 2,
        "segments_without": 1,
        "bytes_without": next(info.size for info in archive.store.list() if info.key.endswith("100.log")),
        "runs": 1,
    }
    reads = found["reads"]
    assert reads["segments"] == reads["requests"] == 3
    assert found["cost"]["amount"] == reads["requests"] + reads["bytes"] / 2
    shown = run(*wanted, "--prices", tmp_path / "prices.yaml")
    assert f"cost: EUR {found['cost']['amount']:.6f} by the prices of a store, without egress" in shown.out
    assert re.search(r"^no index has +1 ", shown.out, re.MULTILINE)
    unpriced = run(*wanted)
    assert (unpriced.code, unpriced.err) == (0, "")
    assert "cost: add --prices" in unpriced.out


def test_a_field_is_compared_as_text(archive: MadeArchive, run: Run) -> None:
    """In all values between two bounds."""
    ended = run("find", "--topic", "t", "--field", "user.id=7", "--from", 50, "--offsets", *named(archive))
    assert [(line["partition"], line["offset"]) for line in ended.lines] == [(0, 57), (1, 57)]


def test_sql_reads_the_records_of_a_key(archive: MadeArchive, run: Run) -> None:
    """A table has only these."""
    key = KEYS[5].decode()
    ended = run("sql", "select count(*) as n from t", "--key-equals", key, "--json", *named(archive))
    assert ended.lines == [{"n": sum(line["key"] == key for line in run("cat", "t", *named(archive)).lines)}]


def test_an_index_adds_what_it_lacks(archive: MadeArchive, run: Run) -> None:
    """A second build reads nothing; above the bound it has certificates only."""
    first = run("find", "index", *named(archive), "--most-share", "0.0001")
    assert "4 segments with more keys than --most-share 0.0001 allows" in first.err
    (made,) = runs_of(archive)
    assert {entry.parts for entry in made.entries.values()} == {0}
    assert all(entry.certificate.murmur2 % 2 == 0 for entry in made.entries.values())
    again = run("find", "index", *named(archive), "--json").document["topics"][0]
    assert (again["segments"], again["merged_runs"]) == (0, 0)


def test_runs_of_past_periods_are_merged(archive: MadeArchive) -> None:
    """Days of a past month become a month, months of a past year a year; today's run and merged ones stay."""
    names = ["2024-00000001", "202501-00000002", "202502-00000003", "20251230-00000004"]
    names += ["20260103-00000005", "20260104-00000006", "20260105-00000007", "20260105-00000008"]
    runs = [IndexRun(name, f"{name}/", {}, {}) for name in names]
    merged = IndexRun("202601-00000009", "x/", {}, {}, replaces=("20260103-00000005",))
    now = 1_770_000_000.0  # 2026-02-02
    found = {period: [run.name[-1] for run in group] for period, group in mergeable([*runs, merged], now)}
    assert found == {"2025": ["2", "3", "4"], "202601": ["6", "7", "8", "9"]}


def test_many_days_become_a_part_of_their_month(archive: MadeArchive) -> None:
    """A look-up reads each run, so a month does not have thirty; the parts are merged when the month is past."""
    days = [f"202601{day:02d}-000000{day:02d}" for day in range(1, 9)]
    runs = [IndexRun(name, f"{name}/", {}, {}) for name in ("202512-000000aa", "202601-000000bb", *days)]
    ninth = calendar.timegm((2026, 1, 9, 1, 0, 0))
    assert [(period, len(group)) for period, group in mergeable(runs, ninth)] == [("202601", 8)]
    assert mergeable(runs[:-3], ninth) == []
    assert [(period, len(group)) for period, group in mergeable(runs, ninth + 31 * DAY)] == [("202601", 9)]


def test_a_run_without_its_list_is_not_there_and_is_removed_later(archive: MadeArchive, run: Run) -> None:
    """A killed build leaves files. They are not read, and stay for a grace: it may still be at work."""
    run("find", "index", *named(archive), "--most-share", "9")
    (made,) = runs_of(archive)
    archive.store.delete([f"{made.prefix}objects.parquet"])
    assert not runs_of(archive)
    prefix, now = archive.keys.find("t"), archive.store.current_time()
    assert not clear(archive.store, prefix, [], now).files
    assert clear(archive.store, prefix, [], now + 2 * DAY).files == len(made.files)
    assert not [*archive.store.list(prefix)]


def test_inputs_of_a_merge_stay_for_a_grace(archive: MadeArchive, run: Run) -> None:
    """Counted from the merged run, which names them."""
    run("find", "index", *named(archive), "--most-share", "9")
    (made,) = runs_of(archive)
    prefix, now = archive.keys.find("t"), archive.store.current_time()
    put_objects(archive.store, f"{prefix}2026-0000000a/", made.entries.items(), {}, [made.name])
    assert not clear(archive.store, prefix, runs_of(archive), now).runs
    assert clear(archive.store, prefix, runs_of(archive), now + 2 * DAY).runs == (made.name,)
    assert len(joined(())) == 0


@pytest.mark.parametrize("change", ["lost", "other"])
def test_r19_a_run_that_lost_a_file_is_replaced(archive: MadeArchive, run: Run, change: str) -> None:
    """Otherwise its segments would be read for ever; the next build has nothing to do."""
    run("find", "index", *named(archive), "--most-share", "9")
    (made,) = runs_of(archive)
    key = f"{made.prefix}{min(made.files)}.parquet"
    archive.store.delete([key])
    if change == "other":
        archive.store.put(key, b"other")
    again = run("find", "index", *named(archive), "--most-share", "9", "--json").document["topics"][0]
    assert (again["segments"], again["removed_runs"]) == (4, 1)
    (new,) = runs_of(archive)
    assert new.name != made.name
    assert [*new.files] == [*made.files]
    assert not [*archive.store.list(made.prefix)]
    last = run("find", "index", *named(archive), "--json").document["topics"][0]
    assert (last["segments"], last["removed_runs"]) == (0, 0)


def test_the_index_of_an_incarnation_without_objects_is_removed(archive: MadeArchive, run: Run) -> None:
    """A grace later, by the identity that writes indexes; the index of another incarnation stays."""
    gone = "t~AAAAAAAAAAAAAAAAAAAAAQ"
    put_objects(archive.store, f"{archive.keys.find(gone)}20260101-00000001/", [], {})
    archive.store.put(f"{archive.keys.find(gone)}20260101-00000001/00.parquet", b"x")
    run("find", "index", *named(archive))
    assert [*archive.store.list(archive.keys.find(gone))]
    archive.age(2 * DAY, "objects.parquet", "00.parquet")
    ended = run("find", "index", *named(archive))
    assert f"removed ts-uploader~cluster~{CLUSTER}/find/{gone}/20260101-00000001" in ended.err
    assert not [*archive.store.list(archive.keys.find(gone))]
    assert len(runs_of(archive)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", "a"), "--topic is missing"),
        (("--topic", "t"), "give keys or a field"),
        (("--topic", "t", "--key", "a", "--field", "b=1"), "give keys or a field"),
        (("--topic", "t", "--field", "user"), "--field=user: PATH=TEXT is expected"),
        (("--topic", "t", "--key", "xyz", "--hex"), "--hex: non-hexadecimal"),
        (("--topic", "t", "--keys", "nowhere"), "--keys=nowhere"),
        (("--topic", "t", "--key", "a", "--prices", "p"), "--prices=p: it is for --dry-run"),
    ],
)
def test_mistakes_are_named(archive: MadeArchive, run: Run, arguments: tuple[str, ...], message: str) -> None:
    """Before a request is sent."""
    ended = run("find", *arguments, *named(archive))
    assert ended.code == 2
    assert message in ended.err
