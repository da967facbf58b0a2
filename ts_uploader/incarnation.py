"""Which incarnation of a topic a reign works in, and so which directory of the store (protocol rule 1)."""

import time

import structlog

from ts_common.catalog import read_incarnations
from ts_common.errors import OutcomeUnknown, PreconditionFailed, SegmentChanged
from ts_common.object_keys import ClusterKeys
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_uploader.events import Reign
from ts_uploader.reign import ReignOver

log = structlog.get_logger()

_MILLISECONDS = 1000


class IncarnationLog:
    """Reads a topic's list of incarnations, and opens one for a topic id that was never seen.

    Args:
        keys: of the cluster.
    """

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        # By topic and topic id. An entry of the list is never changed, so what was read once stays true; a thread that
        # reads it too changes nothing. An id that is followed by another has no live directory for long.
        self._directories: dict[tuple[str, str], str] = {}

    def directory(self, store: ObjectStore, topic: str, local_id: str | None, reign: Reign) -> str:
        """The directory of the incarnation that the reign's topic id names; opens one for an id that was never seen.

        Only an id that both the leadership source and the live directory name may open one: a task that was late could
        otherwise open an old id behind a new one.

        Args:
            store: the topic's.
            topic: its name.
            local_id: topic id of the live directory; None where that names none.
            reign: that works in it.

        Raises:
            SegmentChanged: directory and reign are not of one topic id.
            ReignOver: the topic was made anew since.
            OutcomeUnknown: several agents write the list at this moment: ask again.
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: of the list, and the store's.
        """
        topic_id = reign.topic_id
        if topic_id is not None and local_id != topic_id:
            raise SegmentChanged(f"{topic}: the directory is of topic id {local_id}, the reign of {topic_id}")
        if topic_id is not None and (topic, topic_id) in self._directories:
            return self._directories[topic, topic_id]
        for _ in range(3):
            known, etag = read_incarnations(store, self._keys, topic)
            if topic_id is None:
                return known.newest_directory
            found = known.find(topic_id)
            if found is not None:
                if found.directory != known.newest_directory:
                    raise ReignOver(f"topic id {topic_id} of {topic} was followed by {known.entries[-1].topic_id}")
                self._directories[topic, topic_id] = found.directory
                return found.directory
            opened = known.opened(topic_id, int(time.time() * _MILLISECONDS), self._keys)
            condition = IfAbsent() if etag is None else IfMatch(etag)
            try:
                store.put(self._keys.incarnations(topic), opened.encode(), condition=condition)
            except (PreconditionFailed, OutcomeUnknown):
                continue
            log.info("incarnation opened", topic=topic, topic_id=topic_id, directory=opened.newest_directory)
            return opened.newest_directory
        raise OutcomeUnknown(f"{self._keys.incarnations(topic)} is being written by several agents")
