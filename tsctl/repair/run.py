"""Runs the repairs of `tsctl repair`: for each need an earlier version, else a request to the agents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ts_common.archive.catalog import PartitionCatalog, read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.repair_requests import Outcome, RepairAnswer
from ts_common.errors import CorruptData, LineageUnsettled, NewerFormat
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.query.timestamps import time_text
from tsctl.output import Output
from tsctl.repair.from_versions import PartitionVersions, PutBack
from tsctl.repair.needs import Need, PartitionNeeds, rest_of
from tsctl.repair.requests import Requests, Sent, Unreadable
from tsctl.repair.version_reading import VersionsDenied

_NO_COMMIT = (
    "the partition has no commit of an agent: restart the leader's agent; see 'A missing commit' in docs/repair.md"
)
_NO_METADATA = "no earlier version has its metadata: copy the object again with it; readers read the segment meanwhile"
_BOUND = "the metadata in the copied directory fits the object, and is bound to it again"
_NO_VERSION = "no earlier version fits its .log, and agents put back no index; readers work without it"
_FROM_VERSION = "from an earlier version in the bucket"
_IF_GOOD = "from an earlier version in the bucket, if its bytes are good: a dry run does not read them"
_REWRITTEN = ", without its erased records"
_HIDDEN = "; a list hides the erased records of this range, until tsctl erase run removes them from what the agent put"
_IS_THERE = "the store has this copy already"
_LEFT_OUT = (
    "{}: versions from {} and before are not used: the archive was deleted then and begun again, "
    "so they can be of another log"
)


class RepairStatus(StrEnum):
    """The state of a repair at the end of the command; `Outcome` has the answers of agents."""

    REPAIRED = "repaired"
    IN_PART = "in-part"
    NOTHING_TO_DO = "nothing-to-do"
    IMPOSSIBLE = "impossible"
    WAITING = "waiting"  # for the answer of an agent
    PLANNED = "planned"  # a dry run


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result for one range.

    Attributes:
        need: what was to be repaired.
        status: what became of it.
        detail: one line.
        objects: keys of the objects that have the offsets now.
        request: id of the request to the agents; None if an earlier version was put back.
    """

    keys: PartitionKeys
    need: Need
    status: RepairStatus
    detail: str
    objects: tuple[str, ...] = ()
    request: str | None = None


@dataclass(frozen=True, slots=True)
class How:
    """How to repair.

    Attributes:
        from_versions: whether earlier versions in the bucket are used.
        dry_run: whether nothing is written.
        wait_seconds: how long to wait for agents.
    """

    from_versions: bool
    dry_run: bool
    wait_seconds: float


