"""The generations of a table: how far each is, and whether one can replace the other."""

from dataclasses import dataclass

from ts_tables.claims.state import TableState
from ts_tables.status import TableStatus
from ts_tables.targets import TableContents


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a table.

    Attributes:
        number: of it.
        is_in_use: whether it has the table's name.
        contents: what it has; None if it was not created.
        status: how far it is; None as above.
    """

    number: int
    is_in_use: bool
    contents: TableContents | None
    status: TableStatus | None


def lagging(state: TableState, other: TableState) -> str:
    """Return which partitions another generation has not claimed so far, for a message; empty if no partition is.

    Args:
        state: of the generation in use.
        other: of the other one.
    """
    found = []
    for topic, incarnations in sorted(state.topics.items()):
        for each in incarnations:
            there = other.incarnation(topic, each.directory)
            for number, claims in sorted(each.partitions.items()):
                known = None if there is None else there.partitions.get(number)
                end = claims.start if known is None else known.end
                if end < claims.end:
                    found.append(f"{topic}-{number} by {claims.end - end:,} offsets")
    more = f" and {len(found) - 3} partitions more" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more}"
