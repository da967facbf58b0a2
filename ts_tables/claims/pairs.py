"""The states of a table and of that of its refused records together."""

from dataclasses import replace

from ts_tables.claims.state import TableState


def with_kept(state: TableState, other: TableState | None) -> TableState:
    """Return a state that has the kept rows of the other table too: an election is the same for both.

    A plan of it fails where a plan of the other one must, and removes or counts again the rows of both.

    Args:
        state: of a table.
        other: of the other one of its pair; None of a raw table.
    """
    if other is None:
        return state
    for topic, incarnations in other.topics.items():
        for each in incarnations:
            known = state.incarnation(topic, each.directory)
            if known is None:
                continue
            partitions = {
                number: replace(one, kept=(*one.kept, *each.partitions[number].kept))
                if number in each.partitions
                else one
                for number, one in known.partitions.items()
            }
            state = state.with_incarnation(topic, replace(known, partitions=partitions))
    return state
