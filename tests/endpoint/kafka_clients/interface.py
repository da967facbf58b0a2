"""The interface of a client in the matrix, and what clients return of a record."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dev.local.oracle import Isolation, OracleRecord

SECONDS = 600.0  # a guard against hangs
ByTopic = dict[str, list[OracleRecord]]
ReadOne = Callable[[str, str, Isolation], list[OracleRecord]]
ReadSeveral = Callable[[str, Sequence[str], Isolation], list[OracleRecord]]


class ClientFailedError(RuntimeError):
    """A client returned an error. The message has its output."""


def unchanged(record: OracleRecord) -> OracleRecord:
    """Return the record."""
    return record


@dataclass(frozen=True)
class Client:
    """A client that reads topics from their beginning to their end by one of its interfaces.

    Attributes:
        name: of the client and its way.
        read_several: returns the records of topics, from bootstrap servers, topics and isolation level.
        shown: what the client returns of a record, for a client that does not return each field.
        is_able: whether the client can read a topic of this name, from a broker too.
    """

    name: str
    read_several: ReadSeveral
    shown: Callable[[OracleRecord], OracleRecord] = unchanged
    is_able: Callable[[str], bool] = lambda _: True

    def read(self, bootstrap: str, topics: Sequence[str], isolation: Isolation) -> ByTopic:
        """Return the records of topics, by partition; those of a partition are in the order of reading."""
        found: ByTopic = defaultdict(list)
        for record in in_order(self.read_several(bootstrap, topics, isolation)):
            found[record.topic].append(record)
        return found

    def expected(self, records: Iterable[OracleRecord]) -> list[OracleRecord]:
        """Return the records that the client should return where Kafka's Java consumer returned these."""
        return [self.shown(record) for record in in_order(records)]


def each(read: ReadOne, at_once: int = 1) -> ReadSeveral:
    """Return a way to read several topics, each by a call of its own.

    Args:
        read: one topic.
        at_once: the number of calls at the same time.
    """

    def read_several(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> list[OracleRecord]:
        with ThreadPoolExecutor(at_once) as pool:
            found = pool.map(lambda topic: read(bootstrap, topic, isolation), topics)
            return [record for records in found for record in records]

    return read_several


def in_order(records: Iterable[OracleRecord]) -> list[OracleRecord]:
    """Return records by partition; those of a partition stay in the order of reading."""
    return sorted(records, key=lambda record: record.partition)
