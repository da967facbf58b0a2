"""A stream on the driver: one process for as long as the query runs. Spark calls its methods one after the other.

    a new query        latestOffset  initialOffset  partitions  (latestOffset  partitions  commit)...
    a restarted one    partitions(last, last)  [initialOffset]  [partitions: the last batch, again]  latestOffset ...

For the latest offset, Spark 4.0 and 4.1 pass a Python source neither the query's position, nor a limit, nor the
trigger. So this module applies the limits. The position is the last answer, or the checkpoint's last offset, which
Spark passes to a restarted source as an empty range first. Spark 4.2 passes all three.

The source stores nothing on disk. A batch that runs again is planned from its two offsets alone. It has the same rows,
because records below the next offset change only by an unclean election.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from ts_common.errors import QueryError, ShorterView
from ts_common.printable import printable
from ts_common.store.factory import open_store
from ts_common.store.options import StorageOptions
from ts_reader.following.commit_snapshot import CommitSnapshot
from ts_reader.following.follower import Follower, StepPlan
from ts_reader.following.offset import StreamOffset, decode_offset
from ts_reader.following.progress import lag
from ts_reader.query.splits import Split
from ts_spark.options.batch_limits import MinOffsetsDelay
from ts_spark.options.parse import SparkQuery

# Without a trigger, Spark calls again 10 ms after an answer without new offsets; each look costs requests.
_IDLE_SECONDS: Final = 1.0
_WAITS: Final = 5  # for the end of a batch that the archive had a moment ago

_log = structlog.get_logger("ts_spark")


class StreamDriver:
    """Offsets and plans of one stream; its methods are Spark's. Not thread-safe.

    Args:
        clock: monotonic seconds.
        sleep: for a number of seconds.
    """

    def __init__(
        self,
        query: SparkQuery,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rates = query.rates
        self._clock = clock
        self._sleep = sleep
        asked = query.query
        self._store = open_store(asked.location, StorageOptions(asked.connection))
        self._follower = Follower(self._store, asked, _warn)
        self._delay = MinOffsetsDelay(query.rates)
        self._initial: StreamOffset | None = None
        self._position: StreamOffset | None = None  # the last answer, where Spark continues
        self._answered = False  # for the end, before Spark passed the position
        self._last_look: CommitSnapshot | None = None
        self._idle_since: float | None = None  # since a look found nothing new
        if query.ignored is not None:
            self._follower.warn(query.ignored)

    def initial_offset(self) -> dict[str, Any]:
        """Return where the query's first batch starts, or started if a restarted query runs it again.

        Raises:
            QueryError, DataLoss, CorruptData, ObjectNotFound: an object of the query is missing or damaged.
            StoreUnavailable, AccessDenied, BucketMissing: from the store, after its own retries.
        """
        return self._begin().encode()

    @property
    def most_offsets(self) -> int | None:
        """The maximum number of offsets of one batch; None without a limit."""
        return self._rates.most_offsets

    def stop_where_it_is(self) -> None:
        """End the stream at the current commits, in as many batches as the limit requires.

        Raises:
            QueryError, CorruptData, StoreUnavailable, AccessDenied, BucketMissing: as `initial_offset`.
        """
        self._last_look = self._follower.look()

    def latest_offset(self, start: Mapping[str, Any] | None = None, *, unlimited: bool = False) -> dict[str, Any]:
        """Return where the next batch ends; it moves back only if an election lost records.

        Args:
            start: where it starts; None if Spark does not pass it.
            unlimited: whether the trigger lifts the limits of the options.

        Raises:
            DataLoss: partitions, topics or offsets of the query are lost, and `failOnDataLoss` is true.
            Others: as `initial_offset`.
        """
        self._pace()
        is_new = self._initial is not None and start == self._initial.encode()
        if start is not None and not is_new:
            self._position = _decode(start)
        stands = self._position or self._begin()
        look = self._follower.look() if self._last_look is None else self._last_look
        furthest, most = self._follower.furthest(stands, look), None if unlimited else self.most_offsets
        available = lag(stands, furthest)
        if self._last_look is None and not unlimited and self._delay.waits(available, self._clock() * 1000):
            furthest, most = stands, None
        furthest = self._follower.end_of_step(stands, furthest, look, most)
        if self._position is None:  # the checkpoint's first offset has the start of the query
            furthest = replace(furthest, began={**stands.positions, **furthest.began})
        self._answered = start is None
        if self._position is not None and furthest.equals_in_position(self._position):
            self._idle_since = self._clock()
        else:
            self._idle_since = None
            self._position = furthest
        return self._position.encode()

    def plan(self, start_encoded: Mapping[str, Any], end_encoded: Mapping[str, Any]) -> Sequence[Split]:
        """Return the splits of a batch; an empty batch has none and costs no request.

        Raises:
            DataLoss: offsets of the batch are lost, and `failOnDataLoss` is true.
            QueryError: an offset is not of this source; or a trigger cannot be combined with limits.
            ShorterView: the archive ends below the batch's end for some time; a restarted query runs the batch again.
            CorruptData, ObjectNotFound: an object is damaged, or retention deleted it meanwhile.
            StoreUnavailable, AccessDenied, BucketMissing: from the store, after its own retries.
        """
        start, end = _decode(start_encoded), _decode(end_encoded)
        if start_encoded == end_encoded:
            self._check_wrapper(end)
        self._position = end
        if start.equals_in_position(end):
            return []
        planned, query = self._plan(start, end), self._follower.query
        _log.info(
            "batch_planned",
            location=query.location,
            cluster=query.cluster,
            partitions=planned.partitions,
            offsets=planned.offsets,
            bytes=planned.bytes,
            splits=len(planned.splits),
        )
        return planned.splits

    def stop(self) -> None:
        """Close the store's connections."""
        self._store.close()

    def _plan(self, start: StreamOffset, end: StreamOffset) -> StepPlan:
        """Plan a batch; wait some seconds for a leader that has not shipped its live tail yet."""
        for _ in range(_WAITS):
            try:
                return self._follower.plan(start, end)
            except ShorterView as error:
                _warn(str(error))
                self._sleep(_IDLE_SECONDS)
        return self._follower.plan(start, end)

    def _begin(self) -> StreamOffset:
        """Return where the query starts: from the checkpoint if there is one, else decided once."""
        if self._initial is None and self._position is not None:
            self._initial = StreamOffset(self._position.began, self._position.topic_ids)
        elif self._initial is None:
            self._initial = self._follower.beginning()
            if self._last_look is not None:  # a later commit may be the start, and the end may not be below it
                self.stop_where_it_is()
        return self._initial

    def _check_wrapper(self, seen: StreamOffset) -> None:
        """Reject Spark's wrapper for Trigger.AvailableNow in a restarted query with limits.

        The wrapper requests the end before it passes the position. With a limit, that end was counted from the start of
        a new query, so the query would move back.
        """
        rates = self._rates
        if not self._answered or not (rates.most_offsets or rates.least_offsets):
            return
        if self._position is not None and not self._position.equals_in_position(seen):
            raise QueryError(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger cannot be combined with "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: drop the one or the other"
            )

    def _pace(self) -> None:
        if self._idle_since is not None:
            remaining = self._idle_since + _IDLE_SECONDS - self._clock()
            if remaining > 0:
                self._sleep(remaining)


def _decode(encoded: Mapping[str, Any]) -> StreamOffset:
    """Return an offset of the checkpoint.

    Raises:
        QueryError: it is not an offset of this source.
    """
    try:
        return decode_offset(encoded)
    except ValueError as error:
        raise QueryError(
            f"the checkpoint holds no offset of kafka_segments ({error}): {encoded}; start with another checkpoint"
        ) from error


def _warn(warning: str) -> None:
    _log.warning("query_warning", message=printable(warning))
