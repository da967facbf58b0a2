"""The topics of an archive, by the names of directories: a list costs no request for a partition.

The list is read again when it is older than the refresh interval and a client requests it; meanwhile clients get the
former one. Which incarnation is the newest is read for a topic when a client first uses it. Topic ids are in the same
lists of incarnations: those of all topics are read when a client uses an id that is not known yet.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import inf
from time import monotonic
from typing import Final
from uuid import UUID

import structlog

from ts_common.archive.directories import TopicDirectories, list_topics, topics_of
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_endpoint.topics.lost import LASTING, Lost, code_of
from ts_endpoint.topics.topic_ids import INCARNATION_MARK, TopicIds
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.topics import read_listed_incarnations

_LEAST_SECONDS: Final = 1.0  # between two lists, however many unknown topics clients request
_IDS_AT_ONCE: Final = 16  # lists of incarnations

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """A store that has topics of the cluster."""

    store: ObjectStore
    keys: ClusterKeys


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """A topic as the list of directories shows it."""

    name: str
    location: Location
    directories: TopicDirectories

    @property
    def partitions(self) -> list[int]:
        """The numbers of its partitions, ascending."""
        return sorted(self.directories.partitions)


@dataclass(frozen=True, slots=True)
class UsedTopic:
    """One incarnation of a topic.

    Attributes:
        name: as clients call it: the topic's, or `topic~id`.
        topic_id: as clients get it.
        partitions: its partitions, by number.
    """

    name: str
    topic_id: UUID
    location: Location
    partitions: Mapping[int, PartitionKeys]


Locate = Callable[[str], Location | None]


class Catalog:
    """Lists topics; all methods run on the event loop, and requests on threads.

    Args:
        locations: that can have topics.
        locate: returns the location of a topic; None if the cluster's file places it nowhere.
        refresh_seconds: a list that is older is read again.
        with_incarnations: whether the former incarnations of a topic are topics `topic~id`.

    Attributes:
        ids: of topics that were read.
        lost: topics whose list of incarnations cannot be used, as of the last attempt.
    """

    def __init__(
        self, locations: Sequence[Location], locate: Locate, *, refresh_seconds: float, with_incarnations: bool = False
    ) -> None:
        self._locations = locations
        self._locate = locate
        self._refresh_seconds = refresh_seconds
        self._with_incarnations = with_incarnations
        self.ids = TopicIds(locations[0].keys.cluster, with_incarnations=with_incarnations)
        self._ids_read_at = -inf
        self._reading_ids: asyncio.Task[None] | None = None
        self._listed: dict[str, ListedTopic] = {}
        self._certain: set[str] = set()  # names that a listing of objects has confirmed
        self._used: dict[str, tuple[TopicDirectories, Incarnations]] = {}
        self.lost: dict[str, Lost] = {}
        # A Fetch of a thousand partitions uses their topic a thousand times.
        self._built: dict[str, tuple[ListedTopic, Incarnations, UsedTopic]] = {}
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def topics(self) -> Mapping[str, ListedTopic]:
        """Return all topics by name.

        Raises:
            TieredStorageError: the first list cannot be read; later failures are logged, and the former list counts.
        """
        if self._read_at is None:
            await asyncio.shield(self._refreshing())
        elif self._age() > self._refresh_seconds:
            self._refreshing()
        return self._listed

    async def use(self, name: str) -> UsedTopic | None:
        """Return a topic with the keys of its partitions; None if the archive does not have it.

        A topic that is not listed is looked for once more, because it may be new.

        Raises:
            Lost, StoreUnavailable, AccessDenied: from its list of incarnations.
        """
        topic, mark, topic_id = name.partition(INCARNATION_MARK)
        listed = (await self.topics()).get(topic)
        if listed is None and self._age() > _LEAST_SECONDS:
            await asyncio.shield(self._refreshing())
            listed = self._listed.get(topic)
        if listed is None or (mark and not self._with_incarnations):
            return None
        incarnations = await self._incarnations(listed)
        built = self._built.get(name)
        if built is not None and built[0] is listed and built[1] is incarnations:
            return built[2]
        directory = incarnations.newest_directory
        if mark:
            entry = incarnations.find(topic_id)
            if entry is None:
                return None
            directory = entry.directory
        keys = listed.location.keys
        partitions = {number: keys.partition(TopicPartition(topic, number), directory) for number in listed.partitions}
        used = UsedTopic(name, self.ids.of(name), listed.location, partitions)
        self._built[name] = listed, incarnations, used
        return used

    async def lacking(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that the archive does not have, by the list of topics alone.

        They are looked for once more, because another process can have a newer list. A name `topic~id` whose list of
        incarnations cannot be read counts as present.

        Raises:
            TieredStorageError: as `topics`.
        """
        await self.topics()
        missing = await self._not_listed(partitions)
        if missing and self._age() > _LEAST_SECONDS:
            await asyncio.shield(self._refreshing())
            missing = await self._not_listed(missing)
        return missing

    async def name_of(self, topic_id: UUID, is_permitted: Callable[[str], bool]) -> str | None:
        """Return the name of a topic; None if the archive has no topic of this id that the user may see.

        Args:
            is_permitted: as of `TopicIds.name_of`; a forbidden topic costs the same requests as a missing one.

        Raises:
            TieredStorageError: as `topics`.
        """
        name = self.ids.name_of(topic_id, is_permitted)
        if name is None and monotonic() - self._ids_read_at > _LEAST_SECONDS:
            await self.topics()
            if self._age() > _LEAST_SECONDS:
                await asyncio.shield(self._refreshing())
            await self.read_ids(_LEAST_SECONDS)
            name = self.ids.name_of(topic_id, is_permitted)
        return name

    async def read_ids(self, seconds: float) -> None:
        """Read the ids of all listed topics, and wait for them at most some seconds; the reading continues."""
        if self._reading_ids is None or self._reading_ids.done():
            self._reading_ids = asyncio.ensure_future(self._read_ids())
        await asyncio.wait({self._reading_ids}, timeout=seconds)

    async def former_incarnations(self) -> list[str]:
        """Return the names `topic~id` of incarnations that are not the newest; empty without the option.

        Topics with one incarnation need no request, because their directories show that. A lost topic has none.

        Raises:
            as `use`.
        """
        if not self._with_incarnations:
            return []
        several = [topic for topic in (await self.topics()).values() if topic.directories.later]
        return [name for names in await asyncio.gather(*map(self._former, several)) for name in names]

    async def _former(self, topic: ListedTopic) -> list[str]:
        try:
            found = await self._incarnations(topic)
        except Lost:
            return []
        former = [entry for entry in found.entries if entry.directory != found.newest_directory]
        return [f"{topic.name}{INCARNATION_MARK}{entry.topic_id}" for entry in former]

    async def _not_listed(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        missing = set[TopicPartition]()
        for name, some in groupby(partitions, key=lambda each: each.topic):
            topic, mark, topic_id = name.partition(INCARNATION_MARK)
            listed = self._listed.get(topic)
            if listed is not None and mark and not await self._has_incarnation(listed, topic_id):
                listed = None
            missing.update(
                each for each in some if listed is None or each.partition not in listed.directories.partitions
            )
        return frozenset(missing)

    async def _has_incarnation(self, topic: ListedTopic, topic_id: str) -> bool:
        if not self._with_incarnations:
            return False
        try:
            return (await self._incarnations(topic)).find(topic_id) is not None
        except TieredStorageError:
            return True

    async def _incarnations(self, topic: ListedTopic) -> Incarnations:
        known = self._used.get(topic.name)
        if known is not None and known[0] == topic.directories:
            return known[1]
        location = topic.location
        try:
            found, _ = await asyncio.to_thread(
                read_listed_incarnations, location.store, location.keys, topic.name, topic.directories
            )
        except LASTING as error:
            lost = Lost(code_of(error, "incarnations-damaged"), str(error), 0, 1)
            if topic.name not in self.lost:
                log.warning("topic_lost", topic=topic.name, code=lost.code, reason=str(lost))
            self.lost[topic.name] = lost
            raise lost from error
        if self.lost.pop(topic.name, None) is not None:
            log.info("topic_readable_again", topic=topic.name)
        self._used[topic.name] = topic.directories, found
        self.ids.learn(found)
        return found

    async def _read_ids(self) -> None:
        limit = asyncio.Semaphore(_IDS_AT_ONCE)

        async def read(topic: ListedTopic) -> None:
            async with limit:
                try:
                    await self._incarnations(topic)
                except Lost:
                    pass  # the log has it
                except TieredStorageError as error:  # a request that names the topic gets the error
                    log.warning("topic_id_not_read", topic=topic.name, reason=str(error))

        unread = [each for each in self._listed.values() if self._used.get(each.name, (None,))[0] != each.directories]
        await asyncio.gather(*map(read, unread))
        self._ids_read_at = monotonic()

    def _age(self) -> float:
        """Return the seconds since the list was read."""
        return inf if self._read_at is None else monotonic() - self._read_at

    def _refreshing(self) -> asyncio.Task[None]:
        """Return the reading of the list that is under way, or begin one."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._refresh())
        return self._reading

    async def _refresh(self) -> None:
        try:
            self._listed = await asyncio.to_thread(self._list)
            self._built.clear()
        except TieredStorageError as error:
            if self._read_at is None:
                raise
            log.warning("topics_not_listed", reason=str(error))
        self._read_at = monotonic()

    def _list(self) -> dict[str, ListedTopic]:
        topics: dict[str, ListedTopic] = {}
        for location in self._locations:
            found = list_topics(location.store, location.keys)
            uncertain = [name for name, each in found.items() if not each.is_certain and name not in self._certain]
            confirmed = in_threads(partial(_confirmed, location, found), uncertain)
            self._certain.update(*confirmed)
            for name in {*found}.difference(uncertain).union(*confirmed):
                if self._locate(name) is location:
                    topics[name] = ListedTopic(name, location, found.get(name, TopicDirectories()))
        return topics


def _confirmed(location: Location, found: Mapping[str, TopicDirectories], name: str) -> frozenset[str]:
    return topics_of(location.store, location.keys, name, found[name].partitions)
