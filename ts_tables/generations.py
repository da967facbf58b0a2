"""The generations of a table: how far each is, and whether one can replace the other."""

from dataclasses import dataclass
from typing import Final

from ts_common.wording import counted
from ts_tables.claims.state import TableState, without
from ts_tables.status import TableStatus
from ts_tables.targets import TableContents

_SHOWN: Final = 3  # of a message


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


def lacking(state: TableState, other: TableState) -> str:
    """Return what another generation lacks, for a message; empty if it lacks nothing.

    It lacks offsets that it does not claim, and deletions of forgotten records.

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
                theirs = () if known is None else known.claims
                left = [span for own in claims.claims for span in without(own, theirs)]
                if left:
                    count = sum(end - start for start, end in left)
                    found.append(f"{topic}-{number} {counted(count, 'offset')} from {left[0][0]} on")
                deleted = {*claims.forgotten} - {*(() if known is None else known.forgotten)}
                if deleted:
                    found.append(
                        f"{topic}-{number} {counted(len(deleted), 'deletion')}, the first at offset {min(deleted)[0]}"
                    )
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more}"
