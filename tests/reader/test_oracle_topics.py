"""Every kind of topic that Kafka can write, through the reader and each engine.

No field of any record may differ from what Kafka's Java consumer returns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest

from dev.local.oracle import Isolation
from tests.archive import record_of
from tests.matrix import cases
from tests.oracle_topics.kinds import KINDS, QUICK
from tests.oracle_topics.shipped import CLUSTER, ENTROPY_BITS, ISOLATIONS, ByTopic, Shipped
from tests.reader.engines import ENGINES, Rows
from ts_reader import Archive, Scan
from ts_reader.execution import run

WORKERS: Final = "pyarrow, worker processes"
READERS: Final[dict[str, Callable[[Scan], Rows]]] = {**ENGINES, WORKERS: ENGINES["pyarrow"]}


@dataclass(frozen=True)
class Read:
    """An archive, and what each engine returned of it: each reads all topics once."""

    shipped: Shipped
    known: dict[tuple[str, Isolation], ByTopic] = field(default_factory=dict)

    def by(self, reader: str, isolation: Isolation) -> ByTopic:
        """Return the records that an engine reads, by topic."""
        if (reader, isolation) not in self.known:
            archive = Archive(
                self.shipped.location,
                CLUSTER,
                prefix_entropy_bits=ENTROPY_BITS,
                workers=2 if reader == WORKERS else 1,
            )
            scan = archive.scan(list(self.shipped.ends), include_headers=True, isolation_level=isolation)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(run, "PROCESSES_FROM_BYTES", 0)
                rows = READERS[reader](scan)
            self.known[reader, isolation] = self.shipped.by_topic(map(record_of, rows))
        return self.known[reader, isolation]


@pytest.fixture(scope="module")
def read(oracle_topics: Shipped) -> Read:
    """Return what engines read of the archive that other tests have too."""
    return Read(oracle_topics)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("topic", cases(KINDS, quick=QUICK))
def test_no_field_of_any_topic_differs_from_the_java_consumers(
    read: Read, topic: str, reader: str, isolation: Isolation
) -> None:
    """The topic is of its kind, and every field of all its records is equal, in order, and once."""
    read.shipped.check(topic, isolation, read.by(reader, isolation)[topic])


def test_the_archive_lists_what_was_shipped(read: Read) -> None:
    """Each topic, those of the broker itself too, and the next offset of its partition."""
    archive = Archive(read.shipped.location, CLUSTER)
    topics = archive.topics()
    assert [topic for topic in topics if not topic.startswith("__")] == sorted(read.shipped.ends)
    for topic, end in read.shipped.ends.items():
        (info,) = archive.partitions(topic)
        assert (info.partition, info.end) == (0, end)
        assert info.topic_id is not None