class Repairs:
    """Repairs partitions of one cluster, then waits for the agents.

    Args:
        store_of: returns the store of a topic.
        output: receives warnings and progress.
    """

    def __init__(self, keys: ClusterKeys, store_of: Callable[[str], ObjectStore], how: How, output: Output) -> None:
        self._store_of = store_of
        self._how = how
        self._output = output
        self._requests = Requests(keys)
        self._sent: list[Sent] = []
        self._hidden: set[str] = set()  # ids of requests for ranges with erased offsets
        self._is_denied = False  # whether this identity may not use versions

    def run(self, wanted: Sequence[PartitionNeeds]) -> list[Repaired]:
        """Repair, and return the result of each range in the order of the partitions.

        Raises:
            SegmentChanged: a partition changed meanwhile: run it again.
            AccessDenied, StoreUnavailable, OutcomeUnknown, BucketMissing: a request to a store failed.
        """
        found: list[Repaired] = []
        for partition in wanted:
            found += self._partition(partition)
        if not self._sent:
            return found
        answered = self._wait()
        return [each if each.request is None else answered[each.request] for each in found]

    def _partition(self, wanted: PartitionNeeds) -> list[Repaired]:
        store = self._store_of(wanted.keys.partition.topic)
        try:
            catalog = read_catalog(store, wanted.keys)
            erased = catalog.read_erased(store)
        except (NewerFormat, LineageUnsettled, CorruptData) as error:
            return [Repaired(wanted.keys, need, RepairStatus.IMPOSSIBLE, str(error)) for need in wanted.needs]
        commit = catalog.commit
        if not isinstance(commit, Commit):
            why = catalog.damage or _NO_COMMIT
            return [Repaired(wanted.keys, need, RepairStatus.IMPOSSIBLE, why) for need in wanted.needs]
        versions = PartitionVersions(
            store, catalog, commit, erased, dry_run=self._how.dry_run, refused=self._output.warn
        )
        found: list[Repaired] = []
        for need in wanted.needs:
            found += self._need(store, catalog, versions, replace(need, end=_end(need, catalog, commit)))
        self._hidden |= {
            each.request
            for each in found
            if each.request is not None and erased.meets(each.need.start, each.need.end or each.need.start + 1)
        }
        if versions.left_out is not None:
            self._output.warn(_LEFT_OUT.format(wanted.keys.directory, time_text(int(versions.left_out * 1000))))
        return found

    def _need(
        self, store: ObjectStore, catalog: PartitionCatalog, versions: PartitionVersions, need: Need
    ) -> list[Repaired]:
        """Repair one range: what versions have of it, and a request for the rest."""
        keys = catalog.keys
        put = self._from_versions(versions, need)
        status, detail = (
            (RepairStatus.PLANNED, _IF_GOOD) if self._how.dry_run else (RepairStatus.REPAIRED, _FROM_VERSION)
        )
        found = [
            Repaired(
                keys,
                replace(need, start=max(each.start, need.start), end=min(each.end, need.end or each.end)),
                status if each.is_new else RepairStatus.NOTHING_TO_DO,
                _detail(each, detail),
                (each.key,),
            )
            for each in put
        ]
        for start, end in _rest(need, [(each.start, each.end) for each in put]):
            rest = replace(need, start=start, end=end)
            if need.index is not None or need.lacks_metadata:
                why = _NO_METADATA if need.lacks_metadata else _NO_VERSION
                found.append(Repaired(keys, rest, RepairStatus.IMPOSSIBLE, why))
            elif self._how.dry_run:
                found.append(Repaired(keys, rest, RepairStatus.PLANNED, "a request to the agent of the leader"))
            else:
                sent = self._requests.send(store, keys, rest, end)
                self._sent.append(sent)
                found.append(Repaired(keys, rest, RepairStatus.WAITING, "", (), sent.request.id))
        return found

    def _from_versions(self, versions: PartitionVersions, need: Need) -> list[PutBack]:
        """Put back what versions have; warn once if this identity may not use them."""
        if not self._how.from_versions or self._is_denied:
            return []
        try:
            return versions.restore(need)
        except VersionsDenied as error:
            self._is_denied = True
            self._output.warn(f"earlier versions are not used: {error}")
            return []

    def _wait(self) -> dict[str, Repaired]:
        """Wait for the answers to all requests, and return the result of each by its id."""
        answered: dict[str, Repaired] = {}
        with self._output.progress("answers of agents", len(self._sent)) as advance:
            answers: dict[str, RepairAnswer | Unreadable] = {}
            try:
                self._requests.wait(self._sent, self._how.wait_seconds, answers, advance)
            except KeyboardInterrupt:
                left = len({each.request.id for each in self._sent} - answers.keys())
                state = "has no answer yet and remains" if left == 1 else "have no answer yet and remain"
                self._output.warn(f"{counted(left, 'request')} {state}; run tsctl repair again")
                raise
        for each in self._sent:
            id_ = each.request.id
            answer = answers.get(id_)
            if answer is None:
                age = "" if each.is_new else " since an earlier run"
                detail = f"no agent has answered yet{age}; the request remains: run tsctl repair again"
                result = Repaired(each.keys, each.need, RepairStatus.WAITING, detail, (), id_)
            elif isinstance(answer, Unreadable):
                result = Repaired(each.keys, each.need, RepairStatus.IMPOSSIBLE, str(answer), (), id_)
            else:
                detail = f"broker {answer.broker}: {answer.reason}"
                if id_ in self._hidden and answer.objects:
                    detail += _HIDDEN
                result = Repaired(each.keys, each.need, status_of(answer.outcome), detail, answer.objects, id_)
            answered[id_] = result
        return answered


def _detail(put: PutBack, source: str) -> str:
    if put.is_bound:
        return _BOUND
    return source + _REWRITTEN * put.lacks_erased if put.is_new else _IS_THERE


def _end(need: Need, catalog: PartitionCatalog, commit: Commit) -> int:
    """Return the end of a range; of a damaged object that does not show it, the next base above."""
    if need.end is not None:
        return need.end
    above = (segment.name.base for segment in catalog.segments if segment.name.base > need.start)
    return max(need.start + 1, min(above, default=commit.next_offset))


def _rest(need: Need, done: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a range that nothing was put for; none of an index that was put back."""
    start, end = need.start, need.start + 1 if need.end is None else need.end
    if done and need.index is not None:
        return []
    return rest_of(start, end, done)


def status_of(outcome: Outcome) -> RepairStatus:
    """Return the status for an agent's answer."""
    return RepairStatus(outcome.value)
