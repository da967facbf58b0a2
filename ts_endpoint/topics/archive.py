"""The archive as the handlers of requests use it: topics, and one `Partition` for each that a client has used."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.object_keys import PartitionKeys
from ts_common.model import TopicPartition
from ts_endpoint.topics.catalog import Catalog, ListedTopic, Location, UsedTopic
from ts_endpoint.topics.partitions import Partition, Snapshot

_MOST_PARTITIONS: Final = 20_000  # in memory; the least recently used are evicted first


class ServedArchive:
    """Topics and partitions by name; on the event loop.

    Args:
        refresh_seconds: as of `Partition`.
    """

    def __init__(self, catalog: Catalog, refresh_seconds: float) -> None:
        self._catalog = catalog
        self._refresh_seconds = refresh_seconds
        self._partitions: OrderedDict[str, Partition] = OrderedDict()  # by location and prefix
        self._named: WeakValueDictionary[tuple[str, int], Partition] = WeakValueDictionary()  # those of them, as used

    @property
    def used(self) -> int:
        """The number of partitions that are kept in memory."""
        return len(self._partitions)

    def count_lost(self) -> int:
        """Return how many of the topics and partitions that clients used cannot be opened."""
        return len(self._catalog.lost) + sum(each.is_lost for each in self._partitions.values())

    async def topics(self) -> Mapping[str, ListedTopic]:
        """Return all topics; raise as `Catalog.topics`."""
        return await self._catalog.topics()

    async def topic(self, name: str) -> UsedTopic | None:
        """Return a topic; raise as `Catalog.use`."""
        return await self._catalog.use(name)

    async def lacking(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that the archive does not have; raise as `Catalog.lacking`."""
        return await self._catalog.lacking(partitions)

    async def name_of(self, topic_id: UUID, is_permitted: Callable[[str], bool]) -> str | None:
        """Return the name of a topic; raise as `Catalog.name_of`."""
        return await self._catalog.name_of(topic_id, is_permitted)

    def hidden_name_of(self, topic_id: UUID) -> str | None:
        """Return the name of an id as `Catalog.hidden_name_of`."""
        return self._catalog.hidden_name_of(topic_id)

    def known_id(self, name: str) -> UUID:
        """Return the id of a topic as `Catalog.known_id`."""
        return self._catalog.known_id(name)

    async def read_ids(self, seconds: float) -> None:
        """Read the ids of topics as `Catalog.read_ids`."""
        await self._catalog.read_ids(seconds)

    async def former_incarnations(self) -> list[str]:
        """Return names of former incarnations; raise as `Catalog.use`."""
        return await self._catalog.former_incarnations()

    async def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition; None if the archive does not have it. Raise as `Catalog.use`."""
        found = await self._catalog.use(topic)
        keys = None if found is None else found.partitions.get(number)
        return None if found is None or keys is None else self.of(found, number)

    def of(self, topic: UsedTopic, number: int) -> Partition:
        """Return a partition of a topic."""
        found = self._named[topic.name, number] = self._kept(topic.location, topic.partitions[number])
        return found

    def known(self, topic: str, number: int) -> Snapshot | None:
        """Return the last snapshot of a partition that clients use, without a request; None if it is not in memory."""
        partition = self._named.get((topic, number))
        return None if partition is None else partition.known

    def known_epoch(self, topic: str, number: int) -> int:
        """Return the leader epoch of a partition that clients use, without a request; -1 if it is not in memory."""
        partition = self._named.get((topic, number))
        return NO_EPOCH if partition is None else partition.known_epoch

    def _kept(self, location: Location, keys: PartitionKeys) -> Partition:
        name = f"{location.store.location} {keys.prefix}"
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = Partition(location.store, keys, self._refresh_seconds)
            if len(self._partitions) > _MOST_PARTITIONS:
                self._partitions.popitem(last=False)
        else:
            self._partitions.move_to_end(name)
        return partition
