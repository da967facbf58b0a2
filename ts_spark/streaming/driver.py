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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import structlog

from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.view import PartitionView
from ts_common.errors import QueryError
from ts_common.printable import printable
from ts_common.query.bounds import check_named_partitions, find_bounds
from ts_common.query.losses import Loss, check_losses
from ts_common.query.plan_query import PartitionPlan, plan_partition, splits_of
from ts_common.query.query import Edge, Offsets, Query, settled
from ts_common.query.split import Split, bytes_of
from ts_common.query.subscription import find_topics
from ts_common.reading.parallel import in_threads
from ts_common.reading.transactions import stable_end
from ts_common.store.factory import open_store
from ts_common.store.options import StorageOptions
from ts_spark.options.batch_limits import MinOffsetsDelay, limited
from ts_spark.options.spark_query import SparkQuery
from ts_spark.streaming.commit_snapshot import CommitSnapshot, Observer
from ts_spark.streaming.offset import StreamOffset, decode_offset
from ts_spark.streaming.progress import advance, epochs_of, living_until, losses_between, was_created_again

# Without a trigger, Spark calls again 10 ms after an answer without new offsets; each look costs requests.
_IDLE_SECONDS: Final = 1.0

_log = structlog.get_logger("ts_spark")


@dataclass(frozen=True, slots=True)
class _Range:
    """Offsets `[begin, stop)` of a partition; `epoch` wrote the last one, if known."""

    keys: PartitionKeys
    begin: int
    stop: int
    epoch: int | None


