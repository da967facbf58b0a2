"""What happens to Kafka, and which faults, in each run of the model."""

from dataclasses import dataclass, replace
from functools import cached_property

from tests.lineage.kafka import Moment, history
from tests.lineage.state import Do, Faults, LogStart, Records

_NONE = Faults()


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        script: of Kafka.
        rolls: records per segment of each broker while it follows.
        reader: whether a query runs.
        runs: of each collector.
        faults: that may happen, at any point.
        java_first: a Java uploader shipped what the first leader closed, in place of its agent.
        shipped: the last stage that has passed, each with its leader's agent alone; None: nothing is archived.
        late: the operation that the agent of epoch 1 is late with, after it found no commit; None: none.
        begins: where `log.start` is then.
        copy: of `log.start`, then.
        lacks: base of a segment that is lost then.
        erases: of each eraser its requests.
        erased: what an erasure that has ended has in the first list; the copy of `log.start` names that too.
        late_eraser: whether the last eraser has read that there is no list, and is late with what follows.
        older: whether the reader is of a release without lists of erased offsets.
    """

    script: str
    rolls: tuple[int, int] = (1, 1)
    reader: bool = False
    runs: tuple[int, ...] = (2,)
    faults: Faults = _NONE
    java_first: bool = False
    shipped: int | None = None
    late: Do | None = None
    begins: int = 0
    copy: LogStart | None = None
    lacks: int | None = None
    erases: tuple[tuple[Records, ...], ...] = ()
    erased: Records = frozenset()
    late_eraser: bool = False
    older: bool = False

    @cached_property
    def history(self) -> tuple[Moment, ...]:
        """What Kafka does."""
        return history(self.script, self.rolls)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The script's."""
        return tuple(stage.strip() for stage in self.script.split("|"))


FIRST = "elect=0 segment=1 fetch"
LOSSY = f"{FIRST} | segment=1 | elect=1 segment=1 | segment=1"
THERE_AND_BACK = f"{FIRST} segment=1 | elect=1 segment=1 | elect=0 segment=1"
TWO = "elect=0 segment=1 segment=1"
THREE = f"{TWO} segment=1"
BACK = f"{THREE} | elect=1 segment=1 segment=1"


def _empty(script: str, **faults: int) -> Scenario:
    """Nothing is archived, so the first leader's agent can be late with everything."""
    return Scenario(script, faults=Faults(**faults))


def _archive(script: str = THREE, *runs: int, **faults: int) -> Scenario:
    """An archive that is shipped, its collectors and faults."""
    return Scenario(script, runs=runs or (2,), shipped=0, faults=Faults(**faults))


def _late(do: Do) -> Scenario:
    """The agent of epoch 1 found no commit, and is two epochs late with what follows."""
    script = "elect=0 | elect=0 segment=1 segment=1 | elect=1 segment=1 segment=1"
    return replace(_archive(script, 1, losses=1), shipped=1, late=do)


