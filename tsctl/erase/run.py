"""One run of `tsctl erase run` on one store: rewrite, then remove what was replaced, then note what remains.

Partitions are those that a request names with a list. First all of them are rewritten, and the evidence is put. Only
then is anything removed. A partition that fails is named, and the others continue. A killed run leaves nothing that the
next one does not find: each step looks at what is stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from typing import Final

from ts_common.archive.erased_list import greatest_listed
from ts_common.archive.erasures import ErasedPartition, ErasureState
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    CorruptData,
    OperatorError,
    StaleStateError,
    TieredStorageError,
)
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit
from ts_common.store.contract import ObjectStore
from ts_reader.reading.parallel import stream_in_threads
from tsctl.erase.erased_copies import Did, Held, Outcome
from tsctl.erase.evidence import Evidence, Progress, progress_of
from tsctl.erase.listing import remove_former_lists
from tsctl.erase.places import Place, Places, keys_of_place, places_of
from tsctl.erase.remains import Remains, Surface
from tsctl.erase.removing import remove_replaced
from tsctl.erase.replacing import replace_copies
from tsctl.erase.rewriting import sha256_of
from tsctl.erase.surfaces import Surfaces
from tsctl.gc.objects import Locked
from tsctl.gc.retention import LEAVES_OUT, LeftOut

THREADS: Final = 2  # each has up to two segments in temporary files
_LONGEST_RUN: Final = 86_400.0  # seconds from a look until its evidence was put
_STAYING: Final = frozenset({Did.WAITS, Did.HIDDEN})
FAILS: Final = (*LEAVES_OUT, OperatorError, StaleStateError)  # of one partition


@dataclass(frozen=True, slots=True)
class Work:
    """A run in one store.

    Attributes:
        grace: seconds from a put until what it replaces is removed.
        held: returns, for a place, the function that names what keeps its bytes.
        locked: returns, by key, the lock of each object that the store keeps.
        warn: is called with a sentence for the operator.
        writes: False for a dry run.
        others: further stores that are open, by location: former places can be there.
    """

    store: ObjectStore
    cluster: ClusterKeys
    grace: float
    held: Callable[[Place], Held]
    locked: Locked
    warn: Callable[[str], None]
    limit: BatchLimit = DEFAULT_LIMIT
    writes: bool = True
    others: Mapping[str, ObjectStore] = field(default_factory=dict)

    def known_places(self) -> Callable[[str], Places]:
        """Return a function that returns the places of a topic, and reads each topic once."""
        return cache(partial(places_of, self.store, self.cluster))


@dataclass(slots=True)
class Visited:
    """A partition in a run.

    Attributes:
        wanted: what each request has of it, by the request's id.
        outcomes: of its copies, by their keys, and of those without one by the reason. A later step replaces the
            outcome of an earlier one.
        rewritten: outcomes of copies that the run replaced.
        problem: why it was left as it is; None if nothing failed.
        must_act: whether a person must act on the problem.
        lists: the numbers of former lists that were removed.
        elsewhere: what other objects than copies have of its list.
    """

    place: Place
    wanted: Mapping[str, ErasedPartition]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    rewritten: list[Outcome] = field(default_factory=list)
    problem: str | None = None
    must_act: bool = False
    lists: list[int] = field(default_factory=list)
    elsewhere: list[Remains] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add what became of a copy."""
        is_one = outcome.key != self.place.keys.prefix
        self.outcomes[outcome.key if is_one else outcome.reason] = outcome
        if outcome.did is Did.REWRITTEN:
            self.rewritten.append(outcome)

    def fail(self, error: Exception) -> None:
        """Note why it is left as it is now."""
        self.problem = str(error)
        self.must_act = error.why.is_finding if isinstance(error, LeftOut) else not isinstance(error, StaleStateError)

    def concerned(self, outcome: Outcome) -> list[str]:
        """Return the requests whose records a copy can have had."""
        stored = self._stored(outcome)
        return [name for name, each in self.wanted.items() if stored.concerns([each])]

    def count(self, did: Did) -> int:
        """Return the number of copies with an outcome."""
        return len(self.rewritten) if did is Did.REWRITTEN else sum(each.did is did for each in self.outcomes.values())

    @property
    def staying(self) -> list[Outcome]:
        """The outcomes of copies that stay, and can have records."""
        return [each for each in self.outcomes.values() if each.did in _STAYING]

    @property
    def is_finding(self) -> bool:
        """Whether a person must act."""
        return self.must_act or self.count(Did.HIDDEN) > 0

    @property
    def remains(self) -> Iterator[Remains]:
        """What can have records of a list."""
        if self.problem is not None:
            yield Remains(Surface.COPY, self.place.name, self.problem)
        yield from map(self._stored, self.staying)
        yield from self.elsewhere

    def _stored(self, outcome: Outcome) -> Remains:
        obeys = {self.place.name: outcome.obeys}
        return Remains(Surface.COPY, outcome.key, outcome.reason, outcome.until, obeys, outcome.base)


class News(StrEnum):
    """How the state of a request changed in a run."""

    SAME = "same"
    ERASED = "erased now"
    RETURNED = "a copy has returned"  # it was erased before


