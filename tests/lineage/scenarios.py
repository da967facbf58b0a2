"""What happens to Kafka, and which faults, in each run of the model.

A name that ends with `-` is the run without a reader and with one pass on a plan. Four runs exist only so: with a
reader they have many millions of states.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from tests.lineage.kafka import Moment, history
from tests.lineage.state import Faults, LogStart

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
        shipped: whether the first leader's agent has shipped all.
        begins: where `log.start` is then.
        copy: of `log.start`, then.
    """

    script: str
    rolls: tuple[int, int] = (1, 1)
    reader: bool = True
    runs: tuple[int, ...] = (2,)
    faults: Faults = _NONE
    java_first: bool = False
    shipped: bool = False
    begins: int = 0
    copy: LogStart | None = None

    @cached_property
    def history(self) -> tuple[Moment, ...]:
        """What Kafka does."""
        return history(self.script, self.rolls)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The script's."""
        return tuple(stage.strip() for stage in self.script.split("|"))

    def without_reader(self) -> "Scenario":
        """Return the same without a reader."""
        return replace(self, reader=False)


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
    "lost-read": Scenario(_SHORT_LOSSY, faults=_LOST),
    "lost-back": Scenario(_THERE_AND_BACK, reader=False, faults=_LOST),
    "lost-back-once": Scenario(_THERE_AND_BACK, reader=False, runs=(1,), faults=_LOST),
    "java": Scenario(_LOSSY, reader=False, faults=_JAVA),
    "java-read": Scenario(_SHORT_LOSSY, faults=_JAVA),
    "java-back": Scenario(_THERE_AND_BACK, reader=False, faults=_JAVA),
    "java-first": Scenario(_LOSSY, reader=False, faults=_JAVA, java_first=True),
    "java-first-back": Scenario(_THERE_AND_BACK, faults=_JAVA, java_first=True),
    # An agent is killed; the collector runs three times.
    "killed": Scenario(_LOSSY, reader=False, faults=_KILLED),
    "plans": Scenario("elect=0 segment=1 fetch segment=2 | elect=1 segment=2", (2, 1), reader=False, runs=(3,)),
    "plans-lossy": Scenario(_LOSSY, reader=False, runs=(3,)),
}
_THREE = "elect=0 segment=1 segment=1 segment=1"
_BACK = "elect=0 segment=1 segment=1 segment=1 | elect=1 segment=1 segment=1"


def _archive(script: str = _THREE, *runs: int, **faults: int) -> Scenario:
    """An archive that is shipped, its collectors and faults, without a reader: the offsets that are hidden count."""
    return Scenario(script, reader=False, runs=runs or (2, 2), shipped=True, faults=Faults(**faults))


SCENARIOS |= {
    # One election each, for every change.
    "short-clean": Scenario("elect=0 segment=1 segment=1 fetch | elect=1 segment=1", reader=False),
    "short-lossy": Scenario("elect=0 segment=1 segment=1 | elect=1 segment=1 segment=1", reader=False),
    "short-lost": Scenario("elect=0 segment=1 segment=1 | elect=1 segment=1", reader=False, faults=_LOST),
    "short-back": Scenario("elect=0 segment=1 segment=1 | elect=1 segment=1 | elect=0 segment=1", reader=False),
    "short-read": Scenario("elect=0 segment=1 segment=1", (1, 1)),
    "two-collectors": _archive(_THREE, 2, 2, holds=2),
    "two-elections": _archive(_BACK, 2, 1),
    "start-lost": _archive(_THREE, 2, 1, starts=1, holds=1),
    "start-lost-back": _archive(_BACK, 2, starts=1),
    "forged": _archive(_THREE, 3, forged=1, holds=1),
    "forged-after-a-hold": _archive(_THREE, 4, forged=1, holds=2, ends=1),
    "commit-lost": _archive(_THREE, 2, losses=1, kills=1),
    "repaired": _archive(_THREE, 3, repairs=1, holds=1),
    "collector-killed": _archive(_THREE, 3, ends=2, holds=2),
    "older-release": replace(_archive(_THREE, 2, holds=2), begins=1),
    "overtaken": replace(_archive(_THREE, 2, starts=1, holds=2), copy=LogStart(1, None, 1)),
}
_WITHOUT_READER = {f"{name}-": run.without_reader() for name, run in SCENARIOS.items() if run.reader}
for _vast in ("back-long", "back-two", "back-wiped", "gap-wiped"):
    del SCENARIOS[_vast]
SCENARIOS |= _WITHOUT_READER
"""By name."""
