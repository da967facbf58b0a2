"""Topics of a broker in an archive, and the records that Kafka's Java consumer returns of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from dev.local.agent import AgentProcess, write_config
from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import Isolation, OracleRecord, dump
from tests.common.log_format.old_brokers import OLD_PROTOCOL, closed, headers
from tests.oracle_topics.kinds import CUT, KINDS, Kind
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.framing import BatchHeader
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

CLUSTER: Final = "kinds"
ENTROPY_BITS: Final = 3
ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")

ByTopic = dict[str, list[OracleRecord]]


@dataclass(frozen=True)
class Shipped:
    """Topics that an agent shipped; broker and agent have stopped.

    Attributes:
        location: of the store.
        batches: of each topic's closed segments.
        ends: each topic's next offset.
        expected: records of Kafka's Java consumer below it, by isolation and topic.
    """

    location: str
    batches: dict[str, list[BatchHeader]]
    ends: dict[str, int]
    expected: dict[Isolation, ByTopic]

    def by_topic(self, records: Iterable[OracleRecord]) -> ByTopic:
        """Return the records of a reader by topic, in their order."""
        return _by_topic(records, self.ends)

    def check(self, topic: str, isolation: Isolation, shown: list[OracleRecord]) -> None:
        """Fail unless a topic is of its kind, and a reader's records equal the Java consumer's, in order, each once."""
        found = self.batches[topic]
        assert KINDS[topic].proof(found), found[:10]
        # An archive begins with the broker's oldest segment; DeleteRecords moves the broker's start inside it.
        start = CUT if topic == "cut-below" else 0
        assert [record for record in shown if record.offset >= start] == self.expected[isolation][topic]
        every, committed = (self.expected[level][topic] for level in ISOLATIONS)
        assert every
        # The cleaner removes aborted records.
        assert (len(committed) < len(every)) == topic.startswith("transactions")


def selected_topics(request: pytest.FixtureRequest) -> dict[str, Kind]:
    """Return the kinds of the tests that run and use a fixture, by their parameter `topic`."""
    tests = (item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec"))
    selected = {test.callspec.params.get("topic") for test in tests if request.fixturename in test.fixturenames}
    return {name: kind for name, kind in KINDS.items() if name in selected}


def ship(kinds: Mapping[str, Kind], directory: Path) -> Shipped:
    """Fill and clean topics, ship them, and stop broker and agent.

    Args:
        kinds: of the topics, by name.
        directory: for the store and the agent.
    """
    location = (directory / "store").as_uri()
    (directory / "store").mkdir()
    with LocalCluster(properties={**OLD_PROTOCOL, "message.max.bytes": "2000000"}, name="kinds") as cluster:
        for name, kind in kinds.items():
            cluster.create_topic(name, config=kind.config)
        for number in range(2):
            for name, kind in kinds.items():
                if number < kind.rounds:
                    kind.fill(cluster, name, number)
            _wait_for_the_cleaner(cluster, kinds)
        ends = _ship(cluster, kinds, directory, location)
        batches = {name: headers(closed(cluster, name, 0)[0]) for name in kinds}
        expected = {
            isolation: _by_topic(dump(cluster.bootstrap, list(kinds), isolation), ends) for isolation in ISOLATIONS
        }
    return Shipped(location, batches, ends, expected)


def _ends(cluster: LocalCluster, topics: Iterable[str]) -> dict[str, int]:
    """Return the base offset of each topic's active segment, once no producer writes any more."""
    return {
        name: max(int(path.stem) for path in cluster.brokers[1].partition_directory(name, 0).glob("*.log"))
        for name in topics
    }


def _wait_for_the_cleaner(cluster: LocalCluster, kinds: Mapping[str, Kind]) -> None:
    """Wait until the cleaner has reached the active segment of each topic that it cleans."""
    checkpoint = cluster.brokers[1].log_dirs[0] / "cleaner-offset-checkpoint"
    wanted = {name: f"{name} 0 {end}" for name, end in _ends(cluster, kinds).items() if kinds[name].is_cleaned}

    def left() -> list[str]:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return [name for name, line in wanted.items() if line not in lines]

    wait_for(lambda: not left(), "the cleaner to reach the active segments", 120, state=left)


def _ship(cluster: LocalCluster, topics: Iterable[str], directory: Path, location: str) -> dict[str, int]:
    """Ship all closed segments with an agent; return each topic's next offset."""
    config = {"storage.service.endpoint.url": location, "ts.segment.uploader.s3.prefix.entropy.bits": f"{ENTROPY_BITS}"}
    write_config(directory / "conf", CLUSTER, config)
    broker = cluster.brokers[1]
    agent = AgentProcess(directory, cluster.logs, directory / "conf", broker.server_properties, CLUSTER, is_forked=True)
    keys, ends = ClusterKeys(CLUSTER, ENTROPY_BITS), _ends(cluster, topics)
    with open_store(location) as store:

        def next_offset(name: str) -> int | None:
            commit, _ = read_commit(store, keys.partition(TopicPartition(name, 0)))
            return commit.next_offset if isinstance(commit, Commit) else None

        def left() -> list[str]:
            return [name for name, end in ends.items() if next_offset(name) != end]

        agent.start()
        try:
            wait_for(lambda: not left(), "the agent to ship all that is closed", 120, state=left)
        finally:
            agent.stop()
    return ends


def _by_topic(records: Iterable[OracleRecord], ends: Mapping[str, int]) -> ByTopic:
    """Return the records below the next offsets by topic, in their order."""
    found: dict[str, list[OracleRecord]] = defaultdict(list)
    for record in records:
        if record.offset < ends[record.topic]:
            found[record.topic].append(record)
    return found