@dataclass(frozen=True, slots=True)
class Ended:
    """A request after a run.

    Attributes:
        progress: as it is stored then.
        remains: what the run found.
    """

    progress: Progress
    news: News
    remains: tuple[Remains, ...]


@dataclass(slots=True)
class Found:
    """What a run did in one store.

    Attributes:
        now: the time of its end, milliseconds since the epoch.
    """

    location: str
    partitions: list[Visited] = field(default_factory=list)
    requests: list[Ended] = field(default_factory=list)
    now: int = 0

    @property
    def late(self) -> list[Ended]:
        """The requests whose bytes should be removed by now, and are not."""
        return [each for each in self.requests if each.progress.is_late(self.now)]

    @property
    def due(self) -> list[int]:
        """The due dates of requests that are not erased, milliseconds since the epoch."""
        waiting = (each.progress for each in self.requests if each.progress.state is not ErasureState.ERASED)
        return [each.request.due for each in waiting]

    @property
    def is_finding(self) -> bool:
        """Whether a person must act on a partition."""
        return any(each.is_finding for each in self.partitions)

    def of_state(self, state: ErasureState) -> int:
        """Return the number of requests in a state."""
        return sum(each.progress.state is state for each in self.requests)


def run_once(work: Work, requests: Sequence[Progress], found: Found) -> None:
    """Do what is due in one store for some requests.

    Args:
        found: an empty one, which has what was found also if an error ends the run.

    Raises:
        CorruptData, NewerFormat: an object that names places or requests is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed; the next run continues.
    """
    evidence, places = Evidence(work.store, work.cluster, requests), work.known_places()
    found.partitions += targets(work, requests, places)
    try:
        _each(work, found.partitions, lambda each: _rewrite(work, each, evidence))
        if work.writes:
            evidence.put()  # before anything is removed
        _each(work, found.partitions, lambda each: _remove(work, each, evidence))
    except BaseException:
        if work.writes:
            with suppress(TieredStorageError):
                evidence.put()
        raise
    elsewhere = _look_elsewhere(work, requests, found.partitions, evidence, places)
    for progress in requests:
        found.requests.append(_end(work, progress, found.partitions, elsewhere, evidence))
    found.now = int(work.store.current_time() * 1000)


def _each(work: Work, visited: Sequence[Visited], do: Callable[[Visited], None]) -> None:
    """Do a step in each partition without a problem."""

    def one(each: Visited) -> None:
        try:
            do(each)
        except (AccessDenied, BucketMissing):
            raise
        except FAILS as error:
            each.fail(error)

    going = [each for each in visited if each.problem is None]
    for _ in stream_in_threads(one, going, most=THREADS, at_once=work.writes):
        pass


def targets(work: Work, requests: Sequence[Progress], places_of_topic: Callable[[str], Places]) -> Iterator[Visited]:
    """Yield each partition that a request names with a list, and that has objects, or one of a topic that fails."""
    named = dict[str, dict[str, dict[str, ErasedPartition]]]()
    for progress in requests:
        for each in progress.request.partitions:
            if each.number:
                of_topic = named.setdefault(progress.request.topic, {})
                of_topic.setdefault(each.directory, {})[progress.request.name] = each
    for topic, directories in sorted(named.items()):
        try:
            places = places_of_topic(topic)
        except LEAVES_OUT as error:
            for directory, wanted in directories.items():
                with suppress(CorruptData):  # a name that is no place, which remains of its request
                    keys = keys_of_place(work.cluster, topic, directory)
                    visited = Visited(Place(keys, directory, is_newest=False), wanted)
                    visited.fail(error)
                    yield visited
            continue
        for url in sorted(places.elsewhere):
            work.warn(f"{url} has older records of topic {topic}: repeat the command there, with the same id")
        for place in places.places:
            if place.name in directories:
                yield Visited(place, directories[place.name])


def removed_of(work: Work, requests: Sequence[Progress], partitions: Sequence[Visited]) -> dict[str, PartitionKeys]:
    """Return the partitions that requests name with a list, and that retention removed wholly, by their names."""
    found, stored = dict[str, PartitionKeys](), {each.place.name for each in partitions}
    for request in (each.request for each in requests):
        for directory in {each.directory for each in request.partitions if each.number} - stored:
            with suppress(CorruptData):  # as in `targets`
                found[directory] = keys_of_place(work.cluster, request.topic, directory)
    return found


