"""`Scan.follow`: rows as commits move, each once, also from a saved position; what ends it, and what it refuses."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from dev.local.waiting import wait_for
from tests.common.log_format.build import marker
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from tests.made_views import view_of
from tests.reader.archives import ScannedArchive
from tests.reader.shapes import ABORT, COMMIT, transaction, txnindex_entry
from tests.reader.test_archive import PROVIDER, URL, ByTopic
from tests.reader.test_scan import reader_threads
from ts_common.archive.copies import SegmentCopy
from ts_common.errors import ConfigurationError, DataLoss, QueryError
from ts_common.model import TopicPartition
from ts_reader import Archive, Scan, Step
from ts_reader.execution import run
from ts_reader.find.building import build, lacking
from ts_reader.following import follower
from ts_reader.reading.segment_reader import SegmentReader

POLL = 0.001
POSITION = 'the position of a step (JSON values, not text) is expected, or "latest"'
FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"


class Waiting(threading.Event):
    """A stop event that does something when a consumer begins to wait for commits."""

    def __init__(self, *then: Callable[[], None]) -> None:
        super().__init__()
        self._then = list(then)

    def wait(self, timeout: float | None = None) -> bool:
        (self._then.pop(0) if self._then else self.set)()
        return super().wait(timeout)


@pytest.fixture
def two(archive: ScannedArchive) -> ScannedArchive:
    """Return topic `t`: the segments [0, 100) and [100, 200), the first one committed."""
    for base in (0, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 100)
    return archive


def offsets(rows: Step | Scan) -> list[int]:
    found: list[int] = rows.to_table()["offset"].to_pylist()
    return found


def available(scan: Scan, **arguments: Any) -> list[Step]:
    """Return the steps until the first wait."""
    return list(scan.follow(stop=Waiting(), poll_seconds=POLL, **arguments))


def warnings_of(read: Callable[[], Any]) -> list[str]:
    with capture_logs() as logs:
        read()
    return [entry["message"] for entry in logs if entry["event"] == "query_warning"]


def test_steps_follow_the_commit(two: ScannedArchive) -> None:
    """While the consumer waits, segments are committed, partitions are added, and nothing is new at times."""

    def more() -> None:
        two.put_segment("t", 0, batches((0, 5)), partition=1)
        two.commit("t", 5, partition=1)

    stop = Waiting(lambda: two.commit("t", 200, highest_base=100), lambda: None, more)
    followed = two.scan(columns=["partition", "offset"]).follow(stop=stop, poll_seconds=POLL)
    found = [(step.offsets, step.to_table().to_pylist(), step.position) for step in followed]
    assert [(count, [(row["partition"], row["offset"]) for row in rows]) for count, rows, _ in found] == [
        (100, [(0, offset) for offset in range(100)]),
        (100, [(0, offset) for offset in range(100, 200)]),
        (5, [(1, offset) for offset in range(5)]),
    ]
    assert found[1][2] == {"t": {"0": 200}, "~epochs": {"t": {"0": [[0, 0]]}}}


def test_a_step_is_an_arrow_stream_of_its_rows(two: ScannedArchive) -> None:
    """For each engine, as often as it is read, also after later commits."""
    (step,) = available(two.scan(columns=["offset", "value"]))
    two.commit("t", 200, highest_base=100)
    assert pa.schema(step) == step.schema == two.scan(columns=["offset", "value"]).schema
    assert pa.table(step).num_rows == pl.DataFrame(step).height == 100
    assert duckdb.execute('select count(*), max("offset") from step').fetchall() == [(100, 99)]
    assert offsets(step) == list(range(100))
    batches_of_all = chain.from_iterable(two.scan().follow(stop=Waiting(), poll_seconds=POLL))
    assert sum(batch.num_rows for batch in batches_of_all) == 200


def test_rows_of_an_interrupted_program_are_those_of_one_run(archive: ScannedArchive) -> None:
    """It ends after each step, or in the middle of one, and continues from the JSON that it saved: no row twice.

    The commits of three partitions move meanwhile.
    """
    for partition in range(3):
        for base in range(0, 300, 50):
            archive.put_segment("t", base, batches(*steps(base, base + 50)), partition=partition)

    def commit(end: int) -> None:
        for partition in range(3):
            archive.commit("t", end - 10 * partition, partition=partition, highest_base=(end - 1) // 50 * 50)

    commit(60)
    kept: list[tuple[int, int]] = []
    scan, saved, ends = archive.scan(columns=["partition", "offset"]), "null", list(range(65, 301, 5))
    while True:
        followed = scan.follow(position=json.loads(saved), max_offsets=37, poll_seconds=POLL, stop=Waiting())
        step = next(followed, None)
        if step is None and not ends:
            break
        if step is not None and len(ends) % 4 == 1:  # killed before it saved the position
            next(iter(step))
        elif step is not None:
            kept += [(row["partition"], row["offset"]) for row in step.to_table().to_pylist()]
            saved = json.dumps(step.position)
        followed.close()
        if ends:
            commit(ends.pop(0))
    expected = [[(partition, offset) for offset in range(300 - 10 * partition)] for partition in range(3)]
    assert [[place for place in kept if place[0] == partition] for partition in range(3)] == expected


def test_steps_have_bounded_size_and_wait_only_when_they_reached_the_commits(two: ScannedArchive) -> None:
    """A backlog is read without a pause; shares are those of Spark's maxOffsetsPerTrigger."""
    two.put_segment("t", 0, batches((0, 10)), partition=1)
    two.commit("t", 10, partition=1)
    found = available(two.scan(), max_offsets=44)
    assert [step.offsets for step in found] == [44, 44, 22]
    assert found[0].position["t"] == {"0": 40, "1": 4}
    assert [step.offsets for step in available(two.scan(), max_offsets=None)] == [110]


