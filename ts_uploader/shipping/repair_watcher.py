"""Lists the requests to repair of the stores once a minute, and passes those without an answer to the tracker.

Not a part of the protocol: a thread of its own, one listing for each store of topics that this broker leads. An object
is read once. The tracker handles a request if this broker leads the partition. Each request is passed again until an
agent has answered it, so the next minute repeats what failed. Among very many requests without an answer, only the
oldest ones are read.
"""

import queue
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import structlog

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.repair_requests import MOST_REQUESTS, RepairRequest, unanswered
from ts_common.errors import CorruptData, NewerFormat, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectStore
from ts_uploader.health.store_health import failure_reason
from ts_uploader.messages.observations import RepairWanted
from ts_uploader.metrics.counters import LIST_REPAIRS, Metrics
from ts_uploader.tracking.backlog import Backlog

log = structlog.get_logger()

_EVERY_SECONDS = 60.0  # a request is answered within two minutes
_JITTER = 0.1
_READ_AT_ONCE = 100  # new requests of one store in one round


class RepairWatcher:
    """Lists requests until `close`.

    Args:
        backlog: returns the backlog of every led partition; raises TimeoutError if the main thread does not answer.
        store_of: returns the store of a topic.
        every_seconds: longest time between two listings, but for a jitter of a tenth.
    """

    def __init__(
        self,
        keys: ClusterKeys,
        backlog: Callable[[], Mapping[TopicPartition, Backlog]],
        store_of: Callable[[str], ObjectStore],
        offer: Callable[[RepairWanted], None],
        metrics: Metrics,
        every_seconds: float = _EVERY_SECONDS,
    ) -> None:
        self._keys = keys
        self._backlog = backlog
        self._store_of = store_of
        self._offer = offer
        self._metrics = metrics
        self._every = every_seconds
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether to continue
        # By location and key: the ETag and the request, None for an unusable object; only of what the last round found.
        self._read: dict[tuple[str, str], tuple[str, RepairRequest | None]] = {}
        self._failing: set[str] = set()  # locations; each failure is logged once

    def run(self) -> None:
        """List until `close`; the first time is random, since a fleet may have started at once."""
        wait = random.uniform(0, self._every)  # noqa: S311  (spreads requests)
        while self._goes_on(wait):
            self.look()
            wait = self._every * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311

    def look_now(self) -> None:
        """Have the thread list at once."""
        self._wake.put(True)

    def close(self) -> None:
        """Make `run` return after its current round."""
        self._wake.put(False)

    def look(self) -> None:
        """List once; failures of stores or of the main thread are not raised."""
        try:
            led = self._backlog()
        except TimeoutError:
            return  # `/healthz` reports a main thread that does not answer
        found: dict[tuple[str, str], tuple[str, RepairRequest | None]] = {}
        for store in self._stores({partition.topic for partition in led}):
            try:
                for request in self._requests(store, found):
                    if request.partition in led:
                        self._offer(RepairWanted(request.partition, request))
                self._failing.discard(store.location)
            except TieredStorageError as error:
                self._metrics.errors.labels(LIST_REPAIRS, failure_reason(error)).inc()
                if store.location not in self._failing:
                    self._failing.add(store.location)
                    log.warning("repairs_not_listed", message="retried", store=store.location, error=str(error))
        self._read = found

    def _goes_on(self, seconds: float) -> bool:
        try:
            return self._wake.get(timeout=seconds)
        except queue.Empty:
            return True

    def _stores(self, topics: Iterable[str]) -> list[ObjectStore]:
        """Return the stores of topics, one for each location."""
        places: dict[str, ObjectStore] = {}
        for topic in topics:
            try:
                store = self._store_of(topic)
            except TieredStorageError:
                continue  # a topic without a location ships nothing; that is reported elsewhere
            places.setdefault(store.location, store)
        return list(places.values())

    def _requests(
        self, store: ObjectStore, found: dict[tuple[str, str], tuple[str, RepairRequest | None]]
    ) -> Iterable[RepairRequest]:
        """Yield the requests of a store without an answer, and note in `found` what was read of them."""
        left = _READ_AT_ONCE
        for id_, info in islice(unanswered(store, self._keys), MOST_REQUESTS):
            place = store.location, info.key
            known = self._read.get(place)
            if known is None or known[0] != info.etag:
                if not left:
                    return
                left -= 1
                known = info.etag, _request(store, info, id_)
            found[place] = known
            if known[1] is not None:
                yield known[1]


def _request(store: ObjectStore, info: ObjectInfo, id_: str) -> RepairRequest | None:
    """Return the request in an object; None if it was removed or is unusable, which is logged."""
    try:
        return RepairRequest.read(store, info.key, id=id_)
    except (CorruptData, NewerFormat) as error:
        log.warning("repair_request_unusable", message="ignored", key=info.key, error=str(error))
        return None
