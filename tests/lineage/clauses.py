"""The clauses of the rules that the model can drop, and the properties that it checks."""

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """An enumeration whose members have docstrings."""

    def __new__(cls, value: str, doc: str) -> Self:
        """A member with a docstring."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = " ".join(doc.split())
        return member


class Clause(Described):
    """A clause of protocol rules 5 and 6, reading rule 1 or remote retention; each member's docstring cites it.

    `C1` to `C10` are the counterexamples. Without its clause each occurs again: `python -m tests.lineage --without
    CLAUSE`.
    """

    HIGHEST_NEXT = (
        "hinext",
        """Protocol rule 5: the third element of a lineage is not below the next offset of the commit that it replaces.
        Without it, C1 (S3): an agent goes back before a collector's PUT of `log.start` succeeds, so the third element
        is too low. A later leader takes a plain name for done that a plan of the old lineage names, and the plan
        deletes it.""",
    )
    PLAN_EPOCH = (
        "planepoch",
        """Remote retention: a plan names no object whose variant name or whose batches bear an epoch above the
        commit's.
        Without it, C2 (S3): a plan names a variant that the next leader shipped and did not commit yet. That leader
        goes back, finds the name taken, commits it, and the plan deletes it.""",
    )
    VARIANT_BY_LEADER = (
        "vleader",
        """Protocol rule 6: the epoch in a variant's name is the leader epoch of its agent, never that of a batch.
        Without it, C3 (S3): a dead line's variant is in a plan. The broker of that line leads again, ships equal
        bytes under the equal name, counts that as done, and the plan deletes it.""",
    )
    REBUILT_GOES_BACK = (
        "rebuildnew",
        """Protocol rule 5: a commit that is rebuilt always goes back, and D heeds the local log.
        Without it, C4 (S2): the rebuilt commit takes the lineage of `log.start`, and with it the number that a
        collector wrote for a dead line. C5 (S1): the walk mixes two lines, and the commit names a dead record.""",
    )
    LATER_LOG_START = (
        "older",
        """Protocol rule 5: where `log.start` names a lineage of a higher epoch than the commit, the leader goes back on
        that commit. An agent whose epoch is below that of the lineage of `log.start` steps back.
        Without it, C6 (S4): a late agent creates the lost commit with an old lineage, and no leader can go on.
        C7 (S5): the late agent writes `log.start` of a lower lineage.""",
    )
    EMPTY_GOES_BACK = (
        "downback",
        """Protocol rule 5: without a commit and without segments, an agent that holds offsets below `log.start` goes
        back, commit first.
        Without it, C8 (S3): a late agent writes `log.start` down on the ETag, and the leader's commit has a hole.""",
    )
    LOG_START_ABOVE_NEXT = (
        "lsnext",
        """Protocol rule 5: if `log.start` of the commit's own lineage is above its next offset, the leader goes back
        on that commit.
        Without it, C9 (S2): a late agent creates the lost commit in the lineage of `log.start`, and new records are
        hidden.""",
    )
    NUMBER_STAYS = (
        "number",
        """Protocol rule 5: after going back the leader writes `log.start` also if its number stays.
        Without it (S2): a collector moved `log.start` on the old line after the leader read it. The leader goes back
        below that number and does not write, so that nothing shows it the new number: the records in between stay
        hidden.""",
    )
    SAME_LINEAGE = (
        "same",
        """Reading rule 1: `log.start` counts only if all three elements of its lineage are those of the commit's.
        Without it, C10 (S1): two lineages of one epoch. A reader that holds a commit of the first takes the second
        for an older one, begins at D, and finds a hole.""",
    )


ALL = frozenset(Clause)


class Habit(StrEnum):
    """Behaviour that the rules leave open; each is off unless a run enables it."""

    ANNOUNCES = "a leader that may go on commits in its own epoch before it ships"
    HEEDS_LATER_RECORDS = "an agent that rebuilds a commit steps back from an object of a leader epoch above its own"
    HEEDS_ABOVE_HIGHEST = "a leader also goes back where log.start of an older lineage lies above the third element"
    SKIPS_LOG_START = (
        "a leader that lost nothing does not read the number in log.start where neither it nor the commit has a lineage"
    )
    PERSISTS = "an agent that was refused begins again also where it no longer leads, with what it saw on disk"


class Property(StrEnum):
    """What must be so in each state; the value is one sentence."""

    S1 = "a reader finds each offset of its view, and a commit names the epochs that its writer's log has"
    S2 = "no committed record is hidden below log.start but by the retention policy"
    S3 = "once the leader has settled, each offset of the view has a living copy or a gap record"
    S4 = "the leader alone, started again, commits all its closed segments and brings log.start to the commit's lineage"
    S5 = "the lineage of log.start never falls"
    D1 = "an agent that ends, and reports no loss, leaves each committed offset stored or in a gap record"
    D2 = "if a directory stays, its agent gets each record below the high watermark that it counts into the archive"
    D3 = "no record of a deleted topic is shipped that was not committed"
    D4 = "the records of two topics of one name are never in one incarnation, and readers use the later topic's"
    D5 = "from the begin of its agent's log on, no gap record has a record that the last leader's agent can ship"
    D6 = "the leader epoch of the commit never falls"


class Violation(Exception):
    """A state or a step that breaks a property."""

    def __init__(self, broken: Property, what: str) -> None:
        super().__init__(f"{broken.name} {what}")
        self.broken = broken
