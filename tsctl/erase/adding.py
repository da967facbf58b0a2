"""One request to erase in one store: search each partition, hide what is found, then note the request.

The request is put last, where none exists. If the process is killed before, more is hidden than a request names; the
same command repeats the search, finds the lists, and puts the request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.erasures import ErasedPartition, Erasure, erasure_key, read_erasure
from ts_common.archive.high_watermarks import all_agents_read
from ts_common.archive.holds import read_holds
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import OperatorError, PreconditionFailed, QueryError
from ts_common.format_version import ERASED_VERSION
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_reader.decode.columns import Projection
from tsctl.erase.listing import add_to_list
from tsctl.erase.searching import Matches, search

_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Demand:
    """What to erase, and why.

    Attributes:
        name: id of the request.
        reference: of the person's demand.
        due: when the bytes must be removed at the latest, milliseconds since the epoch.
        projection: what `matches` needs.
        hides_held: whether to hide records of a topic that a hold names.
    """

    name: str
    topic: str
    reference: str
    due: int
    projection: Projection
    matches: Matches
    hides_held: bool = False


def check(store: ObjectStore, keys: ClusterKeys, demand: Demand) -> None:
    """Check that a request can be added.

    Raises:
        QueryError: the store has a request of this id.
        OperatorError: an agent would drop the list, or a hold names the topic.
        ValueError: the id is not one.
        CorruptData, NewerFormat: an object that it reads is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    if read_erasure(store, keys, demand.name) is not None:
        raise QueryError(f"request {demand.name}: {store.location} has one of this id; use another id")
    if not all_agents_read(store, keys, "log.start", ERASED_VERSION):
        raise OperatorError(
            "an agent of this cluster does not read lists of erased offsets: upgrade all agents first; ends/ has the "
            "release of each"
        )
    now = int(store.current_time() * _MILLISECONDS)
    held = [hold.name for hold in read_holds(store, keys) if hold.stops(demand.topic, now)]
    if held and not demand.hides_held:
        raise OperatorError(
            f"topic {demand.topic} has the hold {', '.join(held)}: its holder would no longer see these records; "
            "if that is right, use --hide-held"
        )


def add(
    store: ObjectStore,
    cluster: ClusterKeys,
    partitions: Sequence[PartitionKeys],
    demand: Demand,
    warn: Callable[[str], None],
    *,
    limit: BatchLimit = DEFAULT_LIMIT,
) -> Erasure:
    """Hide the records of a demand from all readers, and note the request; return it.

    Args:
        partitions: of all incarnations of the topic.
        warn: called with a sentence for each copy that could not be read.

    Raises:
        As `check`, and as `tsctl.erase.listing.add_to_list`.
    """
    check(store, cluster, demand)
    noted, unread = list[ErasedPartition](), 0
    for keys in partitions:
        commit, _ = read_commit(store, keys)
        if not isinstance(commit, Commit):
            warn(f"{keys.directory}: it has no commit of an agent, so nothing of it is erased")
            unread += 1
            continue
        end = commit.next_offset
        found = search(store, keys, end, demand.projection, demand.matches, limit=limit)
        for reason in found.unread:
            warn(f"{reason}; what it has of the person is not hidden")
        unread += len(found.unread)
        number = add_to_list(store, keys, found.offsets) if found.offsets else 0
        noted.append(ErasedPartition(keys.directory, end, end, number, found.offsets.count))
    now = int(store.current_time() * _MILLISECONDS)
    request = Erasure(
        demand.name, demand.topic, now, store.identity(), demand.reference, demand.due, unread, tuple(noted)
    )
    try:
        store.put(erasure_key(cluster, demand.name), request.encode(), condition=IfAbsent())
    except PreconditionFailed as error:
        raise QueryError(
            f"request {demand.name}: another process put one of this id; the records are hidden; use another id"
        ) from error
    return request