def _rewrite(work: Work, visited: Visited, evidence: Evidence) -> None:
    keys = visited.place.keys
    wanted = max(each.number for each in visited.wanted.values())
    listed = greatest_listed(keys, work.store.list(keys.erased))
    if (0 if listed is None else listed.number) < wanted:
        if any(True for _ in work.store.list(keys.prefix)):
            raise LeftOut(
                f"a request has list {wanted} of it, and {keys.erased} has none from there on: it was lost; put it "
                "back from the versions of the bucket or a backup"
            )
        return
    held = work.held(visited.place)

    def read(outcome: Outcome) -> None:
        fields = {"partition": visited.place.name, "key": outcome.key, "list": outcome.list, "etag": outcome.etag}
        evidence.note(visited.concerned(outcome), "read", **fields)

    for outcome in replace_copies(
        work.store,
        keys,
        held=held,
        locked=work.locked,
        limit=work.limit,
        noted=evidence.made,
        read=read,
        writes=work.writes,
    ):
        visited.add(outcome)
        if outcome.did is Did.REWRITTEN:
            evidence.note(
                visited.concerned(outcome),
                "rewritten",
                partition=visited.place.name,
                key=outcome.key,
                made=outcome.made,
                list=outcome.list,
                records=outcome.records,
                batches=outcome.batches,
                bytes=outcome.bytes,
                before=outcome.before,
                after=outcome.after,
                etag=outcome.etag,
            )


def _remove(work: Work, visited: Visited, evidence: Evidence) -> None:
    name, keys = visited.place.name, visited.place.keys

    def removing(outcome: Outcome) -> None:
        """Put the SHA-256 of an object and of the one that stays, if no run noted them."""
        lacking = evidence.lacking(visited.concerned(outcome), (outcome.key, str(outcome.made)))
        if lacking:
            before, after = (sha256_of(work.store, key) for key in (outcome.key, str(outcome.made)))
            fields = {"partition": name, "key": outcome.key, "made": outcome.made, "before": before, "after": after}
            evidence.note(lacking, "removing", **fields)
            evidence.put(lacking)

    for outcome in remove_replaced(
        work.store,
        keys,
        grace=work.grace,
        held=work.held(visited.place),
        locked=work.locked,
        limit=work.limit,
        noted=evidence.made,
        removing=removing,
        writes=work.writes,
    ):
        visited.add(outcome)
        if outcome.did is Did.REMOVED:
            fields = {"partition": name, "key": outcome.key, "made": outcome.made}
            evidence.note(visited.concerned(outcome), "removed", **fields)
    if work.writes:
        visited.lists = remove_former_lists(work.store, keys, work.grace)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """What a run found next to copies.

    Attributes:
        of_topics: by topic, for all of its requests.
        of_requests: by the request's id.
    """

    of_topics: Mapping[str, Sequence[Remains]]
    of_requests: Mapping[str, Sequence[Remains]]


def _look_elsewhere(
    work: Work,
    requests: Sequence[Progress],
    partitions: Sequence[Visited],
    evidence: Evidence,
    places_of_topic: Callable[[str], Places],
) -> _Elsewhere:
    """Look next to copies for what requests have; for topics without news only in versions that are newer than that."""
    if not work.writes:
        return _Elsewhere({}, {})
    surfaces = Surfaces(work.store, work.cluster, work.grace, work.limit, evidence.made, work.others)
    topics = {each.request.topic for each in requests if each.state is not ErasureState.ERASED}
    topics |= {each.place.keys.partition.topic for each in partitions if each.outcomes or each.problem is not None}
    wanted = [each for each in requests if each.request.topic in topics]
    removed = removed_of(work, wanted, partitions)
    by_topic = dict[str, dict[PartitionKeys, bool]]()
    for keys in removed.values():
        by_topic.setdefault(keys.partition.topic, {})[keys] = False
    for each in partitions:
        if (topic := each.place.keys.partition.topic) in topics:
            by_topic.setdefault(topic, {})[each.place.keys] = True
            each.elsewhere = surfaces.of_partition(each.place.keys, work.held(each.place))
        else:  # what was shipped again, and deleted before this run, is a version only
            looked = min(one.time for one in requests if one.request.name in each.wanted) / 1000 - _LONGEST_RUN
            each.elsewhere = surfaces.of_partition(each.place.keys, work.held(each.place), looked)
    of_topics = {topic: surfaces.of_topic(keys) for topic, keys in by_topic.items()}
    places = {each.place.name: each.place.keys for each in partitions}
    of_requests = dict[str, list[Remains]]()
    for one in wanted:
        of_requests[one.request.name] = surfaces.of_request(one, places, removed)
        of_requests[one.request.name] += surfaces.of_former_stores(one, places_of_topic)
    return _Elsewhere(of_topics, of_requests)


def _end(
    work: Work, before: Progress, partitions: Sequence[Visited], elsewhere: _Elsewhere, evidence: Evidence
) -> Ended:
    """Note what remains of a request, and its end if nothing does."""
    name, topic = before.request.name, before.request.topic
    named = [each for each in before.request.partitions if each.number]
    found = [each for visited in partitions if name in visited.wanted for each in visited.remains]
    found += elsewhere.of_topics.get(topic, ()) if named else ()
    remains = [each for each in found if each.concerns(named)]
    remains += elsewhere.of_requests.get(name, ())
    after = before
    if work.writes:
        evidence.end(name, {each.directory: each.number for each in before.request.partitions}, remains)
        after = progress_of(work.store, work.cluster, before.request)
    news = News.SAME
    if after.state is ErasureState.ERASED and before.done is None:
        news = News.ERASED
    elif before.done is not None and remains:
        news = News.RETURNED
    return Ended(after, news, tuple(remains))
