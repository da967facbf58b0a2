"""A stream on the driver: one process for as long as the query runs, which Spark asks one thing after the other.

    a new query        latestOffset  initialOffset  partitions  (latestOffset  partitions  commit)...
    a restarted one    partitions(last, last)  [initialOffset]  [partitions: the last batch, again]  latestOffset ...

Spark 4.0 and 4.1 tell a Python source neither where the query stands when they ask for the latest offset, nor a limit,
nor the trigger. So the limits are kept here, and where the query stands is the last answer, or the checkpoint's last
offset, which Spark shows to a restarted source as an empty range first. Spark 4.2 tells all three.

Nothing is kept on disk: a batch that is run again is planned from its two offsets alone, and shows the same rows, since
those below the next offset never change but by an unclean election.
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
from ts_common.query.plan_query import PartitionPlan, check_losses, plan_partition, splits_of
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

# Spark asks again 10 ms after an answer without news, unless a trigger says otherwise; each look is some requests.
_IDLE_SECONDS: Final = 1.0

_log = structlog.get_logger("ts_spark")


@dataclass(frozen=True, slots=True)
class _Range:
    """Offsets `[begin, stop)` of a partition; `epoch` wrote the last one, where that is known."""

    keys: PartitionKeys
    begin: int
    stop: int
    epoch: int | None


class StreamDriver:
    """Offsets and plans of one stream; its methods are Spark's. Not for several threads.

    Args:
        asked: the query.
        clock: seconds, from anywhere.
        sleep: for so many seconds.
    """

    def __init__(
        self,
        asked: SparkQuery,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rates = asked.rates
        self._asked = asked.query
        self._clock = clock
        self._sleep = sleep
        self._store = open_store(self._asked.location, StorageOptions(self._asked.connection))
        self._patience = MinOffsetsDelay(asked.rates)
        self._initial: StreamOffset | None = None
        self._position: StreamOffset | None = None  # the answer that Spark has, which it goes on from
        self._answered = False  # for the end, before Spark showed where the query stands
        self._last_look: CommitSnapshot | None = None
        self._idle_since: float | None = None  # when a look showed nothing new
        self._told: set[str] = set()
        if asked.ignored is not None:
            self._warn(asked.ignored)

    @cached_property
    def _options(self) -> Query:
        return settled(self._store, self._asked)

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self._store, self._options)

    def initial_offset(self) -> dict[str, Any]:
        """Where the query's first batch begins; of a restarted query that runs its first batch again, where it began.

        Raises:
            QueryError, DataLoss, CorruptData, ObjectNotFound: what the options name is not there, or damaged.
            StoreUnavailable, AccessDenied, BucketMissing: the store's, after its own retries.
        """
        return self._begin().encode()

    @property
    def most_offsets(self) -> int | None:
        """Of one batch; None without a limit."""
        return self._rates.most_offsets

    def stop_where_it_is(self) -> None:
        """Go no further than the store has come by now, in as many batches as the limit makes of it.

        Raises:
            QueryError, CorruptData, StoreUnavailable, AccessDenied, BucketMissing: as `initial_offset`.
        """
        self._last_look = self._observer.look(is_first=False)

    def latest_offset(self, start: Mapping[str, Any] | None = None, *, unlimited: bool = False) -> dict[str, Any]:
        """How far the next batch goes: never back, except where an election lost what was there.

        Args:
            start: where it begins; None where Spark does not say it.
            unlimited: whether the limits of the options are lifted.

        Raises:
            DataLoss: partitions, topics or offsets that the query has come to are gone, and `failOnDataLoss` is true.
            Others: as `initial_offset`.
        """
        self._pace()
        is_new = self._initial is not None and start == self._initial.encode()
        if start is not None and not is_new:
            self._position = decode_offset(start)
        stands = self._position or self._begin()
        look = self._observer.look(is_first=False) if self._last_look is None else self._last_look
        furthest, losses = advance(stands, look, lambda end: self._observer.view(end.keys).start)
        self._tell([*losses, *losses_between(stands, furthest)])
        begins = {**stands.positions, **furthest.began}
        available = sum(max(0, at - begins[partition]) for partition, at in furthest.positions.items())
        if self._last_look is None and not unlimited and self._patience.waits(available, self._clock() * 1000):
            furthest = stands
        elif self.most_offsets is not None and not unlimited:
            positions = limited(self.most_offsets, begins, furthest.positions)
            furthest = replace(furthest, positions=positions)
        furthest = replace(furthest, epochs=epochs_of(stands, furthest, look))
        if self._position is None:  # the checkpoint's first offset holds where the query began
            furthest = replace(furthest, began={**stands.positions, **furthest.began})
        self._answered = start is None
        if self._position is not None and furthest.stands_where(self._position):
            self._idle_since = self._clock()
        else:
            self._idle_since = None
            self._position = furthest
        return self._position.encode()

    def plan(self, start_encoded: Mapping[str, Any], end_encoded: Mapping[str, Any]) -> Sequence[Split]:
        """The tasks of a batch; of an empty one none, and the store is not asked.

        Raises:
            DataLoss: offsets of the batch are gone, and `failOnDataLoss` is true.
            QueryError: an offset that is not one of this source's; or a trigger that cannot be combined with limits.
            CorruptData, ObjectNotFound: what the store holds is damaged, or retention took it just now.
            StoreUnavailable, AccessDenied, BucketMissing: the store's, after its own retries.
        """
        start, end = decode_offset(start_encoded), decode_offset(end_encoded)
        if start_encoded == end_encoded:
            self._check_wrapper(end)
        self._position = end
        if start.stands_where(end):
            return []
        ranges, losses = self._ranges(start, end)
        views = in_threads(lambda part: self._observer.view(part.keys), ranges)
        plans = in_threads(self._plan, zip(views, ranges, strict=True))
        self._tell([*losses, *(loss for plan in plans for loss in plan.losses)])
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
        """Give the store's connections back."""
        self._store.close()

    def _begin(self) -> StreamOffset:
        """Where the query begins: as the checkpoint says, where it has one, and decided once otherwise."""
        if self._initial is None and self._position is not None:
            self._initial = StreamOffset(self._position.began, self._position.topic_ids)
        elif self._initial is None:
            self._initial = self._find_beginning()
            if self._last_look is not None:  # segments may have come since: the end is not to lie below the beginning
                self.stop_where_it_is()
        return self._initial

    def _find_beginning(self) -> StreamOffset:
        """Where the options say that the query begins; partitions without a commit come later, as new ones."""
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
        self._tell(
            [
                f"{view.partition}: offsets {low} to {high - 1} {what}"
                for view, bound in zip(views, bounds, strict=True)
                for low, high, what in bound.lost
            ]
        )
        positions = {view.partition: bound.start for view, bound in zip(views, bounds, strict=True)}
        return StreamOffset(positions, look.topic_ids)

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> tuple[list[_Range], list[str]]:
        """Where each partition with news lies, begins and ends; and the losses that are met on the way there."""
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
                    f"{partition}: offsets {begin} to {stop - 1} are lost: the store does not know topic id "
                    f"{end.topic_ids[topic]} any more"
                    for partition, begin, stop in news
                ]
                continue
            ranges += [
                _Range(place, begin, stop, end.epochs.get(partition))
                for place, (partition, begin, stop) in zip(keys, news, strict=True)
            ]
        return ranges, losses

    def _plan(self, item: tuple[PartitionView, _Range]) -> PartitionPlan:
        """As a batch query of these offsets."""
        view, part = item
        topic, number = view.partition.topic, view.partition.partition
        stop = living_until(part.stop, part.epoch, view.epochs, max(part.stop, view.end))
        lost = []
        if stop < part.stop:  # since the batch was planned first; what stands there now comes with the next one
            low = max(part.begin, stop)
            lost.append(f"{view.partition}: offsets {low} to {part.stop - 1} are lost: an election took them back")
        start = Offsets({topic: {number: min(part.begin, stop)}})
        asked = replace(self._options, start=start, end=Offsets({topic: {number: stop}}))
        plan = plan_partition(self._store, view, asked)
        return replace(plan, losses=(*lost, *plan.losses))

    def _check_wrapper(self, seen: StreamOffset) -> None:
        """Spark's wrapper for Trigger.AvailableNow asks for the end of a restarted query before it shows where it is.

        With a limit the answer was counted from where a new query would begin, so the query would go back.
        """
        rates = self._rates
        if not self._answered or not (rates.most_offsets or rates.least_offsets):
            return
        if self._position is not None and not self._position.stands_where(seen):
            raise QueryError(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger cannot be combined with "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: drop the one or the other"
            )

    def _pace(self) -> None:
        if self._idle_since is not None:
            remaining = self._idle_since + _IDLE_SECONDS - self._clock()
            if remaining > 0:
                self._sleep(remaining)

    def _tell(self, losses: Sequence[str]) -> None:
        """End the query with its losses, or warn of each once."""
        check_losses(losses, self._options)
        for loss in losses:
            self._warn(loss)

    def _warn(self, warning: str) -> None:
        if warning not in self._told:
            self._told.add(warning)
            _log.warning("query_warning", message=printable(warning))
