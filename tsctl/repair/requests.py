"""Requests to the agents: written once, then waited for. A request without an answer remains for the next run."""

import getpass
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.repair_requests import (
    MOST_REQUESTS,
    RepairAnswer,
    RepairRequest,
    answer_key,
    request_key,
    unanswered,
)
from ts_common.errors import CorruptData, NewerFormat, ObjectNotFound
from ts_common.store.contract import IfAbsent, ObjectStore
from tsctl.repair.needs import Need

Unreadable = CorruptData | NewerFormat
_EVERY_SECONDS: Final = 1.0
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that an agent may answer.

    Attributes:
        need: what it is for.
        request: the request in the store.
        is_new: whether this run wrote it.
    """

    keys: PartitionKeys
    need: Need
    request: RepairRequest
    store: ObjectStore
    is_new: bool


@dataclass(slots=True)
class Requests:
    """Writes requests for one cluster.

    Attributes:
        waiting: requests without an answer, by location; read once for each store.
    """

    keys: ClusterKeys
    waiting: dict[str, list[RepairRequest]] = field(default_factory=dict)

    def send(self, store: ObjectStore, keys: PartitionKeys, need: Need, end: int) -> Sent:
        """Write a request, unless the store has one for the same that no agent has answered yet.

        Args:
            end: the offset after the last.

        Raises:
            AccessDenied, StoreUnavailable, OutcomeUnknown, BucketMissing: the store's.
        """
        now = int(time.time() * _MILLISECONDS)
        etag, size = _listed(store, need.key)
        request = RepairRequest(
            f"{now:013d}-{secrets.token_hex(4)}",
            keys.partition.topic,
            keys.partition.partition,
            keys.directory,
            need.damage,
            need.start,
            end,
            need.key,
            etag,
            size,
            now,
            _who(),
        )
        if store.location not in self.waiting:
            self.waiting[store.location] = list(_unanswered(store, self.keys))
        known = self.waiting[store.location]
        same = next((other for other in known if other.is_same_as(request)), None)
        if same is None:
            store.put(request_key(self.keys, request.id), request.encode(), condition=IfAbsent())
            known.append(request)
        return Sent(keys, need, same or request, store, is_new=same is None)

    def wait(
        self,
        sent: Sequence[Sent],
        seconds: float,
        answers: dict[str, RepairAnswer | Unreadable],
        advance: Callable[[], object],
    ) -> None:
        """Wait for answers, and add those that arrive in time.

        Args:
            seconds: how long to wait; each request is looked for at least once.
            answers: gets each answer by the request's id, or the error of one that cannot be read.
            advance: called for each answer.

        Raises:
            AccessDenied, StoreUnavailable, BucketMissing: the store's.
        """
        deadline = time.monotonic() + seconds
        while True:
            for each in sent:
                if each.request.id not in answers and (answer := self._answer(each)) is not None:
                    answers[each.request.id] = answer
                    advance()
            left = deadline - time.monotonic()
            if left <= 0 or all(each.request.id in answers for each in sent):
                return
            time.sleep(min(left, _EVERY_SECONDS))

    def _answer(self, sent: Sent) -> RepairAnswer | Unreadable | None:
        key = answer_key(self.keys, sent.request.id)
        try:
            return RepairAnswer.read(sent.store, key)
        except (CorruptData, NewerFormat) as error:
            return error


def _unanswered(store: ObjectStore, keys: ClusterKeys) -> Iterator[RepairRequest]:
    """Yield the requests of a store that agents still see; unusable objects are left out."""
    for id_, info in islice(unanswered(store, keys), MOST_REQUESTS):
        try:
            found = RepairRequest.read(store, info.key, id=id_)
        except (CorruptData, NewerFormat):
            continue
        if found is not None:
            yield found


def _listed(store: ObjectStore, key: str | None) -> tuple[str | None, int | None]:
    if key is None:
        return None, None
    try:
        info = store.head(key)
    except ObjectNotFound:
        return None, None
    return info.etag, info.size


def _who() -> str:
    """Return who runs the command, for the request and the agent's log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user can have no name
        name = "unknown"
    return f"{name}@{socket.gethostname()}"[:200]
