"""A topic's incarnations: the topic ids that used one topic name, one after the other.

A topic that is deleted and created again under its name begins at offset 0 with a new topic id (KIP-516). The first
incarnation has the plain directory, and each later one a directory of its own. Readers use the newest, so records of
two incarnations are never mixed. The list is one JSON object per topic. It is written conditionally and only grows.
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import INCARNATIONS_BYTES
from ts_common.archive.stored_object import Presence, StoredObject
from ts_common.store.contract import ObjectStore

_LATER = re.compile(r"~[A-Za-z0-9_-]+")  # `ClusterKeys.later_incarnation` with Kafka's topic ids


@dataclass(frozen=True, slots=True)
class Incarnation(StoredObject):
    """One topic id of an incarnation.

    Attributes:
        topic_id: Kafka's, as the broker prints it (22 characters of base64).
        first_seen: milliseconds since the epoch.
        directory: the keys' part before `-<partition>`; two ids with the same directory belong to one incarnation.
        made: milliseconds since the epoch: modification time of the `partition.metadata` that the first agent found;
            None if unknown.
    """

    topic_id: str
    first_seen: int
    directory: str
    made: Annotated[int | None, Presence.IF_SET] = None


@dataclass(frozen=True, slots=True)
class Incarnations(StoredObject, expected="a list of incarnations", most=INCARNATIONS_BYTES, version=None):
    """All incarnations of a topic, oldest first; empty if no topic id was ever seen: `incarnations.json`."""

    topic: Annotated[str, Presence.GIVEN]
    entries: Annotated[tuple[Incarnation, ...], "incarnations"] = ()

    @property
    def newest_id(self) -> str | None:
        """The first topic id of the newest incarnation; None without one. A later id can have replaced it."""
        return next((entry.topic_id for entry in self.entries if entry.directory == self.newest_directory), None)

    @property
    def newest_directory(self) -> str:
        """The directory of the newest incarnation, which readers use."""
        return self.entries[-1].directory if self.entries else self.topic

    def find(self, topic_id: str) -> Incarnation | None:
        """Return the entry of a topic id; None if it has none."""
        return next((entry for entry in self.entries if entry.topic_id == topic_id), None)

    def opened(self, topic_id: str, first_seen: int, keys: ClusterKeys, made: int | None = None) -> "Incarnations":
        """Return the list with one more incarnation at its end."""
        directory = keys.later_incarnation(self.topic, topic_id) if self.entries else self.topic
        return Incarnations(self.topic, (*self.entries, Incarnation(topic_id, first_seen, directory, made)))

    def adopted(self, topic_id: str, first_seen: int) -> "Incarnations":
        """Return the list with one more topic id of the newest incarnation: its id was replaced, and the topic exists.

        Raises:
            ValueError: the list is empty.
        """
        if not self.entries:
            raise ValueError(f"{self.topic} has no incarnation yet")
        last = self.entries[-1]
        return Incarnations(self.topic, (*self.entries, Incarnation(topic_id, first_seen, last.directory, last.made)))

    def are_of_one_life(self, topic_id: str, other: str) -> bool:
        """Return whether two topic ids belong to the same incarnation."""
        one, two = self.find(topic_id), self.find(other)
        return one is not None and two is not None and one.directory == two.directory

    def check(self) -> None:
        """Check the directories: one that is not of the topic would lead to another topic's objects."""
        for entry in self.entries:
            if not is_directory_of(self.topic, entry.directory):
                raise ValueError(f"{entry.directory!r} is not a directory of {self.topic}")

    def encode(self) -> bytes:
        """Return the content of the object: lines for people."""
        return (json.dumps(self.fields(), indent=1) + "\n").encode()


def read_incarnations(store: ObjectStore, keys: ClusterKeys, topic: str) -> tuple[Incarnations, str | None]:
    """Return a topic's incarnations and the ETag of their object; no entries and None if it does not exist.

    Raises:
        CorruptData: the object is not such a list.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Incarnations.read_with_etag(store, keys.incarnations(topic), topic=topic) or (Incarnations(topic), None)


def is_directory_of(topic: str, directory: str) -> bool:
    """Return whether a directory can be that of an incarnation of a topic."""
    later = directory.startswith(topic) and _LATER.fullmatch(directory, len(topic)) is not None
    return directory == topic or later
