"""A drill restores a real archive into a broker of its own, compares it, and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev.local.jars import Line
from dev.local.kafka.distribution import kafka_directory
from dev.local.ports import LOOPBACK
from dev.local.waiting import wait_for
from tests.tsctl.conftest import FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import PROGRAM, Run
from ts_common.archive.catalog import read_catalog
from ts_common.archive.small_objects import get_small
from ts_common.archive.snapshots import FIVE_MINUTES, GroupOffset, GroupsSnapshot
from ts_common.model import TopicPartition
from tsctl.drill.broker import ThrowawayBroker
from tsctl.restore.chain import Batch, clean, read_batches

_SECONDS = 90
_MARK = "TS_DRILL_TEST"  # in the environment of a drill, and so of its broker


def metrics_of(file: Path) -> dict[str, float]:
    families = text_string_to_metric_families(file.read_text())
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture
def group(shipped: Shipped) -> Iterator[None]:
    """A snapshot, in place of an agent's, has a group at one offset, and at another beyond the archive."""
    archive, now = shipped.archive, int(time.time() * 1000)
    at = now // FIVE_MINUTES * FIVE_MINUTES
    offsets = {TopicPartition(FIELDS, 1): GroupOffset(120, 7, ""), TopicPartition(FIELDS, 2): GroupOffset(9999, 7, "")}
    key = GroupsSnapshot.key(archive.keys, at)
    archive.store.delete([key])
    GroupsSnapshot(now, {"reports": offsets}).put(archive.store, archive.keys, at)
    yield
    archive.store.delete([key])


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("line", ["4", pytest.param("3.9", marks=pytest.mark.full)])
def test_a_drill_compares_every_record_in_both_isolation_levels(
    shipped: Shipped, run: Run, tmp_path: Path, line: Line
) -> None:
    """Page, document and metrics have the result; the broker has ended, and its data is removed."""
    page, prom, data = tmp_path / "drill.html", tmp_path / "drill.prom", tmp_path / "data"
    data.mkdir()
    options = ("--kafka", kafka_directory(line), "--config", shipped.config, "--whole", "--directory", data)
    ended = run("drill", FIELDS, TRANSACTIONS, *options, "--json", "--output", page, "--metrics-file", prom)
    assert ended.code == 0, ended
    found = ended.document
    assert (found["succeeded"], found["findings"]) == (True, [])
    assert found["records"] == len(shipped.records)
    compared = {(each["partition"], each["isolation_level"]): each for each in found["compared"]}
    assert compared.keys() == {
        (f"{topic}-{number}", level)
        for topic, number in shipped.next_offsets
        for level in ("read_uncommitted", "read_committed")
    }
    # The cut leaves a transaction open: up to it both have the outcomes.
    transactions = compared[f"{TRANSACTIONS}-0", "read_committed"]
    committed = [each for each in shipped.committed if each.offset < transactions["end"]]
    assert 0 < transactions["records"] == len(committed)
    assert transactions["end"] < compared[f"{TRANSACTIONS}-0", "read_uncommitted"]["end"]
    assert found["groups"] == 1
    assert found["recovery_point_seconds"] >= 0
    assert found["recovery_seconds"] > 0
    assert "The drill succeeded" in page.read_text()
    values = metrics_of(prom)
    assert values["ts_drill_last_run_failed"] == 0
    assert values["ts_drill_last_success_timestamp_seconds"] == values["ts_drill_last_run_timestamp_seconds"]
    assert values["ts_drill_restored_records"] == len(shipped.records)
    assert [*data.iterdir()] == []


def test_lost_offsets_and_a_damaged_object_are_named(shipped: Shipped, run: Run, tmp_path: Path) -> None:
    """By partition and offset; the report is written, the exit code is 1, and the metrics have a failed run."""
    page, prom, store = tmp_path / "drill.html", tmp_path / "drill.prom", shipped.archive.store
    keys = shipped.archive.partition_keys(1)
    segments = read_catalog(store, keys).segments
    key = keys.segment(segments[-1].name)
    whole, info = get_small(store, key, 1 << 20)
    last = max(header.base_offset for header, _ in read_batches([whole], len(whole), pytest.fail))
    store.put(key, whole[:-1] + bytes([whole[-1] ^ 1]), metadata=info.metadata)
    other = shipped.archive.partition_keys(2)
    _, second, third, *_ = (each.name for each in read_catalog(store, other).segments)
    removed, its_info = get_small(store, other.segment(second), 1 << 20)
    store.delete([other.segment(second)])
    options = ("--kafka", kafka_directory("4"), "--config", shipped.config, "--output", page, "--metrics-file", prom)
    try:
        ended = run("drill", FIELDS, *options, "--whole")
    finally:
        store.put(key, whole, metadata=info.metadata)
        store.put(other.segment(second), removed, metadata=its_info.metadata)
    assert ended.code == 1, ended
    lost = f"offsets {second.base} to {third.base - 1} are lost: no object has them"
    assert f"{FIELDS}-2: offset {second.base}: {lost}" in ended.out
    for text in (ended.out, page.read_text()):
        assert f"{keys.prefix}{segments[-1].name.stem}.log" in text
        assert f"batch of base offset {last} " in text
    values = metrics_of(prom)
    assert (values["ts_drill_last_run_failed"], values["ts_drill_last_success_timestamp_seconds"]) == (1, 0)


