"""What became of each repair."""

from dataclasses import dataclass
from enum import StrEnum

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.repair_requests import Outcome
from tsctl.repair.needs import Need


class Status(StrEnum):
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
    status: Status
    detail: str
    objects: tuple[str, ...] = ()
    request: str | None = None


def status_of(outcome: Outcome) -> Status:
    """Return the status for an agent's answer."""
    return Status(outcome.value)
