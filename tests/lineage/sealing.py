"""The model of sealed cache objects (protocol rule 16, reading rule 10): its states, and the clauses.

A partition has the offsets 0 to 5. Broker 1 has the segments [0,2) and [2,4), broker 2 has [3,6), which is late: it
begins below a sealed end of 4. The agents of both seal, in any order of single store operations, and each can be late
with every operation. A repair puts a good copy of [2,4), and can be killed. An election can lose the records from 3 on.
A commit can pass the offsets 4 and 5 by a gap record that broker 2's agent fills later. They can also be in a segment
[4,6) whose record at 4 compaction removed; broker 2's segment has that record. Retention can have removed [0,2), and
`log.start` can be lost then. Any identity can write an earlier `seal.json` again, with another lineage and any sealed
object, or other bytes under a sealed object's name. Records are named by their log, 1 or 2.
"""

from typing import Final, NamedTuple

from tests.lineage.clauses import Described

LATE_BASE: Final = 3  # of broker 2's segment, and where the logs part
ANSWERED: Final = 4  # steps of a repair
SHORT: Final = "a0 whole"  # a damaged sealed object: its one row claims all offsets below 4


class Segment(NamedTuple):
    """A `.log`: its coverage, the log of its records, whether its name is plain, and an offset without a record.

    Below `LATE_BASE` both logs have the same records.
    """

    base: int
    end: int
    log: int = 1
    plain: bool = True
    compacted: int | None = None


SEGMENTS: Final = {
    "a0": Segment(0, 2),
    "a1": Segment(2, 4),
    "good": Segment(2, 4, plain=False),  # names a1 in `ts-replaces`
    "compacted": Segment(4, 6, compacted=4),
    "late": Segment(3, 6),
    "other": Segment(3, 4, log=2),
    "more": Segment(4, 6, log=2),
    SHORT: Segment(0, 4),
}


class Rule16(Described):
    """A clause that the model can drop; each member's docstring names what it is of."""

    ON_ETAG = (
        "etag",
        """An agent writes `seal.json` on the ETag that it read.
        Without it (C3): it seals a range that a repair has unsealed since its listing.""",
    )
    LIST_AFTER = (
        "list",
        """An agent lists after it has read `seal.json`.
        Without it (C3): a repair begins and ends in between, and the sealed object lacks its good copy.""",
    )
    TOKEN = (
        "token",
        """A repair enters a token, also where nothing is sealed.
        Without it (C3): an agent reads `seal.json` and lists before the repair puts, and seals after it.""",
    )
    OVER_TOKEN = (
        "over",
        """An agent never seals over a token.
        Without it (C3): it reads `seal.json` with the token, lists before the repair puts, and seals.""",
    )
    DROPS = (
        "drop",
        """The write that enters the token drops the ranges.
        Without it (C3): readers use the sealed object, which lacks the good copy.""",
    )
    TOKEN_STAYS = (
        "stays",
        """The token is removed after the put only.
        Without it (C3): an agent lists between the removal and the put, and seals.""",
    )
    WHOLE = (
        "whole",
        """A sealed object has every `.log` that begins in its range.
        Without it (C3): an agent that begins after the repair leaves out the good copy, which has no plain name.""",
    )
    DENSE = (
        "dense",
        """The segments of a sealed object have a record at each offset.
        Without it (C1): a late segment that begins in the sealed range has a record that compaction removed there.""",
    )
    OF_COMMIT = (
        "commit",
        """A reader uses sealed objects of the commit's lineage and epochs only.
        Without it (C2): the agent of a discarded log sealed its records.""",
    )
    HOLES = (
        "holes",
        """A reader lists all if what it found leaves a hole.
        Without it (C1): it never sees the segment that begins below the sealed end.""",
    )
    RECORDED = (
        "recorded",
        """A recorded gap is such a hole.
        Without it (C1): a late segment has filled the gap, and readers return the gap.""",
    )
    COMPACTED = (
        "compacted",
        """A reader lists all if a copy above a sealed end lacks a record.
        Without it (C1): a late segment has that record, begins below the sealed end, and leaves no hole.""",
    )
    CHECKED = (
        "crc",
        """A reader compares a sealed object with the CRC-32C in its name.
        Without it (C2): another identity wrote other rows there, and the reader returns fewer records.""",
    )
    STARTED = (
        "started",
        """A reader without `log.start` lists all.
        Without it (C1): the view begins at a segment that retention removed.""",
    )


