"""One request to erase in one store: search each partition, hide what is found, then note the request.

The request is put last, where none exists. If the process is killed before, more is hidden than a request names; the
same command repeats the search, finds the lists, and puts the request. A request that exists is searched again in its
partitions, below its ends, and the search is noted in an object of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ts_common.archive.erasures import (
    ErasedPartition,
    Erasure,
    ErasureRun,
    erasure_key,
    erasure_run_key,
    list_erasure_runs,
    read_erasure,
)
from ts_common.archive.holds import read_holds
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import OperatorError, PreconditionFailed, QueryError
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.wording import some
from ts_reader.query.timestamps import time_text
from tsctl.erase.criteria import Criterion
from tsctl.erase.fleet import problems_of, read_fleet
from tsctl.erase.listing import add_to_list
from tsctl.erase.places import Place, Places
from tsctl.erase.searching import Searched, end_of, search

_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Demand:
    """What to erase, and why.

    Attributes:
        name: id of the request.
        reference: of the person's demand.
        due: when the bytes must be removed at the latest, milliseconds since the epoch.
        criterion: finds the records.
        hides_held: whether to hide records of a topic that a hold names.
        ends: log ends of the running cluster, by partition of the newest incarnation; empty if they are unknown.
        limit: of batches.
    """

    name: str
    topic: str
    reference: str
    due: int
    criterion: Criterion
    hides_held: bool = False
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    limit: BatchLimit = DEFAULT_LIMIT


def terms_of(of: Demand | Erasure) -> str:
    """Return topic, reference and due date of a request in one line."""
    return f"topic {of.topic}, reference {of.reference!r}, due {time_text(of.due)}"


def check(cluster: ClusterKeys, found: Sequence[Places], demand: Demand, stores: Sequence[ObjectStore]) -> None:
    """Check that a request can be added, or searched again.

    Args:
        found: the places of the topic, by store.
        stores: all stores of the archive: the holds of each count.

    Raises:
        QueryError: a store has another request of this id, a new one is late already, or an offset is above its end.
        OperatorError: an agent would drop the list, or a hold names the topic.
        ValueError: the id is not one.
        CorruptData, NewerFormat: an object that it reads is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    is_new = True
    for store in stores:
        existing = read_erasure(store, cluster, demand.name)
        is_new = is_new and existing is None
        if existing is not None and terms_of(existing) != terms_of(demand):
            raise QueryError(
                f"request {demand.name}: {store.location} has another one of this id ({terms_of(existing)}); use "
                "another id, or give the same topic, --reference and --due to search it again"
            )
    if is_new and demand.due <= max(store.current_time() for store in stores) * _MILLISECONDS:
        raise QueryError(f"--due={time_text(demand.due)}: it has passed; a time in the future is expected")
    problems = [
        f"{each.store.location}: {problem}"
        for each in found
        for problem in problems_of(read_fleet(each.store, cluster, each.places))
    ]
    if problems:
        raise OperatorError(f"nothing can be erased yet: {'; '.join(problems)}")
    held = _holds(cluster, found, demand, stores)
    if held and not demand.hides_held:
        raise OperatorError(
            f"topic {demand.topic} has the hold {some(held)}: its holder would no longer see these records; "
            "if that is right, use --hide-held"
        )
    for each in found:
        for place in each.places:
            _check_named(each.store, place, demand)


def _holds(cluster: ClusterKeys, found: Sequence[Places], demand: Demand, stores: Sequence[ObjectStore]) -> list[str]:
    """Return the holds that stop the topic, also in the clusters where its restored records were before."""
    clusters = {store: {cluster} for store in stores}
    for each in found:
        clusters.setdefault(each.store, set()).update(place.keys.cluster for place in each.places)
    return sorted(
        {
            hold.name
            for store, every in clusters.items()
            for one in every
            for hold in read_holds(store, one)
            if hold.stops(demand.topic, int(store.current_time() * _MILLISECONDS))
        }
    )


def _check_named(store: ObjectStore, place: Place, demand: Demand) -> None:
    greatest = max(demand.criterion.named(place.keys), default=None)
    if greatest is None:
        return
    end = end_of(store, place.keys, _log_end(place, demand))
    if greatest >= end:
        raise QueryError(f"{place.name}: --offsets has {greatest}, and the partition ends at {end}: correct the file")


def preview(found: Places, demand: Demand, done: Callable[[], None]) -> Iterator[tuple[Place, Searched]]:
    """Yield what a new request would hide of each place.

    Args:
        done: called after each place.

    Raises:
        As `tsctl.erase.searching.search`.
    """
    for place in found.places:
        yield place, _search(found.store, place, demand, 0)
        done()


def add(
    cluster: ClusterKeys,
    found: Places,
    demand: Demand,
    warn: Callable[[str], None],
    done: Callable[[], None] = lambda: None,
) -> Erasure:
    """Hide the records of a demand from all readers, and note the request, or its search; return it as it is then.

    Args:
        found: the places of the topic in one store. For a request that exists, only its own are searched.
        warn: called with a sentence for each copy that could not be read.
        done: called after each place.

    Raises:
        QueryError: another process put a request of this id meanwhile.
        Others: as `tsctl.erase.searching.search` and `tsctl.erase.listing.add_to_list`.
    """
    store = found.store
    existing = read_erasure(store, cluster, demand.name)
    now, earliest = None, 0
    if existing is not None:
        runs = [run for run, _ in list_erasure_runs(store, cluster, demand.name)]
        now, earliest = existing.after(runs), max(existing.time, *(run.time for run in runs), 0) + 1
    ends = None if now is None else {each.directory: each.end for each in now.partitions}
    noted, unread = list[ErasedPartition](), 0
    for place in found.places:
        if ends is None or place.name in ends:
            searched = _search(store, place, demand, 0 if ends is None else ends[place.name])
            for reason in searched.unread:
                warn(f"{reason}; what it has of the person is not hidden")
            unread += len(searched.unread)
            number = add_to_list(store, place.keys, searched.offsets) if searched.offsets else 0
            noted.append(ErasedPartition(place.name, searched.end, searched.following, number, searched.offsets.count))
        done()
    names = {place.name for place in found.places}
    for each in () if now is None else now.partitions:
        if each.directory not in names:  # retention removed it wholly, or no agent has shipped any of it
            noted.append(replace(each, searched=max(each.searched, each.end) if each.searched else 0))
    time, by = max(int(store.current_time() * _MILLISECONDS), earliest), store.identity()
    if now is not None:
        run = ErasureRun(demand.name, time, by, unread, tuple(noted))
        store.put(erasure_run_key(cluster, demand.name, time), run.encode(), condition=IfAbsent())
        return now.after([run])
    request = Erasure(demand.name, demand.topic, time, by, demand.reference, demand.due, unread, tuple(noted))
    try:
        store.put(erasure_key(cluster, demand.name), request.encode(), condition=IfAbsent())
    except PreconditionFailed as error:
        raise QueryError(
            f"request {demand.name}: another process put one of this id; the records are hidden; repeat the command"
        ) from error
    return request


def _search(store: ObjectStore, place: Place, demand: Demand, end: int) -> Searched:
    least = _log_end(place, demand)
    return search(store, place.keys, demand.criterion, end=end, least=least, limit=demand.limit)


def _log_end(place: Place, demand: Demand) -> int:
    return demand.ends.get(place.keys.partition, 0) if place.is_newest else 0