def test_latest_saves_where_it_began(two: ScannedArchive) -> None:
    """The first step has no rows; a program that ends before the second one misses none."""
    (first,) = available(two.scan(), position="latest")
    assert (first.offsets, offsets(first), first.position) == (
        0,
        [],
        {"t": {"0": 100}, "~epochs": {"t": {"0": [[0, 0]]}}},
    )
    two.commit("t", 150, highest_base=100)
    (step,) = available(two.scan(), position=first.position)
    assert offsets(step) == list(range(100, 150))


@pytest.mark.parametrize(
    ("start", "first"), [({"starting_offsets": {0: 42}}, 42), ({"starting_timestamp": 1033}, 33), ({}, 0)]
)
def test_the_first_step_begins_where_the_scan_does(two: ScannedArchive, start: dict[str, Any], first: int) -> None:
    """A position has precedence."""
    (step,) = available(two.scan(**start))
    assert offsets(step) == list(range(first, 100))
    (step,) = available(two.scan(**start), position={"t": {"0": 90}})
    assert offsets(step) == list(range(90, 100))


def test_a_pattern_finds_topics_that_appear_later(two: ScannedArchive) -> None:
    """A name must exist at the start."""

    def late() -> None:
        two.put_segment("u1", 0, batches((0, 5)))
        two.commit("u1", 5)

    stop = Waiting(late)
    (step,) = two.scan(re.compile("^u")).follow(stop=stop, poll_seconds=POLL)
    assert step.to_table()["topic"].to_pylist() == ["u1"] * 5
    with pytest.raises(QueryError, match=r"topic x: .* has no such topic; it contains t, u1"):
        next(two.scan("x").follow())


def test_a_consumer_that_waits_is_stopped_by_another_thread(two: ScannedArchive) -> None:
    """At once, whatever the pause; steps that it has are complete."""
    waits = threading.Event()
    stop, found = Waiting(waits.set), list[int]()

    def consume() -> None:
        for step in two.scan().follow(stop=stop, poll_seconds=3600):
            found.extend(offsets(step))

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    assert waits.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert found == list(range(100))
    assert list(two.scan().follow(stop=stop)) == []


PROGRAM = """
import sys, threading
from ts_reader import Archive

class Waiting(threading.Event):
    def wait(self, timeout=None):
        print("waits", flush=True)
        return super().wait(timeout)

for step in Archive(sys.argv[1], "prod").scan("t").follow(stop=Waiting(), poll_seconds=3600):
    print(step.to_table().num_rows, flush=True)
"""


def interrupted(program: "subprocess.Popen[str]") -> bool:
    """Send a SIGINT; return whether the program has ended a second later.

    One signal can be too early: CPython looks for signals before it waits for a lock. A signal between that look and
    the system call does not interrupt the wait.
    """
    program.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        program.wait(1)
    return program.returncode is not None


