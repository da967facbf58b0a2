"""Reads the progress of shipping from the store, and the active segments from the broker's disk."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dev.demo.journal import Journal
from dev.demo.screen import Bars
from dev.local.kafka.broker import Broker
from dev.local.process import Server, ServerDiedError
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import LOG_SUFFIX, ClusterKeys, SegmentName
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader import Archive as Reader

_LOOK_EVERY = 0.5  # seconds
_TIMEOUT_SECONDS = 60.0  # without progress


@dataclass(frozen=True)
class Shipped:
    """One partition in the store: its next offset and its `.log` objects."""

    next_offset: int = 0
    segments: int = 0
    size: int = 0


class Archive:
    """The topic's partitions in the store."""

    def __init__(self, store: ObjectStore, keys: ClusterKeys, topic: str, partitions: int) -> None:
        self.topic = topic
        self._store = store
        self._keys = {number: keys.partition(TopicPartition(topic, number)) for number in range(partitions)}

    def look(self) -> dict[int, Shipped]:
        """Return what the store contains now, by partition."""
        return {number: self._look(number) for number in self._keys}

    def _look(self, number: int) -> Shipped:
        catalog = read_catalog(self._store, self._keys[number])
        end = catalog.commit.next_offset if isinstance(catalog.commit, Commit) else 0
        return Shipped(end, len(catalog.segments), sum(segment.size for segment in catalog.segments))


class Watch:
    """Shows the progress of producing and shipping as bars, and checks that all servers run.

    Args:
        bars: of the screen.
        servers: the servers that must run.
        journal: the acknowledged records.
        goal: the final number of records.
    """

    def __init__(self, bars: Bars, servers: Sequence[Server], journal: Journal, archive: Archive, goal: int) -> None:
        self._bars = bars
        self._servers = servers
        self._journal = journal
        self._archive = archive
        self._goal = goal
        self._looked = 0.0

    def sometimes(self) -> None:
        """Read and show the progress, unless that was done a moment ago."""
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self.show(self._archive.look())
            self._looked = time.monotonic()

    def show(self, shipped: dict[int, Shipped]) -> None:
        """Show this progress.

        Raises:
            ServerDiedError: a server has ended.
        """
        for server in self._servers:
            if not server.alive:
                raise ServerDiedError(f"{server.name} ended by itself.\n{server.tail()}")
        self._bars.show("produced", self._journal.total, self._goal)
        for number, there in shipped.items():
            note = f"{there.segments} segments, {size_of(there.size)}"
            self._bars.show(
                f"shipped {self._archive.topic}-{number}", there.next_offset, self._journal.ends.get(number, 0), note
            )
        self._bars.flush()


def size_of(size: float) -> str:
    """Return a size for people, such as "12.3 MB"."""
    return f"{size / 1e6:,.1f} MB"


def active_bases(broker: Broker, topic: str, partitions: int) -> dict[int, int]:
    """Return the base offset of each partition's active segment."""
    found = {}
    for number in range(partitions):
        names = broker.partition_directory(topic, number).glob(f"*{LOG_SUFFIX}")
        bases = [parsed[0].base for name in names if (parsed := SegmentName.parse(name.name)) is not None]
        found[number] = max(bases)
    return found


def wait_for_shipping(
    archive: Archive, wanted: dict[int, int], moment: Callable[[dict[int, Shipped]], None]
) -> dict[int, Shipped]:
    """Wait until every next offset is reached, or until a minute passes without progress.

    Args:
        wanted: next offsets, by partition.
        moment: called with each progress; an exception from it ends the wait.

    Returns:
        the last progress.
    """
    seen, moved = archive.look(), time.monotonic()
    while True:
        moment(seen)
        reached = all(seen[number].next_offset >= offset for number, offset in wanted.items())
        if reached or time.monotonic() - moved > _TIMEOUT_SECONDS:
            return seen
        time.sleep(0.25)
        now = archive.look()
        if now != seen:
            seen, moved = now, time.monotonic()


def wait_for_tail(reader: Reader, topic: str, acknowledged: Mapping[int, int]) -> dict[int, int]:
    """Wait until readers return each acknowledged record, or until a minute has passed.

    Args:
        acknowledged: by partition, the offset after the last acknowledged record.

    Returns:
        by partition, the offset after the last one that readers return: the live tail counts.
    """
    began = time.monotonic()
    while True:
        ends = {found.partition: found.end for found in reader.partitions(topic)}
        reached = all(ends.get(number, 0) >= end for number, end in acknowledged.items())
        if reached or time.monotonic() - began > _TIMEOUT_SECONDS:
            return ends
        time.sleep(0.25)
