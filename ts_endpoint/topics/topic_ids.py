"""Topic ids: Kafka prints 16 bytes as base64 without padding, and sends them as a UUID.

Clients of Fetch 13 and later name topics by their ids alone. So each name has an id: that of its incarnation, or one
that is derived from cluster and name, if the archive has none. A derived id is the same in every process.
"""

from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Callable
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from ts_common.archive.incarnations import Incarnations

NO_TOPIC_ID: Final = UUID(int=0)
INCARNATION_MARK: Final = "~"  # no topic's name contains it


class TopicIds:
    """The topic ids that this process has read.

    Args:
        cluster: id of the cluster.
        with_incarnations: whether incarnations are topics `topic~id` too.
    """

    def __init__(self, cluster: str, *, with_incarnations: bool) -> None:
        self._cluster = cluster
        self._with_incarnations = with_incarnations
        self._names: dict[UUID, str] = {}
        self._learned: dict[str, dict[str, UUID]] = {}  # of each topic: the ids of its names

    def learn(self, found: Incarnations) -> None:
        """Replace the ids of a topic.

        The newest incarnation is served by its topic's name. Its name `topic~id` has a derived id, because a client
        could use both names.
        """
        ids = {found.topic: self._id(found.topic, found.newest_id)}
        for entry in found.entries if self._with_incarnations else ():
            name = f"{found.topic}{INCARNATION_MARK}{entry.topic_id}"
            ids[name] = self._id(name, None if entry.directory == found.newest_directory else entry.topic_id)
        for former in self._learned.get(found.topic, {}).values():
            self._names.pop(former, None)
        self._learned[found.topic] = ids
        self._names |= {topic_id: name for name, topic_id in ids.items()}

    def of(self, name: str) -> UUID:
        """Return the id of a name; the zero UUID if it was not read yet, as Kafka sends it."""
        return self._learned.get(name.partition(INCARNATION_MARK)[0], {}).get(name, NO_TOPIC_ID)

    def name_of(self, topic_id: UUID, is_permitted: Callable[[str], bool]) -> str | None:
        """Return the name of an id; None if no such id was read.

        Each client can derive the id of a guessed name. So a derived id of a forbidden topic is as unknown as that of
        a topic that does not exist.

        Args:
            is_permitted: whether the user may read a topic.
        """
        name = self._names.get(topic_id)
        is_hidden = name is not None and topic_id == self._derived(name) and not is_permitted(name)
        return None if is_hidden else name

    def hidden_name_of(self, topic_id: UUID) -> str | None:
        """Return the name of an id as `name_of` does for a user who may read it: for the audit, never for a reply."""
        return self._names.get(topic_id)

    def _id(self, name: str, topic_id: str | None) -> UUID:
        try:
            return UUID(bytes=urlsafe_b64decode(f"{topic_id}==")) if topic_id is not None else self._derived(name)
        except (Error, ValueError):
            return self._derived(name)

    def _derived(self, name: str) -> UUID:
        return uuid5(NAMESPACE_URL, f"ts-endpoint:{self._cluster}/{name}")
