"""`Scan.follow`: a scan that continues as commits move, in steps. Each step has the position after it.

The offsets of a step are planned as a batch of Spark's stream is (`ts_reader.following`), and read as a scan is.
"""

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from ts_common.errors import QueryError, ShorterView
from ts_common.store.shared_stores import shared_store
from ts_reader.following.follower import Follower, StepPlan
from ts_reader.following.offset import StreamOffset, decode_offset
from ts_reader.options.given import Given, Option, ValueType
from ts_reader.options.scan_options import stream_problems
from ts_reader.options.value_types import whole
from ts_reader.planned_query import ArrowRows, PlannedQuery
from ts_reader.query.query import Edge, Timestamp, Timestamps

LATEST: Final = "latest"
_SOURCE: Final = "arguments of follow"
_NOTHING: Final = StepPlan((), 0, 0, 0)

PositionArgument = Mapping[str, Any] | str | None


class Step(ArrowRows):
    """The offsets of all partitions from one position to the next; `Scan.follow` yields it.

    Its rows can be read as those of a scan: batch by batch, or by an engine, and more than once.

    Attributes:
        position: JSON values. `follow(position=...)` continues after this step.
        offsets: the number of offsets; records are fewer where compaction or filters removed some.
    """

    def __init__(self, planned: PlannedQuery, plan: StepPlan, position: StreamOffset, runs: "_OpenRuns") -> None:
        self.position: dict[str, Any] = position.encode()
        self.offsets = plan.offsets
        self._planned = planned
        self._splits = plan.splits
        self._runs = runs

    def __repr__(self) -> str:
        return f"Step(offsets={self.offsets}, position={self.position!r})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._planned.schema

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows as record batches, of each partition in the order of offsets.

        Raises:
            CorruptData, BatchTooLarge: naming the object and the place.
            ObjectNotFound: retention deleted an object since the step was planned.
            QueryError: `follow` was closed meanwhile, and the rows are not complete.
            StoreUnavailable, AccessDenied: from the store.
        """
        return self._runs.watched(self._planned.run(self._splits, self._planned.names))


class _OpenRuns:
    """The runs of steps that are not read to their end; thread-safe, as far as the consumer may read on threads."""

    def __init__(self) -> None:
        self._open: set[Generator[pa.RecordBatch, None, None]] = set()

    def watched(self, run: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of a run; `end` ends it."""
        self._open.add(run)
        try:
            for batch in run:
                if run not in self._open:
                    break
                yield batch
            if run not in self._open:  # the rows are not all, and the consumer would save the position
                raise QueryError("follow() was closed while a step was read; continue from the position before it")
        finally:
            self._open.discard(run)
            run.close()

    def end(self) -> None:
        """End all open runs, with their threads and the splits of worker processes."""
        while self._open:
            run = self._open.pop()
            with suppress(ValueError):  # another thread is in it, and ends it after its next batch
                run.close()


def follow(
    planned: PlannedQuery,
    *,
    position: PositionArgument,
    poll_seconds: float,
    max_offsets: int | None,
    stop: threading.Event | None,
) -> Generator[Step, None, None]:
    """Return the steps of a scan; the arguments are those of `ts_reader.Scan.follow`.

    Raises:
        ConfigurationError: with every problem of the arguments, and of a scan that cannot be followed.
    """
    given = Given({"max_offsets": max_offsets}, _SOURCE, planned.query.wording)
    begin = None
    if position is not None and position != LATEST:
        begin = given.parse("position", position, _POSITION, StreamOffset())
    if not _is_seconds(poll_seconds):
        given.problems.append(f"poll_seconds={poll_seconds!r}: a number of seconds above 0 is expected")
    if max_offsets is not None:
        given.read(_MAX_OFFSETS)
    if not _is_event(stop):
        given.problems.append(f"stop={stop!r}: a threading.Event is expected, or None")
    given.problems += _refusals(planned, given)
    given.check()
    return _steps(planned, begin, position == LATEST, poll_seconds, max_offsets, stop or threading.Event())


def _steps(
    planned: PlannedQuery,
    begin: StreamOffset | None,
    from_latest: bool,
    poll_seconds: float,
    max_offsets: int | None,
    stop: threading.Event,
) -> Generator[Step, None, None]:
    query = replace(planned.query, start=Edge.LATEST) if from_latest else planned.query
    follower = Follower(shared_store(query.location, query.connection), query, planned.warn)
    runs = _OpenRuns()
    try:
        current = follower.beginning() if begin is None else begin
        if from_latest:  # the consumer saves where it began, before there is a row
            yield Step(planned, _NOTHING, current, runs)
        while not stop.is_set():
            looked_at = time.monotonic()
            look = follower.look()
            furthest = follower.furthest(current, look)
            end = follower.end_of_step(current, furthest, look, max_offsets)
            try:
                found = _NOTHING if end.equals_in_position(current) else follower.plan(current, end)
            except ShorterView as error:  # since the look; the position waits
                follower.warn(str(error))
                stop.wait(poll_seconds)
                continue
            stood, current = current, end  # a position without epochs has them from the first look on
            if not end.equals_in_position(stood):
                yield Step(planned, found, current, runs)
            if end.positions == furthest.positions:
                stop.wait(max(0.0, looked_at + poll_seconds - time.monotonic()))
    except GeneratorExit:
        runs.end()
        raise


def _refusals(planned: PlannedQuery, given: Given) -> list[str]:
    """Return why a scan cannot be followed; empty if it can."""
    query, problems = planned.query, []
    if query.end is not Edge.LATEST:
        name = "ending_timestamp" if isinstance(query.end, Timestamp | Timestamps) else "ending_offsets"
        problems.append(f"{name}: follow() has no end; drop it, or read the scan itself")
    if query.cut is not None:
        problems.append("at(): follow() has no end, and a cut has one; follow a scan of the archive itself")
    problems += stream_problems(given, query.view, query.incarnation, query.topics_elsewhere)
    if planned.is_located_later:
        problems.append("config: follow() matches a pattern in one location, and there are several: name the topics")
    return problems


def _position(value: Any) -> StreamOffset:
    try:
        return decode_offset(value)
    except ValueError:
        raise ValueError(f'the position of a step (JSON values, not text) is expected, or "{LATEST}"') from None


_POSITION: Final = ValueType(_position)
_MAX_OFFSETS: Final = Option("max_offsets", whole(1), 1)


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= threading.TIMEOUT_MAX


def _is_event(value: object) -> bool:
    return value is None or isinstance(value, threading.Event)
