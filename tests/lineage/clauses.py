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
    """A clause of protocol rules 5 and 6, reading rule 1 or retention; each member's docstring cites it.

    `C1` to `C10` are the counterexamples. Without its clause each occurs again: `python -m tests.lineage --without
    CLAUSE`.
    """

    HIGHEST_NEXT = (
        "hinext",
        """Protocol rule 5: the third element of a lineage is not below the next offset of the commit that it replaces.
        Without it, C1 (S3): an agent goes back before a collector's PUT of `log.start` succeeds, so the third element
        is too low. A later leader counts a plain name as done that a deletion of the old lineage has listed, and that
        deletion removes it.""",
    )
    PLAN_EPOCH = (
        "planepoch",
        """Retention rule 3: nothing is deleted whose variant name or whose batches bear an epoch above the
        commit's. It counts for names that earlier releases wrote, without VARIANT_OF_LINEAGE. Without it, C2
        (R2): a listing has a variant that the next leader shipped and did not commit yet. That leader goes
        back, finds the name taken, commits it, and the collector deletes it.""",
    )
    VARIANT_BY_LEADER = (
        "vleader",
        """Protocol rule 6: the epoch in a variant's name is the leader epoch of its agent, never that of a
        batch. It counts for names that earlier releases wrote, without VARIANT_OF_LINEAGE. Without it, C3
        (R2): a dead line's variant is in a collector's listing. The broker of that line leads again, ships
        equal bytes under the equal name, counts that as done, and the collector deletes it.""",
    )
    VARIANT_OF_LINEAGE = (
        "vlineage",
        """Protocol rule 6: below a lineage's third element the CRC in a variant's name covers the lineage too.
        Without it (R2): two lineages of one epoch. A variant of the first is in a collector's listing. The agent ships
        equal bytes in the second, counts the name as done, and the collector deletes it.""",
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
    FLOOR_UNKNOWN = (
        "unknown",
        """Retention rule 2: an absent floor is unknown, never S.
        Without it (R3): what an older release hid could never be shown again.""",
    )
    COPY_FLOOR = (
        "copyfloor",
        """Retention rule 2: the floor that counts is at most that of the copy, or what the stored run shows.
        Without it (R2): with an agent's rights, a forged floor makes the collector delete inside the grace.""",
    )
    INFERRED_UNKNOWN = (
        "inferred",
        """Retention rule 2: a floor that no copy proves stays unknown if segments are below it.
        Without it (R3): a hole that is filled later makes an inferred floor count, and a hold does not show what is
        stored below.""",
    )
    LEFTOVERS_WAIT = (
        "leftovers",
        """Retention rule 3: what a killed run left goes once `log.start` and the copy are a grace old.
        Without it (R2): a lost or forged `log.start` hides records, and the next run takes them for left behind.""",
    )
    STORE_TIME = (
        "time",
        """Retention rule 2: the grace counts from the store's time of the copy.
        Without it (R2): what a run hid is deleted under its readers.""",
    )
    SAME_WRITE = (
        "samewrite",
        """Retention rule 2: the copy's time counts if it has the S and `since` of `log.start`; else the grace begins.
        Without it (R2): an old copy ends the grace of a `log.start` that an agent wrote since.""",
    )
    LOG_START_FIRST = (
        "hide",
        """Retention rule 1: a run that hides writes `log.start` first, then its copy.
        Without it (R2): the copy of a write that failed is a grace old when `log.start` gets that number.""",
    )
    COPY = (
        "copy",
        """Retention rule 1: a copy of `log.start` is kept where agents may not write.
        Without it: a lost `log.start` is restored below what a deletion in progress removes.""",
    )
    COPY_IS_READ = (
        "copyread",
        """Retention rule 2: if `log.start` has a floor or `since`, a run reads the copy also if its listing of the
        copies, which can be older, lacks it.
        Without it (R2): a run that was halted for a grace takes the floor from its listing, and shows what another
        collector has released since.""",
    )
    COPY_BEFORE_FLOOR = (
        "copyfirst",
        """Retention rule 1: the copy gets the new floor before `log.start` does.
        Without it: a lost `log.start` is restored by a copy that does not know of the deletion.""",
    )
    COPY_BEFORE_SHOW = (
        "show",
        """Retention rule 1: before S falls, the copy loses its `since`.
        Without it (R2): after a hold, the copy of the former hiding counts for the next one.""",
    )
    AGENT_LOWERS_FLOOR = (
        "lowers",
        """Protocol rule 5: an agent that begins a lineage writes min(F, S') as the floor.
        Without it (R1): the floor lies above the start.""",
    )
    AGENT_CARRIES_FLOOR = (
        "carries",
        """Protocol rule 5: an agent that begins a lineage never invents a floor.
        Without it (R3): a floor of 0 promises what was deleted.""",
    )
    LIST_FIRST = (
        "listfirst",
        """Retention rule 3: the listing is older than what the run reads.
        Without it (S1, S3): a later lineage's variants are deleted.""",
    )
    SHOW_ON_ETAG = (
        "showetag",
        """Retention rule 1: S falls on the ETag that was read.
        Without it: a late show undoes a deletion's floor, and readers find holes.""",
    )
    FLOOR_ON_ETAG = (
        "flooretag",
        """Retention rule 1: F rises on the ETag that was read, or nothing is deleted.
        Without it: a hold showed the records meanwhile.""",
    )


ALL = frozenset(Clause)


class Habit(StrEnum):
    """Behaviour that the rules leave open; each is off unless a run enables it."""

    ANNOUNCES = "a leader that may go on commits in its own epoch before it ships"
    HEEDS_LATER_RECORDS = "an agent that rebuilds a commit steps back from an object of a leader epoch above its own"
    COUNTS_OWN_NAMES = (
        "an agent that rebuilds a commit counts only names of the lineage of log.start from its D to its third element"
    )
    HEEDS_ABOVE_HIGHEST = "a leader also goes back where log.start of an older lineage lies above the third element"
    DROPS_FLOOR = "an agent of an earlier release writes log.start without a floor"
    PERSISTS = "an agent that was refused begins again also where it no longer leads, with what it saw on disk"


class Property(StrEnum):
    """What must be so in each state; the value is one sentence."""

    S1 = "a reader finds each offset of its view, and a commit names the epochs that its writer's log has"
    S2 = "no committed record is hidden below log.start but by the retention policy"
    S3 = "once the leader has settled, each offset of the view has a living copy or a gap record"
    S4 = "the leader alone, started again, commits all its closed segments and brings log.start to the commit's lineage"
    S5 = "the lineage of log.start never falls"
    R1 = "the floor is not above the start"
    R2 = "no living record is deleted that readers did not lose sight of for a grace"
    R3 = "what is hidden at the floor or above it is stored, and a hold shows what is stored and no floor is above"
    D1 = "an agent that ends, and reports no loss, leaves each committed offset stored or in a gap record"
    D2 = "if a directory stays, its agent gets each record below the high watermark that it counts into the archive"
    D3 = "no record of a deleted topic is shipped that was not committed"
    D4 = "the records of two topics of one name are never in one incarnation, and readers use the later topic's"
    D5 = "from the begin of its agent's log on, no gap record has a record that the last leader's agent can ship"
    D6 = "the leader epoch of the commit never falls"
    H1 = "a reader of a restored partition returns at each offset of its view the record of the log that was committed"
    H2 = "no segment is shipped that has restored records alone"
    H3 = "until retention passes them, a reader returns all restored records"
    P1 = "an agent that trusts its own row has nothing to write"
    P2 = "an agent that trusts a forged row reads the position later"
    P3 = "a row puts no segment beyond the end of the run"
    E1 = "once a request to erase has ended, no reader that begins then shows a record of it, or of a lower epoch"
    E2 = "the greatest list has each offset of each request that has ended, with its epoch or a higher one"
    E3 = "unless a list was lost, log.start names no list above the greatest, and no reader or eraser fails permanently"
    E4 = "a record of a higher epoch than those that were erased at its offset is shown"
    C1 = "a reader by sealed objects finds each offset of its view that is stored, in an object that exists"
    C2 = "a reader by sealed objects returns each offset once, and the record of the log that its commit names"
    C3 = "a reader that begins after the answer to a repair reads the good copy"


class Violation(Exception):
    """A state or a step that breaks a property."""

    def __init__(self, broken: Property, what: str) -> None:
        super().__init__(f"{broken.name} {what}")
        self.broken = broken
