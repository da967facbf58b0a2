"""What of the fleet must be upgraded before an erasure: agents that would drop a list, or that report nothing.

Each agent publishes in `ends/` which versions of `log.start` it reads. An agent that ignores lists would write
`log.start` without the number of its list, or not at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.high_watermarks import Ends, brokers_with_ends, read_ends
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import ClusterSnapshot
from ts_common.format_version import ERASED_VERSION
from ts_common.store.contract import ObjectStore
from tsctl.erase.places import Place

_FORMAT: Final = "log.start"
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of a broker.

    Attributes:
        release: that it reported; None if it is of a release before that, or reported nothing.
        reported: when it wrote its object in `ends/`, milliseconds since the epoch; None without one.
        problem: why nothing can be erased; None for an agent that reads lists.
    """

    broker: int
    release: str | None
    reported: int | None
    problem: str | None


def read_fleet(store: ObjectStore, cluster: ClusterKeys, places: Iterable[Place]) -> tuple[Agent, ...]:
    """Return the agents that write to a store, by broker: those in `ends/`, and those that commits name.

    Args:
        places: of the topics that matter. A broker that the newest metadata snapshot lacks has no agent any more.

    Raises:
        CorruptData, NewerFormat: an object in `ends/` or a commit is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    found = {broker: read_ends(store, cluster, broker) for broker in brokers_with_ends(store, cluster)}
    reported = {broker: ends for broker, ends in found.items() if ends is not None}
    missing = {broker for broker in _leaders(store, places) if broker >= 0} - reported.keys()
    if missing:
        missing &= _living(store, cluster, missing)
    agents = [_agent(ends) for ends in reported.values()]
    why = "an agent of this release writes it within 5 minutes of its start: upgrade, start or wait"
    agents += [Agent(broker, None, None, f"it wrote no {cluster.ends_of(broker)}: {why}") for broker in missing]
    return tuple(sorted(agents, key=lambda agent: agent.broker))


def problems_of(agents: Iterable[Agent]) -> list[str]:
    """Return a sentence for each agent that must be upgraded or started."""
    return [f"agent of broker {agent.broker}: {agent.problem}" for agent in agents if agent.problem is not None]


def _agent(ends: Ends) -> Agent:
    formats: Mapping[str, int] = ends.formats or {}
    problem = None
    if formats.get(_FORMAT, 0) < ERASED_VERSION:
        problem = (
            f"release {ends.release or 'before 0.3'} does not read lists of erased offsets: upgrade it; if the broker "
            "was removed, delete its object in ends/"
        )
    return Agent(ends.broker, ends.release, ends.time, problem)


def _leaders(store: ObjectStore, places: Iterable[Place]) -> set[int]:
    """Return the brokers whose agents wrote the newest commits of newest incarnations."""
    commits = (read_commit(store, place.keys)[0] for place in places if place.is_newest)
    return {commit.broker for commit in commits if isinstance(commit, Commit)}


def _living(store: ObjectStore, cluster: ClusterKeys, brokers: set[int]) -> set[int]:
    """Return those brokers that the newest metadata snapshot has; all of them without a snapshot."""
    now = int(store.current_time() * _MILLISECONDS)
    snapshot = ClusterSnapshot.newest(store, cluster, now, {})
    return brokers if snapshot is None else {broker for broker in brokers if str(broker) in snapshot.brokers}