ALL_OF_16: Final = frozenset(Rule16)


class Commit(NamedTuple):
    """A commit: the next offset, and the log, which is its lineage too."""

    next: int = 4
    log: int = 1


class Sealed(NamedTuple):
    """A sealed object: its rows and its lineage."""

    rows: tuple[str, ...]
    log: int

    @property
    def end(self) -> int:
        """Where its range ends."""
        return SEGMENTS[self.rows[-1]].end


class SealJson(NamedTuple):
    """`seal.json`: its nonce, the sealed object of the one range, whether a token is entered."""

    nonce: int = 0
    sealed: Sealed | None = None
    token: bool = False


class Sealer(NamedTuple):
    """An agent that seals, with what it has read."""

    log: int
    step: int = 0
    json: SealJson | None = None
    listed: frozenset[str] = frozenset()


class Reader(NamedTuple):
    """A reader, with what it has read."""

    step: int = 0
    stored: frozenset[str] = frozenset()  # when it began
    answered: bool = False  # when it began
    commit: Commit = Commit()
    json: SealJson = SealJson()
    sealed: Sealed | None = None
    listed: frozenset[str] | None = None  # by a driver that reads a directory once, before `seal.json`


class State(NamedTuple):
    """The archive, and who works on it; None or a step beyond the last for what a scenario does not have."""

    commit: Commit = Commit()
    stored: frozenset[str] = frozenset({"a0", "a1"})
    gap: bool = False
    has_start: bool = True
    json: SealJson = SealJson()
    nonce: int = 0
    objects: frozenset[Sealed] = frozenset()
    damaged: frozenset[Sealed] = frozenset()
    sealers: tuple[Sealer, ...] = (Sealer(1),)
    ship: int = 9
    election: bool = False  # one follows that loses records
    repair: int = 9
    kills: int = 0
    forgeries: int = 0
    forged: bool = False
    reader: Reader = Reader()


SCENARIOS: Final = {
    "late": State(ship=0),
    "gap": State(commit=Commit(6), gap=True, ship=0),
    "compacted": State(commit=Commit(6), stored=frozenset({"a0", "a1", "compacted"}), ship=0),
    "lost": State(sealers=(Sealer(1), Sealer(2)), election=True),
    "repaired": State(repair=0, kills=1),
    "sealed": State(
        json=SealJson(1, Sealed(("a0", "a1"), 1)), nonce=1, objects=frozenset({Sealed(("a0", "a1"), 1)}), repair=0
    ),
    "two": State(sealers=(Sealer(1), Sealer(1)), repair=0),
    "retention": State(
        stored=frozenset({"a1"}),
        has_start=False,
        json=SealJson(1, Sealed(("a0", "a1"), 1)),
        nonce=1,
        objects=frozenset({Sealed(("a0", "a1"), 1)}),
        sealers=(),
    ),
    "forged-late": State(ship=0, forgeries=1),
    "forged-gap": State(commit=Commit(6), gap=True, ship=0, forgeries=1),
    "forged-compacted": State(commit=Commit(6), stored=frozenset({"a0", "a1", "compacted"}), ship=0, forgeries=1),
    "forged-lost": State(sealers=(Sealer(1), Sealer(2)), election=True, forgeries=1),
    "forged-repair": State(repair=0, kills=1, forgeries=1),
}
# Where each clause's counterexample is.
DROPPED: Final = {
    Rule16.ON_ETAG: "repaired",
    Rule16.LIST_AFTER: "repaired",
    Rule16.TOKEN: "repaired",
    Rule16.OVER_TOKEN: "repaired",
    Rule16.DROPS: "sealed",
    Rule16.TOKEN_STAYS: "repaired",
    Rule16.WHOLE: "repaired",
    Rule16.DENSE: "compacted",
    Rule16.OF_COMMIT: "lost",
    Rule16.HOLES: "late",
    Rule16.RECORDED: "gap",
    Rule16.COMPACTED: "compacted",
    Rule16.CHECKED: "forged-late",
    Rule16.STARTED: "retention",
}
