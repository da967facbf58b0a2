"""The archive as the handlers of requests use it: topics, and one `Partition` for each that a client has used."""

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.archive.object_keys import PartitionKeys
from ts_endpoint.topics.catalog import Catalog, Location, UsedTopic
from ts_endpoint.topics.erasures import Erasures
from ts_endpoint.topics.partitions import Partition
from ts_endpoint.topics.snapshots import Snapshot
from ts_endpoint.topics.tails import Tails

_MOST_PARTITIONS: Final = 20_000  # in memory; the least recently used are evicted first


class ServedArchive:
    """Topics and partitions by name; on the event loop.

    Args:
        refresh_seconds: as of `Partition`.
        tail: whether live tails are served.
    """

    def __init__(self, catalog: Catalog, refresh_seconds: float, *, tail: bool = True) -> None:
        self.catalog = catalog
        self._refresh_seconds = refresh_seconds
        self._partitions: OrderedDict[str, Partition] = OrderedDict()  # by location and prefix
        self._serves_tails = tail
        self._tails: dict[Location, Tails] = {}
        self._erasures: dict[Location, Erasures] = {}
        self._named: WeakValueDictionary[tuple[str, int], Partition] = WeakValueDictionary()  # those of them, as used

    @property
    def used(self) -> int:
        """The number of partitions that are kept in memory."""
        return len(self._partitions)

    def count_lost(self) -> int:
        """Return how many of the topics and partitions that clients used cannot be opened."""
        return len(self.catalog.lost) + sum(each.is_lost for each in self._partitions.values())

    async def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition; None if the archive does not have it. Raise as `Catalog.use`."""
        found = await self.catalog.use(topic)
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

    def close(self) -> None:
        """Follow no live tail any more."""
        for each in self._tails.values():
            each.close()

    def _kept(self, location: Location, keys: PartitionKeys) -> Partition:
        name = f"{location.store.location} {keys.prefix}"
        partition = self._partitions.get(name)
        if partition is None:
            if self._serves_tails and location not in self._tails:
                self._tails[location] = Tails(location.store, location.keys)
            if location not in self._erasures:
                self._erasures[location] = Erasures(location.store, location.keys)
            erasures, tails = self._erasures[location], self._tails.get(location)
            partition = Partition(location.store, keys, self._refresh_seconds, erasures, tails)
            self._partitions[name] = partition
            if len(self._partitions) > _MOST_PARTITIONS:
                self._partitions.popitem(last=False)
        else:
            self._partitions.move_to_end(name)
        return partition
