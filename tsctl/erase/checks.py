"""What can stop an erasure, before the first one: agents, holds, and partitions without marks of an agent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ts_common.archive.catalog import read_commit, read_log_start
from ts_common.archive.commit import Commit
from ts_common.archive.holds import read_holds
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectStore
from ts_common.wording import some
from tsctl.erase.fleet import read_fleet
from tsctl.erase.places import Places
from tsctl.erase.remains import UNLISTED
from tsctl.output import Cell, iso

_MILLISECONDS: Final = 1000


class Verdict(StrEnum):
    """What a check means."""

    FINE = "fine"
    WARNING = "warning"
    ERROR = "error"  # nothing can be erased yet


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found.

    Attributes:
        name: of the check.
        text: what was found, and what to do.
    """

    verdict: Verdict
    name: str
    text: str
    location: str

    @property
    def is_error(self) -> bool:
        """Whether nothing can be erased yet."""
        return self.verdict is Verdict.ERROR

    def fields(self) -> dict[str, Cell]:
        """Return its JSON fields."""
        return {"verdict": self.verdict.value, "check": self.name, "text": self.text, "location": self.location}


def checks_of(
    stores: Sequence[ObjectStore], cluster: ClusterKeys, topic: str | None, found: Sequence[Places]
) -> list[Check]:
    """Return the checks of all stores of an archive.

    Args:
        topic: that is checked too; None for agents alone.
        found: its places by store.

    Raises:
        CorruptData, NewerFormat: an object that is read is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    places = {each.store: each for each in found}
    checks = list[Check]()
    for store in stores:
        its = places.get(store, Places(store, ()))
        checks += _agents(store, cluster, its)
        checks += _versions(store, cluster)
        if topic is not None:
            checks += _holds(store, cluster, topic)
            checks += _marks(its)
    return checks


def _agents(store: ObjectStore, cluster: ClusterKeys, places: Places) -> Iterator[Check]:
    agents = read_fleet(store, cluster, places.places)
    for agent in agents:
        if agent.problem is not None:
            yield Check(Verdict.ERROR, f"agent of broker {agent.broker}", agent.problem, store.location)
        else:
            text = f"release {agent.release} of {iso(agent.reported)} reads lists of erased offsets"
            yield Check(Verdict.FINE, f"agent of broker {agent.broker}", text, store.location)
    if not agents:
        yield Check(Verdict.WARNING, "agents", f"no agent has written below {cluster.ends}", store.location)


def _versions(store: ObjectStore, cluster: ClusterKeys) -> Iterator[Check]:
    """Yield why requests of this store cannot end by themselves; Google and Azure list no versions here."""
    try:
        if store.protection().versioned and store.versions(cluster.cluster_prefix) is None:
            yield Check(Verdict.WARNING, "versions", f"requests stay hidden: {UNLISTED}", store.location)
    except AccessDenied as error:
        yield Check(Verdict.WARNING, "versions", f"unknown whether the bucket keeps them: {error}", store.location)


def _holds(store: ObjectStore, cluster: ClusterKeys, topic: str) -> Iterator[Check]:
    now = int(store.current_time() * _MILLISECONDS)
    held = [hold.name for hold in read_holds(store, cluster) if hold.stops(topic, now)]
    if held:
        text = f"{some(held)}: its holder would no longer see the records; --hide-held hides them"
        yield Check(Verdict.WARNING, "holds", text, store.location)


def _marks(places: Places) -> Iterator[Check]:
    store = places.store
    for place in places.places:
        if not isinstance(read_commit(store, place.keys)[0], Commit):
            text = f"{place.keys.commit}: no commit of an agent, so nothing of {place.name} can be erased"
            yield Check(Verdict.WARNING, "marks", text, store.location)
        elif read_log_start(store, place.keys.log_start) is None:
            text = f"{place.keys.log_start} is missing: restart the agent next to the leader, which writes it"
            yield Check(Verdict.ERROR, "marks", text, store.location)
