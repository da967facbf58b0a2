"""Marks of a table: a partition by hour or day that all Kafka partitions have passed.

A Kafka partition has passed an hour when a claimed record of a later hour was in it. That is a mark, no proof: a record
can be late. Such rows are added, and counted. A time in the future passes nothing but the current hour.

A commit advances the mark in the table's state. Then the mark is announced: `_SUCCESS` in the directories of plain
files, and a command. A run that ended before is repeated by the next one, so a command can run twice for an hour.
"""

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ts_common.errors import OperatorError
from ts_tables.claims.state import TableState
from ts_tables.files.partitioning import Term, Transform, shown_day, shown_hour
from ts_tables.planning.work import Work
from ts_tables.targets import Added, OpenedTable, Target
from ts_tables.tasks import TaskResult

_COMMAND_SECONDS: Final = 600
_SHOWN: Final = 300  # characters of what a command printed


@dataclass(frozen=True, slots=True)
class Marking:
    """How the partitions of a table are marked.

    Attributes:
        at: the place of the hour or day in a partition key.
        unit: seconds of one.
        after: seconds that a Kafka partition is beyond the end of what it has passed.
        idle: a Kafka partition is left out if it has no later record, and no lag, for so many seconds; None: never.
        command: run for each hour or day that is marked; None without.
    """

    at: int
    unit: int
    after: int = 0
    idle: int | None = None
    command: str | None = None

    @classmethod
    def of(cls, terms: Sequence[Term], after: int, idle: int | None, command: str | None) -> "Marking | None":
        """Return how a table with a partition key is marked; None if the key has no hour and no day."""
        units = {Transform.HOUR: 3600, Transform.DAY: 86_400}
        for at, term in enumerate(terms):
            if term.transform in units:
                return cls(at, units[term.transform], after, idle, command)
        return None

    def advanced(
        self, state: TableState, work: Sequence[Work], results: Sequence[TaskResult], lag: Mapping[str, int], now: float
    ) -> TableState:
        """Return a state after a commit, with what its Kafka partitions have passed, and the mark.

        Args:
            state: after the commit, without that.
            work: parts that it adds.
            lag: offsets of each topic that are shipped and not claimed.
            now: seconds since 1970.
        """
        current = int(now) // self.unit
        for part, result in zip(work, results, strict=True):
            numbers = [each["key"][self.at] for each in result.files if each["key"][self.at] is not None]
            if numbers:
                state = _passing(state, part, min(max(numbers), current))
        passed = [
            self._passed(partition.passed, now, has_lag=bool(lag.get(topic, 0)))
            for topic, incarnations in state.topics.items()
            for each in incarnations[-1:]  # nothing follows in former incarnations
            for partition in each.partitions.values()
            if partition.passed is not None
        ]
        if not passed:
            return state
        reached = min(passed) - -(-self.after // self.unit)
        is_known = state.marked is not None and state.marked >= reached
        return state if is_known else replace(state, marks=(state.announced, reached))

    def _passed(self, latest: int, now: float, *, has_lag: bool) -> int:
        """Return what a partition has passed, by the latest hour or day of its rows; an idle one delays no mark."""
        if self.idle is None or has_lag or now - latest * self.unit <= self.idle + self.unit:
            return latest
        return (int(now) - self.idle) // self.unit

    def late(self, before: TableState, results: Iterable[TaskResult]) -> int:
        """Return the number of new rows of partitions that were marked before.

        Args:
            before: the state before the commit.
            results: of the parts that it adds.
        """
        if before.marked is None:
            return 0
        return sum(
            each["statistics"]["record_count"] if "statistics" in each else each["rows"]
            for result in results
            for each in result.files
            if each["key"][self.at] is not None and each["key"][self.at] < before.marked
        )

    def end(self, state: TableState) -> int | None:
        """Return the end of what is marked, in seconds since 1970; None if nothing is."""
        return None if state.marked is None else state.marked * self.unit

    def shown(self, number: int) -> str:
        """Return an hour or a day as text, as in names of directories."""
        return shown_day(number) if self.unit > 3600 else shown_hour(number)


def announce(target: Target, opened: OpenedTable, marking: Marking, name: str) -> tuple[tuple[str, ...], OpenedTable]:
    """Announce what was marked since the last time; return that, as `Marking.shown`, and the table after it.

    Args:
        opened: as it is now.
        name: of the table, for the command.

    Raises:
        OperatorError: the command failed; the next run repeats it.
        others: as the target raises them.
    """
    state = opened.state
    if state.marked is None:
        return (), opened
    held = [each["key"][marking.at] for each in opened.held() if each["key"][marking.at] is not None]
    end = min([state.marked, *held])  # readers do not see held rows
    if state.announced is not None and end <= state.announced:
        return (), opened
    new = [
        key
        for key in opened.partition_keys()
        if key[marking.at] is not None and _is_between(key[marking.at], state.announced, end)
    ]
    target.mark(new)
    found = tuple(marking.shown(number) for number in sorted({key[marking.at] for key in new}))
    for each in found if marking.command is not None else ():
        _run(shlex.split(marking.command or ""), {"TS_TABLE": name, "TS_PARTITION": each})
    added = Added((), (), late=0, valid_through=None, held=opened.held())
    with target.change(opened) as change:
        return found, change.commit(replace(state, marks=(end, state.marked)), added)


def _is_between(number: int, start: int | None, end: int) -> bool:
    return number < end and (start is None or number >= start)


def _passing(state: TableState, work: Work, number: int) -> TableState:
    topic, partition = work.partition.topic, work.partition.partition
    for each in state.topics.get(topic, ()):
        known = each.partitions.get(partition)
        if each.topic_id == work.topic_id and known is not None and (known.passed is None or known.passed < number):
            changed = {**each.partitions, partition: replace(known, passed=number)}
            state = state.with_incarnation(topic, replace(each, partitions=changed))
    return state


def _run(command: Sequence[str], variables: Mapping[str, Any]) -> None:
    label = f"the command of marks, {shlex.join(command)}, for {variables['TS_PARTITION']}"
    try:
        done = subprocess.run(  # noqa: S603  (the command of the operator)
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperatorError(f"{label}: {error}; the next run repeats it") from error
    if done.returncode:
        printed = (done.stderr or done.stdout).decode(errors="replace").strip()[-_SHOWN:]
        raise OperatorError(f"{label}: exit code {done.returncode}; the next run repeats it: {printed}")
