"""Tables of the newest record of each key: tombstones delete keys, and an election brings former records back."""

import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from dev.local.oracle import dump
from dev.local.ports import free_ports
from tests.common.log_format.build import batch, record
from tests.endpoint.running import Running
from tests.made_archive import MadeArchive
from tests.matrix import cases, examples
from tests.reader.schemas.sources import archived, framed, schema_record
from tests.tables.test_parsed_tables import NAME, Made, kill_run
from ts_common.errors import ConfigurationError, DataLoss, OperatorError

PARSER = {"type": "json", "columns": {"a": "long"}, "infer": True}
Change = tuple[str | None, int | None]  # key and value; no value deletes the key
KEYS = 40


class Latest(Made):
    """A table of topic `t`, and what its archive shows."""

    logs: dict[int, list[Change]]
    epochs: dict[int, list[tuple[int, int]]]

    def put_changes(
        self, changes: Sequence[Change], partition: int = 0, start: int | None = None, epoch: int = 0
    ) -> None:
        """Archive a segment; with a `start` below the end, a later leader's log begins there."""
        log = self.logs.setdefault(partition, [])
        start = len(log) if start is None else start
        del log[start:]
        log += changes
        records = [
            record(
                at, None if key is None else key.encode(), None if value is None else json.dumps({"a": value}).encode()
            )
            for at, (key, value) in enumerate(changes)
        ]
        data = batch(start, records, epoch=epoch, base_timestamp=start, max_timestamp=start)
        self.archive.put_segment("t", start, data, partition=partition, variant=bool(epoch))
        epochs = self.epochs.setdefault(partition, [(0, 0)])
        if epoch > epochs[-1][0]:
            epochs[:] = [*(each for each in epochs if each[1] < start), (epoch, start)]
        end = len(log)
        self.archive.commit(
            "t", end, partition=partition, epochs=tuple(epochs), highest_base=start, last_stable_offset=end
        )

    @property
    def newest(self) -> list[tuple[int, str, int]]:
        """Partition, key and value of the newest record of each key that is not deleted."""
        found = {
            (partition, key): value for partition, log in self.logs.items() for key, value in log if key is not None
        }
        return sorted((number, key, value) for (number, key), value in found.items() if value is not None)

    def newest_of_the_java_consumer(self, directory: Path) -> list[tuple[int, str, int]]:
        """Return the same of what Kafka's Java consumer reads from an endpoint of the archive."""
        port, http_port = free_ports(2)
        endpoint = Running(self.archive.location, directory / "endpoint.log", port, http_port)
        try:
            endpoint.wait_until_ready()
            records = dump(endpoint.address, "t")
        finally:
            endpoint.stop()
        found = {(each.partition, (each.key or b"").decode()): each.value for each in records}
        return sorted((number, key, json.loads(value)["a"]) for (number, key), value in found.items() if value)

    def check_newest(self) -> None:
        """The table has the newest records, and `verify` agrees."""
        assert self.select("select _partition_id, _key, a from {} order by 1, 2") == self.newest
        assert self.tables.verify(NAME).differences == ()


@pytest.fixture
def made(tmp_path: Path) -> Latest:
    made = Latest(MadeArchive(tmp_path / "archive"), tmp_path / "lake", "iceberg")
    made.logs, made.epochs = {}, {}
    made.more = {"parser": PARSER, "mode": "latest", "key": "utf8", "buckets": 4}
    return made


def some_changes(random_: random.Random, count: int) -> list[Change]:
    return [(f"k{random_.randrange(KEYS)}", random_.choice([None, random_.randrange(1000)])) for _ in range(count)]