@pytest.mark.full
def test_a_record_that_the_broker_lacks_is_named(
    shipped: Shipped, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore loses a batch; the exit code is 1, and the metrics have a failed run without a success."""
    prom, lost = tmp_path / "drill.prom", list[int]()

    def loses_a_batch(batches: Iterable[Batch], start: int, end: int, *, is_first: bool) -> Iterator[Batch]:
        for batch in clean(batches, start, end, is_first=is_first):
            if start and not lost:
                lost.append(batch[0].base_offset)
            else:
                yield batch

    monkeypatch.setattr("tsctl.restore.fetching.clean", loses_a_batch)
    options = ("--kafka", kafka_directory("4"), "--config", shipped.config, "--directory", tmp_path)
    ended = run("drill", FIELDS, *options, "--whole", "--metrics-file", prom)
    assert ended.code == 1, ended
    assert f"{FIELDS}-" in ended.out
    assert f"offset {lost[0]}: read_uncommitted: the archive has a record, the broker none" in ended.out
    assert f"offset {lost[0]}: read_committed: the archive has a record, the broker none" in ended.out
    values = metrics_of(prom)
    assert (values["ts_drill_last_run_failed"], values["ts_drill_last_success_timestamp_seconds"]) == (1, 0)
    assert values["ts_drill_findings"] >= 2


@pytest.mark.full
def test_a_drill_that_restores_no_record_fails(shipped: Shipped, run: Run) -> None:
    """It proves nothing: each partition is cut at its first record."""
    ends = [f"--end={topic}-{number}=0" for topic, number in shipped.next_offsets if topic == FIELDS]
    ended = run("drill", FIELDS, "--kafka", kafka_directory("4"), "--config", shipped.config, "--whole", *ends)
    assert ended.code == 1, ended
    assert f"no record was compared: {FIELDS}, whole has none" in ended.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_drill_that_is_ended_ends_its_broker(shipped: Shipped, tmp_path: Path, number: signal.Signals) -> None:
    """By itself, as without `setpriv`, and its data is removed; after SIGKILL by the kernel, and the data stays."""
    mark, data = uuid.uuid4().hex, tmp_path / "data"
    data.mkdir()
    command = [PROGRAM, "drill", FIELDS, "--kafka", kafka_directory("4"), "--config", shipped.config]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [*map(str, command), "--directory", str(data)],
            env={**os.environ, _MARK: mark, **({"PATH": str(tmp_path)} if number is signal.SIGTERM else {})},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(
            lambda: any(" kafka.Kafka " in each for each in _marked(mark)),
            "the broker to run",
            _SECONDS,
            state=(tmp_path / "out").read_text,
        )
        process.send_signal(number)
        assert process.wait(_SECONDS) == (130 if number is signal.SIGTERM else -number)
        if number is signal.SIGKILL:
            wait_for(lambda: not _marked(mark), "the broker to end", _SECONDS, state=lambda: _marked(mark))
        assert _marked(mark) == []
        assert bool([*data.iterdir()]) is (number is signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def test_a_broker_that_cannot_listen_is_shown_with_its_output(
    shipped: Shipped, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process opens the port that was free, and accepts connections; nothing is left."""
    taken: list[socket.socket] = []
    form = ThrowawayBroker.format

    def taking(broker: ThrowawayBroker) -> None:
        form(broker)
        taken.append(socket.create_server((LOOPBACK, int(broker.bootstrap.rpartition(":")[2]))))

    monkeypatch.setattr(ThrowawayBroker, "format", taking)
    options = ("--kafka", kafka_directory("4"), "--config", shipped.config, "--directory", tmp_path)
    try:
        ended = run("drill", FIELDS, *options)
    finally:
        for each in taken:
            each.close()
    assert ended.code == 2, ended
    assert "the broker of the drill" in ended.err
    assert "Address already in use" in ended.err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.full
def test_a_disk_that_is_too_small_is_named(shipped: Shipped, tmp_path: Path) -> None:
    """Before a broker is started: on a full disk it cannot even write why it ended."""
    mark, data = uuid.uuid4().hex, tmp_path / "data"
    data.mkdir()
    mounted = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"', data)
    options = ("--kafka", kafka_directory("4"), "--config", shipped.config, "--directory", data)
    ended = subprocess.run(
        [*map(str, mounted), PROGRAM, "drill", FIELDS, *map(str, options)],
        env={**os.environ, _MARK: mark},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert ended.returncode == 2, ended
    assert re.search(r"free, and \S+ MB are needed; free space, or name another --directory\n$", ended.stderr)
    assert _marked(mark) == []


def _marked(mark: str) -> list[str]:
    """Return the command lines of the running processes of a drill."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue  # it ended meanwhile, or belongs to another user
    return found