def test_ctrl_c_ends_a_wait(two: ScannedArchive) -> None:
    """The program gets its KeyboardInterrupt."""
    command = [sys.executable, "-c", PROGRAM, two.location]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert list(islice(program.stdout, 2)) == ["100\n", "waits\n"]
        try:
            wait_for(lambda: interrupted(program), "the program to end", 60)
            _, errors = program.communicate()
        finally:
            program.kill()
    assert "KeyboardInterrupt" in errors
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize("remote", [False, True])
def test_closing_ends_the_reads_of_its_steps(
    two: ScannedArchive, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """A read that was not complete is an error, so that no position is saved after it; later reads are complete."""
    monkeypatch.setattr("ts_reader.arguments._PACKED_BYTES", 1)
    if remote:
        monkeypatch.setattr(run, "_DIRECTORY", "no scheme")
    two.commit("t", 200, highest_base=100)
    followed: Generator[Step, None, None] = two.scan().follow()
    step = next(followed)
    rows = iter(step)
    next(rows)
    followed.close()
    with pytest.raises(QueryError, match=r"follow\(\) was closed while a step was read"):
        next(rows)
    wait_for(lambda: not reader_threads(), "no thread of a scan is left", state=reader_threads)
    assert offsets(step) == list(range(200))


def test_what_retention_deleted_is_data_loss(two: ScannedArchive) -> None:
    """Or a warning, and the rows from the log's start on."""
    saved = available(two.scan())[-1].position
    two.store.delete([two.partition("t").log_start])
    two.commit("t", 200, log_start=150, highest_base=100)
    lost = "t-0: offsets 100 to 149 are lost: below the log's start 150"
    with pytest.raises(DataLoss, match=f"{lost}. To read what is left, pass fail_on_data_loss=False"):
        available(two.scan(), position=saved)
    found: list[Step] = []
    lenient = two.scan(fail_on_data_loss=False)
    assert warnings_of(lambda: found.extend(available(lenient, position=saved))) == [lost]
    assert [offset for step in found for offset in offsets(step)] == list(range(150, 200))


@pytest.mark.parametrize("begun", [None, "latest"])
@pytest.mark.parametrize("end", [60, 100, 140])
def test_u26_what_an_election_removed_is_data_loss(two: ScannedArchive, end: int, begun: str | None) -> None:
    """Wherever the commit is; or the position goes back to where the logs part, and the new records follow."""
    saved = available(two.scan(), position=begun)[-1].position
    two.put_segment("t", 60, batches((60, 140), epoch=1, value=b"new"))
    two.commit("t", end, epochs=((0, 0), (1, 60)), highest_base=60)
    lost = "t-0: offsets 60 to 99 are lost: an election removed them after they were read"
    with pytest.raises(DataLoss, match=lost):
        available(two.scan(), position=saved)
    found: list[Step] = []
    stop = Waiting(lambda: two.commit("t", 140, epochs=((0, 0), (1, 60)), highest_base=60))
    followed = two.scan(fail_on_data_loss=False).follow(position=saved, stop=stop, poll_seconds=POLL)
    assert warnings_of(lambda: found.extend(followed)) == [lost]
    rows = [row for step in found for row in step.to_table().to_pylist()]
    assert (found[0].offsets, found[0].position["t"]) == (0, {"0": 60})
    assert [row["offset"] for row in rows] == list(range(60, 140))
    assert {row["value"] for row in rows} == {b"new"}


@pytest.mark.parametrize(
    ("start", "position"),
    [({}, "latest"), ({"starting_offsets": {"t": {0: 100}}}, None), ({}, {"t": {"0": 100}})],
)
def test_u26_an_election_is_noticed_before_there_is_a_row(two: ScannedArchive, start: Any, position: Any) -> None:
    """Wherever the stream begins: the first look reports which epoch wrote the records below."""

    def elected() -> None:
        two.put_segment("t", 60, batches((60, 140), epoch=1, value=b"new"))
        two.commit("t", 140, epochs=((0, 0), (1, 60)), highest_base=60)

    followed = two.scan(**start).follow(position=position, stop=Waiting(elected), poll_seconds=POLL)
    with pytest.raises(DataLoss, match="t-0: offsets 60 to 99 are lost: an election removed them"):
        list(followed)


@pytest.mark.parametrize("id_is_known", [True, False])
def test_u09_a_topic_that_is_created_again_is_data_loss(two: ScannedArchive, id_is_known: bool) -> None:
    """Or the new one is read from its first offset, and a step of the former one is still read from it."""
    if id_is_known:
        two.put_incarnations("t", FIRST)
    former = available(two.scan())[-1]
    two.put_incarnations("t", FIRST, SECOND)
    two.put_segment("source", 0, batches((0, 30), value=b"new"))
    two.commit("source", 30)
    later = two.keys.partition(TopicPartition("t", 0), two.keys.later_incarnation("t", SECOND))
    prefix = two.partition("source").prefix
    for info in list(two.store.list(prefix)):
        data, held = two.store.get(info.key)
        two.store.put(info.key.replace(prefix, later.prefix), data, metadata=held.metadata)
    told = f"topic t was deleted and created again (topic id {FIRST if id_is_known else 'none'}, now {SECOND})"
    with pytest.raises(DataLoss, match=re.escape(told)):
        available(two.scan(), position=former.position)
    (step,) = available(two.scan(fail_on_data_loss=False), position=former.position)
    assert set(step.to_table()["value"].to_pylist()) == {b"new"}
    assert offsets(step) == list(range(30))
    assert offsets(former) == list(range(100))


def test_r02_committed_records_are_followed_to_the_last_stable_offset(archive: ScannedArchive) -> None:
    """A transaction is in a step when it is decided; an aborted one is in no step."""
    archive.put_segment("t", 0, transaction(0, 5) + marker(5, 5, COMMIT) + transaction(6, 10))
    archive.commit("t", 10, last_stable_offset=6)

    def decided() -> None:
        log = marker(10, 5, ABORT) + transaction(11, 15) + marker(15, 5, COMMIT)
        archive.put_segment("t", 10, log, txnindex=txnindex_entry(5, 6, 10, 11))
        archive.commit("t", 16, highest_base=10, last_stable_offset=16)

    followed = archive.scan(isolation_level="read_committed").follow(stop=Waiting(decided), poll_seconds=POLL)
    assert [(offsets(step), step.position["t"]) for step in followed] == [
        ([0, 1, 2, 3, 4], {"0": 6}),
        ([11, 12, 13, 14], {"0": 16}),
    ]


@pytest.mark.parametrize(
    ("scan", "arguments", "told"),
    [
        ({"ending_offsets": {0: 5}}, {}, "ending_offsets: follow() has no end; drop it, or read the scan itself"),
        ({"ending_timestamp": 5}, {}, "ending_timestamp: follow() has no end; drop it, or read the scan itself"),
        ({"view": "latest"}, {}, "view='latest': it needs an end, and follow() has none; read the scan itself"),
        ({}, {"poll_seconds": 0}, "poll_seconds=0: a number of seconds above 0 is expected"),
        ({}, {"poll_seconds": float("nan")}, "poll_seconds=nan: a number of seconds above 0 is expected"),
        ({}, {"poll_seconds": "5"}, "poll_seconds='5': a number of seconds above 0 is expected"),
        ({}, {"max_offsets": 0}, "max_offsets=0: a whole number, at least 1, is expected"),
        ({}, {"stop": True}, "stop=True: a threading.Event is expected, or None"),
        ({}, {"position": {"version": 1}}, f"position={{'version': 1}}: {POSITION}"),
        ({}, {"position": "{}"}, f"position='{{}}': {POSITION}"),
        ({}, {"position": 5}, f"position=5: {POSITION}"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_once(
    archive: ScannedArchive, scan: dict[str, Any], arguments: dict[str, Any], told: str
) -> None:
    """One line, before any request to the store."""
    with pytest.raises(ConfigurationError) as caught:
        archive.scan(**scan).follow(**arguments)
    assert (caught.value.source, caught.value.problems) == ("arguments of follow", (told,))


def test_topics_in_several_locations_are_refused(tmp_path: Path) -> None:
    """As by a stream of Spark's; topics of one of the locations are followed."""
    file = tmp_path / f"{CLUSTER}.properties"
    file.write_text(f"{PROVIDER}={ByTopic.__module__}:ByTopic\n{URL}={(tmp_path / 'store').as_uri()}\n")
    store = MadeArchive(tmp_path / "store-b")
    for topic in ("b1", "b2"):
        store.put_segment(topic, 0, batches((0, 5)))
        store.commit(topic, 5)
    archive = Archive(config=file)
    there = (tmp_path / "store-b").as_uri()
    for named, told in (
        (["a1", "b1"], f"config: follow() reads one location, and the topics are in several (b1 in {there}): start"),
        (re.compile("b"), "config: follow() matches a pattern in one location, and there are several: name the topics"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(told)):
            archive.scan(named).follow()
    (step,) = available(archive.scan(["b1", "b2"]))
    assert sorted(step.to_table()["topic"].to_pylist()) == ["b1"] * 5 + ["b2"] * 5


@pytest.mark.parametrize("from_bytes", [0, follower.LOOK_UP_FROM_BYTES])
def test_a_follower_of_keys_reads_history_through_an_index(
    archive: ScannedArchive, from_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of much history is looked up, one of little and of what is new is read; the rows are the same."""
    for base in range(0, 500, 100):
        archive.put_segment("t", base, batches(*steps(base, base + 100)))
    archive.commit("t", 400, highest_base=300)
    copies = lacking(view_of(archive), [])
    build(archive.store, archive.keys.find("t"), copies, most_share=100)
    monkeypatch.setattr(follower, "LOOK_UP_FROM_BYTES", from_bytes)
    read: list[str] = []
    monkeypatch.setattr(SegmentReader, "_read_copy", _noted(SegmentReader._read_copy, read))
    waiting = Waiting(lambda: archive.commit("t", 500, highest_base=400))
    found = [
        offsets(step) for step in archive.scan(key_equals=["42", "342", "450"]).follow(stop=waiting, poll_seconds=POLL)
    ]
    assert found == [[42, 342], [450]]
    assert len(read) == (3 if not from_bytes else 5)


def _noted(read: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    def read_copy(reader: SegmentReader, copy: SegmentCopy, *given: Any) -> Any:
        seen.append(copy.key)
        return read(reader, copy, *given)

    return read_copy