class StreamDriver:
    """Offsets and plans of one stream; its methods are Spark's. Not thread-safe.

    Args:
        query: of the stream.
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
        self._asked = query.query
        self._clock = clock
        self._sleep = sleep
        self._store = open_store(self._asked.location, StorageOptions(self._asked.connection))
        self._delay = MinOffsetsDelay(query.rates)
        self._initial: StreamOffset | None = None
        self._position: StreamOffset | None = None  # the last answer, where Spark continues
        self._answered = False  # for the end, before Spark passed the position
        self._last_look: CommitSnapshot | None = None
        self._idle_since: float | None = None  # since a look found nothing new
        self._warned: set[str] = set()
        if query.ignored is not None:
            self._warn(query.ignored)

    @cached_property
    def _options(self) -> Query:
        return settled(self._store, self._asked)

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self._store, self._options)

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
        self._last_look = self._observer.look(is_first=False)

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
            self._position = decode_offset(start)
        stands = self._position or self._begin()
        look = self._observer.look(is_first=False) if self._last_look is None else self._last_look
        furthest, losses = advance(stands, look, lambda end: self._observer.view(end.keys).start)
        self._report([*losses, *losses_between(stands, furthest)])
        begins = {**stands.positions, **furthest.began}
        available = sum(max(0, at - begins[partition]) for partition, at in furthest.positions.items())
        if self._last_look is None and not unlimited and self._delay.waits(available, self._clock() * 1000):
            furthest = stands
        elif self.most_offsets is not None and not unlimited:
            positions = limited(self.most_offsets, begins, furthest.positions)
            furthest = replace(furthest, positions=positions)
        furthest = replace(furthest, epochs=epochs_of(stands, furthest, look))
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
            CorruptData, ObjectNotFound: an object is damaged, or retention deleted it meanwhile.
            StoreUnavailable, AccessDenied, BucketMissing: from the store, after its own retries.
        """
        start, end = decode_offset(start_encoded), decode_offset(end_encoded)
        if start_encoded == end_encoded:
            self._check_wrapper(end)
        self._position = end
        if start.equals_in_position(end):
            return []
        ranges, losses = self._ranges(start, end)
        views = in_threads(lambda part: self._observer.view(part.keys), ranges)
        plans = in_threads(self._plan, zip(views, ranges, strict=True))
        self._report([*losses, *(loss for plan in plans for loss in plan.losses)])
        for plan in plans:
            if plan.view.warning:
                self._warn(plan.view.warning)
        for damaged in self._observer.take_damaged():
            self._warn(damaged)
        splits = splits_of(self._store, [plan.read for plan in plans], self._options)
        _log.info(
            "batch_planned",
            location=self._options.location,
            cluster=self._options.cluster,
            partitions=len(plans),
            offsets=sum(part.stop - part.begin for part in ranges),
            bytes=sum(bytes_of(part) for plan in plans for part in plan.read.ranges),
            splits=len(splits),
        )
        return splits

    def stop(self) -> None:
        """Close the store's connections."""
        self._store.close()

    def _begin(self) -> StreamOffset:
        """Return where the query starts: from the checkpoint if there is one, else decided once."""
        if self._initial is None and self._position is not None:
            self._initial = StreamOffset(self._position.began, self._position.topic_ids)
        elif self._initial is None:
            self._initial = self._find_beginning()
            if (
                self._last_look is not None
            ):  # segments may have been committed since: the end may not be below the start
                self.stop_where_it_is()
        return self._initial

    def _find_beginning(self) -> StreamOffset:
        """Return the start of the options; partitions without a commit are added later, as new ones."""
        look = self._observer.look(is_first=True)
        if self._options.start is Edge.LATEST:
            return StreamOffset({partition: end.shown for partition, end in look.ends.items()}, look.topic_ids)
        topics = find_topics(self._store, self._options) if look.topics else ()
        check_named_partitions(self._options, topics)
        catalogs = [catalog for topic in topics for catalog in topic.partitions if catalog.commit is not None]
        views = in_threads(self._observer.open, catalogs)
        if self._options.read_committed:
            views = [replace(view, end=stable_end(self._store, view)) for view in views]
        bounds = in_threads(lambda view: find_bounds(self._store, view, self._options), views)
        self._report(
            [
                Loss(view.partition, low, high, what)
                for view, bound in zip(views, bounds, strict=True)
                for low, high, what in bound.lost
            ]
        )
        positions = {view.partition: bound.start for view, bound in zip(views, bounds, strict=True)}
        return StreamOffset(positions, look.topic_ids)

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> tuple[list[_Range], list[str]]:
        """Return the range of each partition with new offsets, and the losses between the two offsets."""
        ranges, losses = [], losses_between(start, end)
        for topic in sorted({partition.topic for partition in end.positions}):
            stood = {} if was_created_again(start, end, topic) else start.of_topic(topic)
            news = [
                (partition, begin, stop)
                for partition, stop in sorted(end.of_topic(topic).items())
                if (begin := stood.get(partition, end.began.get(partition, 0))) < stop
            ]
            if not news:
                continue
            keys = self._observer.keys_of([partition for partition, _, _ in news], end.topic_ids.get(topic))
            if keys is None:
                losses += [
                    f"{partition}: offsets {begin} to {stop - 1} are lost: the store no longer holds topic id "
                    f"{end.topic_ids[topic]}"
                    for partition, begin, stop in news
                ]
                continue
            ranges += [
                _Range(place, begin, stop, end.epochs.get(partition))
                for place, (partition, begin, stop) in zip(keys, news, strict=True)
            ]
        return ranges, losses

    def _plan(self, item: tuple[PartitionView, _Range]) -> PartitionPlan:
        """Plan a batch query of these offsets."""
        view, part = item
        topic, number = view.partition.topic, view.partition.partition
        stop = living_until(part.stop, part.epoch, view.epochs, max(part.stop, view.end))
        lost = []
        if stop < part.stop:  # since the batch was planned first; the next batch has the new records
            low = max(part.begin, stop)
            lost.append(Loss(view.partition, low, part.stop, "are lost: an election removed them"))
        start = Offsets({topic: {number: min(part.begin, stop)}})
        asked = replace(self._options, start=start, end=Offsets({topic: {number: stop}}))
        plan = plan_partition(self._store, view, asked)
        return replace(plan, losses=(*lost, *plan.losses))

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

    def _report(self, losses: Sequence[Loss | str]) -> None:
        """Raise for the losses of a query that fails on data loss; else warn about each once."""
        check_losses(losses, self._options)
        for loss in losses:
            self._warn(str(loss))

    def _warn(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            _log.warning("query_warning", message=printable(warning))
