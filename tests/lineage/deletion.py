"""The model of a deleted topic (protocol rule 14): its states, its scenarios, and the clauses.

The topic's last leader epochs are a script of `kafka`. Its agents ship closed segments, each late with every operation.
Then the topic is deleted, or one replica only moves away. The agent of each broker ships its `-delete` directory, which
the broker removes at any moment. The topic can be created again under a new id.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from tests.lineage.clauses import Described
from tests.lineage.kafka import Log, Moment, history
from tests.lineage.state import Commit, Store

REBORN = Log(0, (0, 1, 2), (1, 1), ((1, 0),))
"""The log of the topic that is created again, in leader epoch 1; the deleted one's records are then of later epochs."""


class Rule14(Described):
    """A clause of protocol rule 14 that the model can drop; each member's docstring begins with its number."""

    HAS_ID = (
        "hasid",
        """1: a directory without a topic id is not shipped.
        Without it (D4): the records of the deleted topic are stored beside those of the one that was created again.""",
    )
    DELETED = (
        "deleted",
        """2: the cluster no longer has the topic id.
        Without it (D5): the agent of a replica that moved records a gap of records that the leader has.""",
    )
    TWICE = (
        "twice",
        """2: an answer that late metadata can explain counts once it is given twice, at a distance.
        Without it (D5): as without DELETED.""",
    )
    CONTINUED = (
        "continued",
        """2: nor has the cluster a later id that an operator let continue the incarnation.
        Without it (D5): as without DELETED.""",
    )
    LATER_COMMIT = (
        "latercommit",
        """3: a commit of a higher leader epoch ends the work.
        Without it (D6): the agent of a replica that an election left behind moves the leader's commit back.""",
    )
    TOLD = (
        "told",
        """3: where such a commit ends below the directory's log, the agent reports that records may be lost.
        Without it (D1): the last leader's directory is removed before its agent starts again, and the agent of the
        other replica ends without a word.""",
    )
    OWN_INCARNATION = (
        "own",
        """4: objects belong to the incarnation of the directory's topic id.
        Without it (D2): the agent turns to the newest incarnation, which is another topic's, and the records of the
        deleted topic are not shipped.""",
    )
    OPENS_FIRST = (
        "opensfirst",
        """4: an incarnation is opened only if no other can be later.
        Without it (D4): readers find the deleted topic in place of the one that was created again.""",
    )
    READ_LIVE = (
        "readlive",
        """5: the directory was live after the checkpoint was read.
        Without it (D3): the high watermark of the topic that was created again counts for the deleted one.""",
    )
    TWO_INTERVALS = (
        "twointervals",
        """5: the broker wrote the checkpoint two intervals after the last leader epoch began.
        Without it (D3): a high watermark from before an unclean election counts for the log after it.""",
    )
    ONE_NAME = (
        "onename",
        """5: no other directory has the name of the checkpoint's entry.
        Without it (D3): as without READ_LIVE, after a restart of the agent.""",
    )
    CUT = (
        "cut",
        """6: a segment is cut at the high watermark.
        Without it (D3): records that were never committed are shipped.""",
    )
    REST = (
        "rest",
        """7: what is left becomes a gap.
        Without it (D1): the offsets above the high watermark are in no gap record.""",
    )
    ONLY_LEADER = (
        "onlyleader",
        """7: while a directory exists, only an agent that saw its broker lead in the epoch records the rest.
        Without it (D5): another replica's agent records a gap of records that the last leader's agent can ship.""",
    )
    FILLS = (
        "fills",
        """7: what an agent has of a recorded gap, it ships into the gap.
        Without it (D2): the last leader's agent recorded a gap; the agent of a follower with a later high watermark
        leaves it.""",
    )
    SHORTER = (
        "shorter",
        """7: a log that ends below the commit of its own leader epoch is no loss, because the commit passes the end of
        the last leader's log.
        Without it (D2): as without FILLS, if the follower's log is the shorter one.""",
    )
    BEGINS = (
        "begins",
        """9: an agent that did not see its broker lead begins an archive at 0, with a gap below its log.
        Without it (D2): the agent of a follower whose log begins above the leader's hides what the leader has.""",
    )


ALL_OF_14 = frozenset(Rule14)


class Do(StrEnum):
    """What an agent does next."""

    SEE = "list the log dir"
    ASK = "GET the list of incarnations; is the topic deleted?"
    OPEN = "GET the list of incarnations"
    PUT_LIST = "PUT the list of incarnations"
    READ = "GET offset.wm"
    LIST = "list the partition"
    SHIP = "PUT a segment"
    COMMIT = "PUT offset.wm"
    REST = "list the partition, for a gap up to the log's end"
    GAP = "PUT a gap record"
    PASS = "PUT offset.wm, beyond the gap"
    DONE = "nothing more"
    LOST = "nothing more, after it reported that records may be lost"