SCENARIOS = {
    # The first elections of an archive: clean, lossy, with a lost commit, local retention; and a reader.
    "short-clean": _empty(f"{TWO} fetch | elect=1 segment=1"),
    "short-lossy": _empty(f"{TWO} | elect=1 segment=1 segment=1"),
    "short-lost": _empty(f"{TWO} | elect=1 segment=1", losses=1),
    "short-read": replace(_empty(TWO), reader=True),
    "trimmed": _empty(f"{TWO} fetch retain=1 segment=1 | elect=1 segment=1"),
    "gap": _empty(f"{FIRST} segment=1 | segment=1 retain=0 retain=0 | elect=1 segment=1"),
    # Later elections: clean, and those that lose some records, all, or part of a segment; with a reader.
    "clean": replace(_archive("elect=0 segment=1 | segment=2 fetch | elect=1 segment=1"), rolls=(2, 1)),
    "unclean": _archive(f"{FIRST} | segment=1 segment=1 | elect=1 segment=1 | segment=1"),
    "emptied": _archive("elect=0 segment=1 | segment=1 wipe=1 | elect=1 segment=1 | segment=1"),
    "mid": replace(_archive("elect=0 segment=1 record fetch segment=2 | elect=1 segment=1 | segment=1"), rolls=(2, 2)),
    "read": replace(_archive(f"{FIRST} segment=1 | elect=1 segment=1"), reader=True),
    # A dead line leads again: nothing shared, one record shared, two records a segment, the first line emptied.
    "back-empty": _archive(f"{TWO} | elect=1 segment=1 | elect=0 segment=1"),
    "back": _archive(THERE_AND_BACK),
    "back-two": replace(_archive(f"{FIRST} segment=2 | elect=1 segment=1 | elect=0 segment=1"), rolls=(2, 2)),
    "gap-wiped": _archive(
        "elect=0 segment=1 | fetch segment=1 segment=1 retain=0 | elect=1 segment=1 | wipe=0 elect=0 segment=1"
    ),
    # A line whose variants a deletion lists leads again.
    "variant-back": replace(_archive("elect=0 segment=1 | elect=1 segment=1 segment=1 | elect=0 | elect=1"), shipped=1),
    # A second election goes back before an agent has written `log.start` of the first one's lineage.
    "skipped": _archive(f"{FIRST} segment=1 segment=1 | elect=1 segment=1 fetch segment=1 | elect=0 segment=1", 1),
    # The commit is lost, or Java writes over it.
    "lost": _archive(LOSSY, losses=1),
    "lost-read": replace(_archive(f"{FIRST} segment=1 | elect=1 segment=1", losses=1), reader=True),
    "lost-back": _archive(f"{TWO} | elect=1 segment=1 | elect=0 segment=1", losses=1),
    "lost-twice": _archive(TWO, losses=2, kills=2),
    "commit-lost": _archive(losses=1, kills=1),
    "start-and-commit-lost": _archive(starts=1, losses=1, kills=1),
    "java": _archive(LOSSY, java=1),
    "java-read": replace(_archive(f"{FIRST} segment=1 | elect=1 segment=1", java=1), reader=True),
    "java-first": replace(_empty(f"{FIRST} segment=1 | elect=1 segment=1 | segment=1", java=1), java_first=True),
    "java-first-back": replace(_empty(THERE_AND_BACK, java=1), java_first=True),
    # An agent two epochs late creates the commit that was lost: as of an empty archive, or rebuilt.
    "created-late": _late(Do.COMMIT),
    "rebuilt-late": _late(Do.FIND_START),
    # The same, and the line that an election discarded leads again.
    "limit": replace(
        _archive(f"{TWO} | elect=1 segment=1 segment=1 | elect=0 segment=1", losses=1), shipped=1, late=Do.COMMIT
    ),
    # A second lineage begins in one epoch: another one, one that seems older to a reader, and an equal one.
    "one-epoch": replace(_archive("elect=0 segment=1 | elect=1 segment=1 segment=1", losses=1, kills=1), shipped=1),
    "one-epoch-read": replace(
        _archive("elect=0 segment=1 | elect=1 segment=1 segment=1 | segment=1 retain=1", losses=1),
        shipped=1,
        reader=True,
    ),
    "one-epoch-equal": replace(_archive(f"{TWO} | elect=1 segment=1 segment=1", losses=1, kills=1), shipped=1),
    # An agent is killed; collectors run three times, two at once, are killed; holds begin and end.
    "killed": _archive(LOSSY, kills=1),
    "runs": replace(_archive(f"{FIRST} segment=2 | elect=1 segment=2", 3), rolls=(2, 1)),
    "runs-lossy": _archive(f"{FIRST} segment=1 | elect=1 segment=1 | segment=1", 3),
    "collector-killed": _archive(THREE, 3, ends=2, holds=2),
    "two-collectors": _archive(THREE, 2, 2, holds=2),
    "two-elections": _archive(BACK, 2, 1),
    # `log.start` is lost, forged, or by an older release; a copy of a deletion that a hold overtook; a late repair.
    "start-lost": _archive(THREE, 2, 1, starts=1, holds=1),
    "start-lost-back": _archive(BACK, starts=1),
    "forged": _archive(THREE, 3, forged=1, holds=1),
    "forged-after-a-hold": _archive(THREE, 4, forged=1, holds=2, ends=1),
    "older-release": replace(_archive(holds=2), begins=1),
    "older-release-hole": replace(_archive(holds=1, repairs=1), begins=2, lacks=1),
    "overtaken": replace(_archive(starts=1, holds=2), copy=LogStart(1, None, 1)),
    "repaired": _archive(THREE, 3, repairs=1, holds=1),
}
"""By name."""
