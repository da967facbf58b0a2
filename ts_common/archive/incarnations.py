"""A topic's incarnations: one topic id's life of a topic name after the other.

A topic that is deleted and created again under its name begins at offset 0 with a new topic id (KIP-516). The first id
seen lives in the plain directory, each later one beside it, and readers take the newest: nothing of one life is ever
served as the other. The list is one JSON object per topic, written conditionally, and only ever grows.
"""

import json
import re
from dataclasses import dataclass

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import INCARNATIONS_BYTES, get_small
from ts_common.errors import ObjectNotFound
from ts_common.json_objects import decoding, optional_number, parse_fields, rows, text, whole_number
from ts_common.store.contract import ObjectStore

_LATER = re.compile(r"~[A-Za-z0-9_-]+")  # `ClusterKeys.later_incarnation` with Kafka's topic ids


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One topic id of one life of a topic's name.

    Attributes:
        topic_id: Kafka's, as the broker prints it (22 characters of base64).
        first_seen: milliseconds since the epoch.
        directory: what stands before `-<partition>` in the keys; two ids of one directory are ids of the same life.
        made: milliseconds since the epoch, when the `partition.metadata` was written that the first agent to see it
            found; None where that is not known.
    """

    topic_id: str
    first_seen: int
    directory: str
    made: int | None = None


@dataclass(frozen=True, slots=True)
class Incarnations:
    """All incarnations of a topic, oldest first; empty where no topic id was ever seen."""

    topic: str
    entries: tuple[Incarnation, ...] = ()

    @property
    def newest_id(self) -> str | None:
        """The topic id by which readers know the newest incarnation: its first. Another may have replaced it since."""
        return next((entry.topic_id for entry in self.entries if entry.directory == self.newest_directory), None)

    @property
    def newest_directory(self) -> str:
        """The directory that readers take."""
        return self.entries[-1].directory if self.entries else self.topic

    def find(self, topic_id: str) -> Incarnation | None:
        """The incarnation of a topic id."""
        return next((entry for entry in self.entries if entry.topic_id == topic_id), None)

    def opened(self, topic_id: str, first_seen: int, keys: ClusterKeys, made: int | None = None) -> "Incarnations":
        """The list with one more incarnation at its end."""
        directory = keys.later_incarnation(self.topic, topic_id) if self.entries else self.topic
        return Incarnations(self.topic, (*self.entries, Incarnation(topic_id, first_seen, directory, made)))

    def adopted(self, topic_id: str, first_seen: int) -> "Incarnations":
        """The list with one more topic id of the newest incarnation: the id was replaced, and the topic lives on.

        Raises:
            ValueError: there is no incarnation.
        """
        if not self.entries:
            raise ValueError(f"{self.topic} has no incarnation yet")
        last = self.entries[-1]
        return Incarnations(self.topic, (*self.entries, Incarnation(topic_id, first_seen, last.directory, last.made)))

    def are_of_one_life(self, topic_id: str, other: str) -> bool:
        """Whether two topic ids name the same incarnation."""
        one, two = self.find(topic_id), self.find(other)
        return one is not None and two is not None and one.directory == two.directory

    def encode(self) -> bytes:
        """The text of `incarnations.json`."""
        rows = [
            {
                "topicId": entry.topic_id,
                "firstSeen": entry.first_seen,
                "directory": entry.directory,
                **({} if entry.made is None else {"made": entry.made}),
            }
            for entry in self.entries
        ]
        return (json.dumps({"incarnations": rows}, indent=1) + "\n").encode()


def decode_incarnations(data: bytes, topic: str, key: str) -> Incarnations:
    """Read the text of `incarnations.json`.

    A directory that is neither the topic's nor one of its later lives' would lead to other objects than the topic's.

    Raises:
        CorruptData: it is not that text.
        NewerFormat: it is a later release's.
    """
    fields = parse_fields(data, key, "a list of incarnations", INCARNATIONS_BYTES)
    with decoding(key, "a list of incarnations", data):
        entries = tuple([_entry(row, topic) for row in rows(fields["incarnations"])])
    return Incarnations(topic, entries)


def read_incarnations(store: ObjectStore, keys: ClusterKeys, topic: str) -> tuple[Incarnations, str | None]:
    """Return a topic's incarnations and the ETag of their object; no entries and None if it does not exist.

    Raises:
        CorruptData: the object is not such a list.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = keys.incarnations(topic)
    try:
        data, info = get_small(store, key, INCARNATIONS_BYTES)
    except ObjectNotFound:
        return Incarnations(topic), None
    return decode_incarnations(data, topic, key), info.etag


def _entry(row: dict[str, object], topic: str) -> Incarnation:
    topic_id, directory = text(row["topicId"]), text(row["directory"])
    if not _is_of(topic, directory):
        raise ValueError(f"{directory!r} is no directory of {topic}")
    return Incarnation(topic_id, whole_number(row["firstSeen"]), directory, optional_number(row.get("made")))


def _is_of(topic: str, directory: str) -> bool:
    later = directory.startswith(topic) and _LATER.fullmatch(directory, len(topic)) is not None
    return directory == topic or later
