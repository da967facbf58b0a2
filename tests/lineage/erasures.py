"""The histories with erasers: the erase rules together with agents, collectors and readers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tests.lineage.erase_rules import EraseRule
from tests.lineage.scenarios import FIRST, THERE_AND_BACK, THREE, TWO, Scenario
from tests.lineage.state import Faults, Records


def _of(*records: tuple[int, int]) -> Records:
    """A request for records, each named by offset and epoch."""
    return frozenset(records)


_ANY: Final = (_of((0, 1)), _of((1, 1)))


def _erasing(
    script: str, *erases: Iterable[Records], runs: tuple[int, ...] = (), older: bool = False, **faults: int
) -> Scenario:
    """An archive that is shipped, erasers, and a reader."""
    requests = tuple(map(tuple, erases))
    return Scenario(script, (1, 1), True, runs, Faults(**faults), shipped=0, erases=requests, older=older)


_FOUR: Final = f"{TWO} segment=1 segment=1"
_LOSSY: Final = f"{FIRST} segment=1 | elect=1 segment=1"
_THREE_REQUESTS: Final = (_of((0, 1)), _of((1, 1)), _of((2, 1)))
_ONE: Final = (_of((1, 1)),)
ERASURES: Final = {
    # Lists and readers alone: twins, two requests, killed erasers, one that is late by three lists.
    "erase-twins": _erasing(TWO, _ANY[:1], _ANY[:1], erasers=1),
    "erase-two": _erasing(TWO, _ANY[:1], _ANY[1:], erasers=1),
    "erase-late": replace(_erasing(_FOUR, _THREE_REQUESTS, (_of((3, 1)),)), late_eraser=True),
    "erase-removed": _erasing(_FOUR, _THREE_REQUESTS, erasers=2),
    "erase-killed": replace(
        _erasing(_FOUR, _THREE_REQUESTS, (_of((3, 1)),), erasers=3), late_eraser=True, reader=False
    ),
    "erase-list-lost": _erasing(TWO, _ANY, lists=1),
    "erase-two-lists-lost": _erasing(TWO, _ANY[:1], _ANY[1:], lists=1, erasers=1),
    # An election loses the record; the discarded log leads again; both copies are the person's.
    "erase-back": _erasing(_LOSSY, _ONE),
    "erase-back-older": _erasing(_LOSSY, _ANY[:1], older=True),
    "erase-again": _erasing(THERE_AND_BACK, _ONE),
    "erase-both": _erasing(_LOSSY, (_of((1, 1), (1, 2)),)),
    "erase-both-apart": _erasing(_LOSSY, (_of((1, 2)), _of((0, 1), (1, 1)))),
    "erase-commit-lost": _erasing(_LOSSY, _ONE, losses=1),
    # `log.start` is lost, with or without a copy; forged.
    "erase-start-lost": _erasing(TWO, _ONE, starts=1, kills=1),
    "erase-start-lost-older": _erasing(TWO, _ONE, older=True, starts=1),
    "erase-forged": _erasing(TWO, _ONE, forged=1),
    # With the collector, and with an election.
    "erase-gc": _erasing(TWO, _ANY[:1], runs=(2,), holds=1),
    "erase-gc-older": _erasing(TWO, _ONE, runs=(1,), older=True),
    "erase-gc-lost": _erasing(TWO, _ONE, runs=(1,), starts=1),
    "erase-both-lost": replace(_erasing(TWO, runs=(1,), starts=1, lists=1), erased=_ONE[0]),
    "erase-gc-twins": replace(_erasing(TWO, _ANY[:1], _ANY[:1], runs=(2,), holds=2), reader=False),
    "erase-gc-two": replace(_erasing(TWO, _ANY[:1], runs=(1, 1), holds=1), reader=False),
    "erase-gc-killed": _erasing(THREE, _ANY[:1], runs=(3,), ends=1, erasers=1),
    "erase-gc-back": replace(_erasing(_LOSSY, _ANY[:1], runs=(2,)), reader=False),
    "erase-gc-back-older": _erasing(_LOSSY, _ANY[:1], runs=(1,), older=True),
    "erase-gc-back-lost": replace(_erasing(_LOSSY, _ANY[:1], runs=(1,), starts=1), reader=False),
    "erase-commit-and-start-lost": _erasing(TWO, _ONE, starts=1, losses=1, kills=1),
}

# Where each clause's counterexample is.
DROPPED: Final = {
    EraseRule.BATCH_EPOCH: "erase-both",
    EraseRule.HIGHER_SHOWS: "erase-back",
    EraseRule.DEAD_TAILS: "erase-again",
    EraseRule.BELOW_START: "erase-gc",
    EraseRule.EPOCH_STAYS: "erase-both-apart",
    EraseRule.CONTAINS: "erase-two",
    EraseRule.STOPS: "erase-list-lost",
    EraseRule.LOG_START_READ_FIRST: "erase-twins",
    EraseRule.WHERE_NONE: "erase-two",
    EraseRule.LISTS_AGAIN: "erase-killed",
    EraseRule.TAKES_IF_THERE: "erase-killed",
    EraseRule.LIST_FIRST: "erase-twins",
    EraseRule.ON_ETAG: "erase-back",
    EraseRule.NAMES_THE_LIST: "erase-list-lost",
    EraseRule.ERASER_CARRIES: "erase-back",
    EraseRule.AGENT_CARRIES: "erase-back-older",
    EraseRule.COLLECTOR_CARRIES: "erase-gc-older",
    EraseRule.LISTING_COUNTS: "erase-start-lost-older",
    EraseRule.COPY_COUNTS: "erase-both-lost",
    EraseRule.COPY_CARRIES: "erase-both-lost",
    EraseRule.VERSION_3: "erase-back-older",
    EraseRule.GREATEST: "erase-removed",
    EraseRule.NAMED_EXISTS: "erase-list-lost",
    EraseRule.READS_AGAIN: "erase-twins",
    EraseRule.LISTED_ETAG: "erase-late",
}
