"""A drill restores the live tail of a real broker's topics, and compares it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dev.local.jars import Line
from dev.local.kafka.distribution import kafka_directory
from dev.local.oracle import dump
from tests.made_archive import MadeArchive
from tests.made_tail import MadeTail, entry
from tests.tsctl.conftest import FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import Run
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit, Live
from ts_common.archive.epoch_history import EpochHistory
from ts_common.log_format.framing import BatchHeader, parse_header


@pytest.fixture
def tailed(shipped: Shipped) -> Iterator[dict[tuple[str, int], int]]:
    """Each partition has what its active segment has in packs, two entries each; yield the ends."""
    keys = shipped.archive.keys
    made = MadeArchive(shipped.archive.store.location, keys.entropy_bits, keys.cluster)
    tail, former, ends = MadeTail(made, "9"), dict[str, bytes](), dict[tuple[str, int], int]()
    for (topic, number), start in shipped.next_offsets.items():
        partition = made.partition(topic, number)
        former[partition.commit] = made.store.get(partition.commit)[0]
        commit, _ = read_commit(made.store, partition)
        assert isinstance(commit, Commit)
        epoch, _ = commit.epochs.pairs[-1]
        live = Live("9", (), EpochHistory(((epoch, start),)))
        made.store.put(partition.commit, replace(commit, live=live).encode())
        log = shipped.cluster.brokers[1].partition_directory(topic, number) / f"{start:020d}.log"
        ends[topic, number] = start
        for body in filter(None, _halves(log.read_bytes())):  # no transaction is open at the end
            found = entry(made, topic, ends[topic, number], body, partition=number, epoch=commit.epoch, aborted=None)
            tail.put(found)
            ends[topic, number] = found[0].end
    yield ends
    for key, content in former.items():
        made.store.put(key, content)
    made.store.delete([info.key for info in made.store.list(keys.tail("9"))])


def _halves(log: bytes) -> tuple[bytes, bytes]:
    """Return the batches of an active segment in two parts."""
    ends, position = list[int](), 0
    while isinstance(header := parse_header(log, position, len(log) - position), BatchHeader):
        position += header.size_in_bytes
        ends.append(position)
    middle = ends[len(ends) // 2 - 1] if len(ends) > 1 else 0
    return log[:middle], log[middle : ends[-1]]


@pytest.mark.full
@pytest.mark.parametrize("line", ["4", "3.9"])
def test_a_drill_brings_the_live_tail_back(
    shipped: Shipped, tailed: dict[tuple[str, int], int], run: Run, tmp_path: Path, line: Line
) -> None:
    """Every record that the broker has, though its segment has not closed, in both isolation levels."""
    options = ("--kafka", kafka_directory(line), "--config", shipped.config, "--whole", "--directory", tmp_path)
    ended = run("drill", FIELDS, TRANSACTIONS, *options, "--json")
    assert ended.code == 0, ended
    found = ended.document
    assert (found["succeeded"], found["findings"]) == (True, [])
    kafka = dump(shipped.cluster.bootstrap, [FIELDS, TRANSACTIONS])
    assert found["records"] == len(kafka) > len(shipped.records)
    ends = {(each["partition"], each["isolation_level"]): each["end"] for each in found["compared"]}
    assert {name: end for (name, level), end in ends.items() if level == "read_uncommitted"} == {
        f"{topic}-{number}": end for (topic, number), end in tailed.items()
    }