def test_a_key_has_its_newest_value(made: Latest) -> None:
    """A tombstone deletes the key, a later record brings it back; a record without a key is refused."""
    made.put_changes([("x", 1), ("y", 2), ("x", 3), (None, 4), ("z", 5)])
    made.tables.create(NAME)
    summary = made.tables.run(NAME)
    assert (summary.records, summary.refused, summary.rewritten) == (4, 1, 0)
    made.check_newest()
    assert made.select("select _offset, _reason from {}", "_quarantine") == [(3, "_key: the record has none")]
    made.put_changes([("z", None), ("w", None), ("y", 6)])
    assert made.tables.run(NAME).rewritten > 0
    made.check_newest()
    made.put_changes([("z", 7)])
    made.tables.run(NAME)
    made.check_newest()


def test_only_touched_buckets_are_written_again(made: Latest) -> None:
    """The files of others stay as they are."""
    made.put_changes([(f"k{number}", number) for number in range(KEYS)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    before = {*made.files()}
    assert len(before) == 4
    made.put_changes([("k1", 100)])
    summary = made.tables.run(NAME)
    left = before & {*made.files()}
    assert len(left) == 3
    (changed,) = before - left
    assert summary.rewritten == Path(changed).stat().st_size
    assert not Path(changed).exists() or changed not in made.files()
    made.check_newest()


@pytest.mark.parametrize("seed", cases([0, 1, 2], quick=[0]))
def test_runs_with_unclean_elections_have_the_newest_records(made: Latest, tmp_path: Path, seed: int) -> None:
    """Those of Kafka's Java consumer. After an election a former record of a key, or a deleted key, is there again."""
    random_ = random.Random(seed)
    rewritten = 0
    made.more["on_taken_back"] = "delete"
    epoch = {0: 0, 1: 0}
    made.put_changes(some_changes(random_, 30))
    made.tables.create(NAME)
    runs = examples(20, quick=4)
    elections = {runs // 3, runs * 2 // 3}
    for number in range(runs):
        partition = random_.randrange(2)
        made.put_changes(some_changes(random_, 30), partition, epoch=epoch[partition])
        if number in elections:
            made.tables.run(NAME)
            partition, end = 0, len(made.logs[0])
            epoch[partition] += 1
            made.put_changes(some_changes(random_, 10), partition, random_.randrange(max(end - 40, 1), end), epoch[0])
        rewritten += made.tables.run(NAME).rewritten
        if number in {*elections, runs - 1}:
            made.check_newest()
    assert made.select("select _partition_id, _key, a from {} order by 1, 2") == made.newest_of_the_java_consumer(
        tmp_path
    )
    assert rewritten > 0


def test_an_election_fails_a_run_unless_an_option_allows_it(made: Latest) -> None:
    """As of other tables."""
    made.put_changes([("x", 1), ("x", 2), ("y", 3)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_changes([("z", 4)], start=1, epoch=1)
    with pytest.raises(DataLoss, match="offsets 1 to 2 were removed"):
        made.tables.run(NAME)
    made.more["on_taken_back"] = "delete"
    made.tables.run(NAME)
    assert made.newest == [(0, "x", 1), (0, "z", 4)]
    made.check_newest()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("is_late", cases([False, True], quick=[True]), ids=["before", "after"])
def test_a_run_that_ends_at_a_commit_is_completed(
    made: Latest, monkeypatch: pytest.MonkeyPatch, at: int, is_late: bool
) -> None:
    """Over an election: what was refused before it is not refused twice."""
    made.more["on_taken_back"] = "delete"
    made.put_changes([("x", 1), (None, 2), ("x", 3), ("y", 4)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_changes([("z", 5), (None, 6)], start=2, epoch=1)
    kill_run(made, monkeypatch, at, is_late=is_late)
    made.put_changes([("w", 7)], epoch=1)
    made.tables.run(NAME)
    assert made.newest == [(0, "w", 7), (0, "x", 1), (0, "z", 5)]
    made.check_newest()
    assert made.select("select _offset from {} order by 1", "_quarantine") == [(1,), (3,)]
    assert made.tables.run(NAME).commits == 0


def test_a_row_that_is_not_the_newest_is_found(made: Latest) -> None:
    """By `verify`: a table that a wrong merge wrote differs."""
    made.put_changes([("x", 1), ("y", 2)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_changes([("x", 3)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ts_tables.latest.tasks.newest_of", lambda rows: rows)
        made.tables.run(NAME)
    (found,) = made.tables.verify(NAME).differences
    assert (found.kind.value, found.start, found.end) == ("foreign", 0, 1)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"format": "parquet", "location": "file:///tmp/x"}, "needs an Iceberg table"),
        ({"partition_by": "a"}, "divided by `buckets`"),
        ({"on_hole": "pass"}, "on_hole: mode: latest has only wait"),
        ({"on_taken_back": "keep"}, "fail and delete"),
        ({"mode": "changes"}, "buckets: they are for mode: latest"),
        ({"key": "float:Float"}, "No module named"),
        ({"parser": None}, "needs a parser"),
    ],
)
def test_what_a_table_of_newest_records_does_not_have_is_refused(
    made: Latest, more: dict[str, Any], expected: str
) -> None:
    """Before anything is created."""
    made.put_changes([("x", 1)])
    made.more |= more
    with pytest.raises(ConfigurationError, match=expected):
        made.tables.create(NAME)


def test_a_member_that_only_one_part_has_is_a_column(made: Latest) -> None:
    """Parts of a plan are staged with the columns of that part."""
    made.put_changes([("x", 1)])
    made.put_changes([("x", 1)], partition=1)
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_values(1, [b'{"a": 2, "b": "new"}'], key=b"x")
    made.put_values(1, [b'{"a": 3}'], partition=1, key=b"x")
    made.tables.run(NAME)
    assert made.select("select _partition_id, a, b from {} order by 1") == [(0, 2, "new"), (1, 3, None)]
    assert made.tables.verify(NAME).differences == ()


def test_a_type_that_changes_is_no_difference(made: Latest) -> None:
    """Neither for `verify`, which parses again, nor for an election: a former schema accepts the former values."""
    fields = [[{"name": "a", "type": kind}] for kind in ("int", "string")]
    schemas = [{"type": "record", "name": "A", "fields": each} for each in fields]

    def register(version: int) -> None:
        one = schema_record("t-value", version, version, json.dumps(schemas[version - 1]))
        archived(made.archive, [one], base=version - 1)

    def value(version: int, a: object) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schemas[version - 1]), {"a": a})
        return framed(version, out.getvalue())

    register(1)
    made.registry = "topic:_schemas"
    made.more |= {"parser": {"type": "registry"}, "on_taken_back": "delete"}
    made.put_values(0, [value(1, 1), value(1, 2)], key=b"x")
    made.tables.create(NAME)
    made.tables.run(NAME)
    register(2)
    made.put_values(2, [value(2, "three")], key=b"y")
    made.tables.run(NAME)
    rows = "select _key, a, a_string from {} order by 1"
    assert made.select(rows) == [("x", 2, None), ("y", None, "three")]
    assert made.tables.verify(NAME).differences == ()
    made.put_values(1, [value(2, "four")], key=b"z", epoch=1)
    made.tables.run(NAME)
    assert made.select(rows) == [("x", 1, None), ("z", None, "four")]
    assert made.tables.verify(NAME).differences == ()


def test_an_election_that_no_run_has_followed_is_noted(made: Latest) -> None:
    """No row of the partition is compared, and `verify` names that."""
    made.put_changes([("x", 1), ("y", 2)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.put_changes([("z", 3)], start=1, epoch=1)
    found = made.tables.verify(NAME)
    assert found.differences == ()
    assert any("no row was compared" in note for note in found.notes)


def test_another_parser_is_refused_without_the_way_of_a_replay(made: Latest) -> None:
    """A table of newest records has no replay of refused records."""
    made.put_changes([("x", 1)])
    made.tables.create(NAME)
    made.tables.run(NAME)
    made.more["parser"] = {**PARSER, "on_type": "quarantine"}
    with pytest.raises(OperatorError, match="undo the change, make a generation") as caught:
        made.tables.run(NAME)
    assert "replay" not in str(caught.value)