class Worker(NamedTuple):
    """An agent's work on one directory.

    Attributes:
        do: its next operation.
        known: the high watermark that it counts; None without one.
        restarted: it has forgotten what it read of the live directory.
        log: whether it has read the log's end and epochs.
        ids: the list of incarnations, as read.
        commit: as read or written; None without one.
        draft: the commit that it writes next.
        gaps: offsets of gap records that it can fill.
    """

    do: Do
    known: int | None = None
    restarted: bool = False
    log: bool = False
    ids: tuple[int, ...] = ()
    commit: Commit | None = None
    draft: Commit | None = None
    gaps: frozenset[int] = frozenset()


class Faults(NamedTuple):
    """How many more of each may happen: agents killed, wrong answers from late metadata."""

    kills: int = 0
    late_answers: int = 0


class State(NamedTuple):
    """All of it.

    Attributes:
        deleted: the directories are renamed.
        reborn: the topic was created again.
        removed: whether each broker has removed its `-delete` directory.
        ids: of the list of incarnations, in its order: 0 of the deleted topic, 1 of the one that was created again.
        archives: by id.
        deleting: the agent of each broker, on its `-delete` directory.
        leading: the agents of live directories: one for each leader epoch, then that of the topic created again.
        faults: that may still happen.
    """

    deleted: bool
    reborn: bool
    removed: tuple[bool, ...]
    ids: tuple[int, ...]
    archives: tuple[Store, ...]
    deleting: tuple[Worker, ...]
    leading: tuple[Worker, ...]
    faults: Faults


@dataclass(frozen=True)
class Deletion:
    """One run.

    Attributes:
        script: of Kafka, up to the deletion.
        committed: the high watermark at the deletion: records from it on were never acknowledged.
        counted: for each broker the last high watermark that its agent counts.
        checkpoint: for each broker the one that its agent finds after a restart; None without one.
        early: for each broker an entry of the checkpoint from before its last leader epoch; None without one.
        rolls: as in `kafka.history`.
        removed: the broker whose directory was removed before its agent could list it; None without one.
        reborn: whether the topic is created again, with a log whose records are all committed.
        moved: the broker whose replica moves away from a topic that stays; None if the topic is deleted.
        continued: an operator let a later id, which the cluster has, continue the incarnation.
        has_id: whether the directories have topic ids.
        late: whether operations of the live directories' agents reach the store after the deletion, one a step; else
            each of their commits is one step.
        faults: that may happen.
    """

    script: str
    committed: int
    counted: tuple[int, int]
    checkpoint: tuple[int | None, int | None] = (None, None)
    early: tuple[int | None, int | None] = (None, None)
    rolls: tuple[int, int] = (1, 1)
    removed: int | None = None
    reborn: bool = False
    moved: int | None = None
    continued: bool = False
    has_id: bool = True
    late: bool = False
    faults: Faults = field(default_factory=Faults)

    @cached_property
    def history(self) -> tuple[Moment, ...]:
        """What Kafka does before the deletion."""
        return history(self.script, self.rolls)

    @property
    def last(self) -> Moment:
        """The state of Kafka at the deletion."""
        return self.history[-1]


_PLAIN = "elect=0 segment=1 record record fetch"
_AGAIN = "elect=0 elect=0 segment=1 record record fetch"
_SHORT = "elect=0 segment=1 record record fetch record"
_UNCLEAN = "elect=0 segment=1 fetch record record | elect=1 record"

DELETIONS = {
    "deleted-active": Deletion("elect=0 record record fetch", committed=2, counted=(2, 1)),
    "deleted": Deletion(_PLAIN, committed=2, counted=(2, 1)),
    "deleted-late": Deletion(_PLAIN, committed=3, counted=(2, 1), late=True),
    "deleted-killed": Deletion(_PLAIN, committed=3, counted=(2, 1), checkpoint=(2, None), faults=Faults(kills=1)),
    "deleted-follower-later": Deletion(_PLAIN, committed=3, counted=(1, 2)),
    "deleted-follower-shorter": Deletion(_SHORT, committed=3, counted=(1, 2)),
    "deleted-follower-begins": Deletion(f"{_PLAIN} retain=1", committed=3, counted=(3, 2)),
    "deleted-unclean": Deletion(_UNCLEAN, committed=2, counted=(1, 2)),
    "deleted-unseen": Deletion("elect=0 segment=1 record fetch | elect=1", committed=2, counted=(2, 2), removed=1),
    "deleted-early": Deletion(
        "elect=0 segment=1 fetch record | elect=1 record fetch",
        committed=1,
        counted=(1, 1),
        early=(2, 2),
        faults=Faults(kills=1),
    ),
    "deleted-reborn": Deletion(_AGAIN, committed=1, counted=(1, 1), reborn=True, faults=Faults(kills=1)),
    "deleted-no-id": Deletion(
        "elect=0 elect=0 segment=1 record", committed=2, counted=(2, 0), reborn=True, has_id=False
    ),
    "moved": Deletion(_PLAIN, committed=3, counted=(3, 1), moved=1, faults=Faults(late_answers=1)),
    "moved-continued": Deletion(_PLAIN, committed=3, counted=(3, 1), moved=1, continued=True),
}
"""By name."""
