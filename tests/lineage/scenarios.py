"""What happens to Kafka, and which faults, in each run of the model.

A name that ends with `-` is the run without a reader and with one pass on a plan. Four runs exist only so: with a
reader they have many millions of states.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from tests.lineage.kafka import Moment, history
from tests.lineage.state import Faults

_NONE = Faults()


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        script: of Kafka.
        rolls: records per segment of each broker while it follows.
        reader: whether a query runs.
        plans: how many plans the collector makes.
        passes: how many times it works on one.
        faults: that may happen, at any point.
        java_first: a Java uploader shipped what the first leader closed, in place of its agent.
    """

    script: str
    rolls: tuple[int, int] = (1, 1)
    reader: bool = True
    plans: int = 1
    passes: int = 2
    faults: Faults = _NONE
    java_first: bool = False

    @cached_property
    def history(self) -> tuple[Moment, ...]:
        """What Kafka does."""
        return history(self.script, self.rolls)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The script's."""
        return tuple(stage.strip() for stage in self.script.split("|"))

    def without_reader(self) -> "Scenario":
        """Return the same without a reader, and with one pass on each plan."""
        return replace(self, reader=False, passes=1)


_LOSSY = "elect=0 segment=1 fetch segment=1 | elect=1 segment=1 | segment=1"
_THERE_AND_BACK = "elect=0 segment=1 fetch segment=1 | elect=1 segment=1 | elect=0 segment=1"
_SHORT_LOSSY = "elect=0 segment=1 fetch segment=1 | elect=1 segment=1"
_LOST, _JAVA, _KILLED = Faults(losses=1), Faults(java=1), Faults(kills=1)

SCENARIOS = {
    # A clean election, and elections that lose records: all, some, within a segment, with local retention.
    "clean": Scenario("elect=0 segment=1 segment=2 fetch | elect=1 segment=1", (2, 1)),
    "unclean": Scenario("elect=0 segment=1 fetch segment=1 segment=1 | elect=1 segment=1 | segment=1"),
    "empty": Scenario("elect=0 segment=1 segment=1 wipe=1 | elect=1 segment=1 | segment=1"),
    "mid": Scenario("elect=0 segment=1 record fetch segment=2 | elect=1 segment=1 | segment=1", (2, 2)),
    "trimmed": Scenario("elect=0 segment=1 segment=1 fetch retain=1 segment=1 | elect=1 segment=1 | segment=1"),
    # A dead line leads again: nothing shared, one record shared, longer, two records a segment, the first line emptied.
    "back-empty": Scenario("elect=0 segment=1 segment=1 | elect=1 segment=1 | elect=0 segment=1"),
    "back": Scenario(_THERE_AND_BACK),
    "back-long": Scenario(
        "elect=0 segment=1 fetch segment=1 segment=1 | elect=1 segment=1 segment=1 | elect=0 segment=1"
    ),
    "back-two": Scenario("elect=0 segment=1 fetch segment=2 | elect=1 segment=1 | elect=0 segment=1", (2, 2)),
    "back-wiped": Scenario(
        "elect=0 segment=1 segment=1 fetch segment=1 | elect=1 segment=1 wipe=0 | elect=0 segment=1 segment=1"
    ),
    # Gaps.
    "gap": Scenario("elect=0 segment=1 fetch segment=1 | segment=1 retain=0 retain=0 | elect=1 segment=1"),
    "gap-wiped": Scenario(
        "elect=0 segment=1 | fetch segment=1 segment=1 retain=0 | elect=1 segment=1 | wipe=0 elect=0 segment=1"
    ),
    # The commit is lost, or Java writes over it.
    "lost": Scenario(_LOSSY, reader=False, faults=_LOST),
    "lost-read": Scenario(_SHORT_LOSSY, passes=1, faults=_LOST),
    "lost-back": Scenario(_THERE_AND_BACK, reader=False, passes=1, faults=_LOST),
    "java": Scenario(_LOSSY, reader=False, faults=_JAVA),
    "java-read": Scenario(_SHORT_LOSSY, passes=1, faults=_JAVA),
    "java-back": Scenario(_THERE_AND_BACK, reader=False, passes=1, faults=_JAVA),
    "java-first": Scenario(_LOSSY, reader=False, faults=_JAVA, java_first=True),
    "java-first-back": Scenario(_THERE_AND_BACK, passes=1, faults=_JAVA, java_first=True),
    # An agent is killed; the collector makes a second plan.
    "killed": Scenario(_LOSSY, reader=False, faults=_KILLED),
    "plans": Scenario("elect=0 segment=1 fetch segment=2 | elect=1 segment=2", (2, 1), reader=False, plans=2),
    "plans-lossy": Scenario(_LOSSY, reader=False, plans=2),
}
_WITHOUT_READER = {f"{name}-": run.without_reader() for name, run in SCENARIOS.items() if run.reader}
for _vast in ("back-long", "back-two", "back-wiped", "gap-wiped"):
    del SCENARIOS[_vast]
SCENARIOS |= _WITHOUT_READER
"""By name."""
