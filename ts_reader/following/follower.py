"""The decisions of a stream: where it begins, what it can reach, and the plan of the offsets between two positions.

The caller keeps the position, and decides when to look: Spark's driver by its checkpoint, the Python reader by its
loop. A plan depends on its two offsets alone. It has the same rows each time, because records below the next offset
change only by an unclean election.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ts_common.archive.commit_state import CommitState
from ts_common.archive.object_keys import PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.read_log import ReadLog, kept_end
from ts_common.errors import ShorterView
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.find.rules import Window
from ts_reader.following.commit_snapshot import CommitSnapshot, Observer
from ts_reader.following.ends import PartitionEnd
from ts_reader.following.offset import StreamOffset
from ts_reader.following.progress import advance, begins, logs_of, losses_between, waiting, was_created_again
from ts_reader.query.bounds import Loss, check_losses, check_named_partitions, find_bounds, loss_of
from ts_reader.query.plan_partition import PartitionPlan, plan_partition
from ts_reader.query.plan_query import splits_of
from ts_reader.query.query import Edge, Offsets, Query, settled
from ts_reader.query.splits import Split, bytes_of
from ts_reader.query.subscription import find_topics
from ts_reader.reading.parallel import in_threads
from ts_reader.reading.transactions import stable_end

LOOK_UP_FROM_BYTES: Final = 64 << 20  # of segments of a step; an index of years costs about a hundred requests


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What is read between two offsets of a stream.

    Attributes:
        splits: by topic, partition and offset.
        partitions: the number of partitions with new offsets.
        offsets: the number of new offsets; records are fewer where compaction removed some.
        bytes: to fetch, at most.
    """

    splits: tuple[Split, ...]
    partitions: int
    offsets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Range:
    """Offsets `[begin, stop)` of a partition, and the log below `stop`, if known."""

    keys: PartitionKeys
    begin: int
    stop: int
    log: ReadLog | None


class Follower:
    """Follows the commits of a query's topics, in their newest incarnation; not thread-safe.

    Losses end it if the query fails on data loss. Otherwise it warns about each once.

    Args:
        store: of the topics: one location.
        query: with any starting bound, and no ending one.
        warn: is called with each warning, once.
    """

    def __init__(self, store: ObjectStore, query: Query, warn: Callable[[str], None]) -> None:
        self._store = store
        self._asked = query
        self._log_warning = warn
        self._warned: set[str] = set()
        self._look: CommitSnapshot | None = None

    @cached_property
    def query(self) -> Query:
        """The query with its entropy bits; raise as `settled`."""
        return settled(self._store, self._asked)

    @cached_property
    def _observer(self) -> Observer:
        return Observer(self._store, self.query)

    def look(self) -> CommitSnapshot:
        """Return the commits as they are now; for some seconds after that, their tails as they are now.

        Raises:
            QueryError: the store does not hold the cluster.
            CorruptData, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        look = None if self._look is None else self._observer.look_at_tails(self._look)
        self._look = self._observer.look(is_first=False) if look is None else look
        return self._look

    def beginning(self) -> StreamOffset:
        """Return the start of the query; partitions without a commit are added later, as new ones.

        Raises:
            QueryError: the store does not hold a topic, a partition or a timestamp of the query.
            DataLoss: the query starts outside of a partition's view, and fails on data loss.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        look = self._observer.look(is_first=True)
        if self.query.start is Edge.LATEST:
            look = look.without(self._observer.losses_beside(look.ends.values()))
        self._report([loss for topic in look.topics.values() for loss in topic.losses.values()])
        if self.query.start is Edge.LATEST:
            # With the logs, an election that replaces records below the end is noticed, also after a restart.
            ends = StreamOffset({partition: end.shown for partition, end in look.ends.items()}, look.topic_ids)
            return replace(ends, logs=logs_of(StreamOffset(), ends, look))
        views = self._views(look)
        bounds = in_threads(lambda view: find_bounds(self._store, view, self.query), views)
        self._report(
            [
                Loss(view.partition, low, high, what)
                for view, bound in zip(views, bounds, strict=True)
                for low, high, what in bound.lost
            ]
        )
        positions = {view.partition: bound.start for view, bound in zip(views, bounds, strict=True)}
        logs = {view.partition: view.log.below(at) for view in views if (at := positions[view.partition])}
        return StreamOffset(positions, look.topic_ids, logs)

    def _views(self, look: CommitSnapshot) -> list[PartitionView]:
        """Return what the query shows now of its partitions with a commit."""
        topics = find_topics(self._store, self.query, seals=self.query.tolerance.fails) if look.topics else ()
        check_named_partitions(self.query, topics)
        opened = self._observer.open([catalog for topic in topics for catalog in topic.partitions])
        self._report([loss for view in opened if (loss := loss_of(view)) is not None])
        views = [view for view in opened if view.state is CommitState.COMMITTED]
        if self.query.read_committed:
            return [replace(view, end=stable_end(self._store, view)) for view in views]
        return views

    def furthest(self, position: StreamOffset, look: CommitSnapshot) -> StreamOffset:
        """Return the furthest offset that the stream can reach; it goes back only if an election lost records.

        Raises:
            DataLoss: partitions, topics or offsets are lost, and the query fails on data loss.
            CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from the view of a new partition.
        """
        furthest, losses = self._advanced(position, look)
        stood, ends = begins(position, furthest), look.ends
        moved = [ends[each] for each, at in furthest.positions.items() if each in ends and at != stood[each]]
        # `log.start` was read for the commits of the look.
        if lost := {} if look.by_packs else self._observer.losses_beside(moved):
            look = look.without(lost)
            furthest, losses = self._advanced(position, look)
        self._report([*losses, *losses_between(position, furthest)])
        for warning in (*waiting(furthest, look), *(end.warning for end in ends.values() if end.warning is not None)):
            self.warn(warning)
        return furthest

    def end_of_step(
        self, position: StreamOffset, furthest: StreamOffset, look: CommitSnapshot, most_offsets: int | None
    ) -> StreamOffset:
        """Return where the next step ends, with the logs below it.

        Args:
            position: where it starts.
            furthest: as `furthest` returns it for `look`.
            most_offsets: of all partitions together; None for no limit.
        """
        if most_offsets is not None:
            positions = limited(most_offsets, begins(position, furthest), furthest.positions)
            furthest = replace(furthest, positions=positions)
        return replace(furthest, logs=logs_of(position, furthest, look))

    def plan(self, start: StreamOffset, end: StreamOffset) -> StepPlan:
        """Plan the offsets from `start` to `end`.

        Raises:
            DataLoss: some of them are lost, and the query fails on data loss.
            ShorterView: the same log ends below `end` now: nothing is lost, and a later call succeeds.
            CorruptData, ObjectNotFound: an object is damaged, or retention deleted it meanwhile.
            StoreUnavailable, AccessDenied, BucketMissing: from the store.
        """
        ranges, losses = self._ranges(start, end)
        views = self._views_of(ranges)
        windows = self._windows(views, ranges)
        plans = in_threads(
            lambda item: self._plan(*item, windows.get(item[0].partition)), zip(views, ranges, strict=True)
        )
        self._report([*losses, *(loss for plan in plans for loss in plan.losses)])
        for plan in plans:
            if plan.view.warning:
                self.warn(plan.view.warning)
        for damaged in self._observer.take_damaged():
            self.warn(damaged)
        return StepPlan(
            splits=splits_of(self._store, [plan.read for plan in plans], self.query),
            partitions=len(plans),
            offsets=sum(part.stop - part.begin for part in ranges),
            bytes=sum(bytes_of(part) for plan in plans for part in plan.read.ranges),
        )

    def _views_of(self, ranges: Sequence[_Range]) -> list[PartitionView]:
        """Return the view of each range: of the tail alone if that suffices."""
        tails = [self._observer.tail_view(part.keys, part.begin) for part in ranges]
        others = iter(
            self._observer.views([part.keys for part, view in zip(ranges, tails, strict=True) if view is None])
        )
        return [next(others) if view is None else view for view in tails]

    def warn(self, warning: str) -> None:
        """Log a warning, unless it was logged before."""
        if warning not in self._warned:
            self._warned.add(warning)
            self._log_warning(warning)

    def _advanced(self, position: StreamOffset, look: CommitSnapshot) -> tuple[StreamOffset, list[str]]:
        def earliest(end: PartitionEnd) -> tuple[int, int]:
            view = self._observer.view(end.keys)
            return view.start, view.own.start

        return advance(position, look, earliest, self._observer.continues)

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
                _Range(place, begin, stop, end.logs.get(partition))
                for place, (partition, begin, stop) in zip(keys, news, strict=True)
            ]
        return ranges, losses

    def _windows(
        self, views: Sequence[PartitionView], ranges: Sequence[_Range]
    ) -> Mapping[TopicPartition, tuple[Window, ...]]:
        """Return the offsets that can have the query's keys, in any order; empty for all offsets.

        No index has what is new, so a step of little is read without a look-up.
        """
        size = sum(
            copy.segment.size
            for view, part in zip(views, ranges, strict=True)
            for copy in view.copies
            if copy.base < part.stop and copy.end > part.begin
        )
        if self.query.key_equals is None or size < LOOK_UP_FROM_BYTES:
            return {}
        from ts_reader.find.lookup import KeyLookup  # noqa: PLC0415  (pyarrow, only for keys)

        places = [part.keys for view in views for part in view.parts]
        return KeyLookup(self._store, places, self.query.key_equals).windows(views)[1]

    def _plan(self, view: PartitionView, part: _Range, windows: Iterable[Window] | None) -> PartitionPlan:
        """Plan a query of these offsets that ends."""
        topic, number = view.partition.topic, view.partition.partition
        stop = kept_end(part.stop, part.log, view.log, view.end)
        lost = []
        if stop < part.stop:  # since the step was planned first; the next step has the new records
            low = max(part.begin, stop)
            lost.append(Loss(view.partition, low, part.stop, "are lost: an election removed them"))
        start = Offsets({topic: {number: min(part.begin, stop)}})
        asked = replace(self.query, start=start, end=Offsets({topic: {number: stop}}))
        plan = plan_partition(self._store, view, asked, found=windows)
        if plan.bounds.end < stop and not view.state.is_loss:
            raise ShorterView(
                f"{view.partition}: offsets {plan.bounds.end} to {stop - 1} are not shown now, and no election removed "
                "them: the live tail ends below them, or the commit was written again; they are shown again once they "
                "are shipped"
            )
        return replace(plan, losses=(*lost, *plan.losses))

    def _report(self, losses: Sequence[Loss | str]) -> None:
        """Raise for the losses of a query that fails on data loss; else warn about each once."""
        check_losses(losses, self.query)
        for loss in losses:
            self.warn(str(loss))


def limited(
    most: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends at or below `end`, about `most` offsets after `start`, in proportion to each partition's lag.

    Source of the rule: `KafkaMicroBatchStream.rateLimit` in Spark.

    A small partition gets one offset at least, so that it does not starve; the sum can be above `most` by that.

    Args:
        most: offsets of all partitions together.
        start: of each partition of `end`.
        end: the offsets that there are; one below its start stays.
    """
    behind = {partition: at - start[partition] for partition, at in end.items() if at > start[partition]}
    total = sum(behind.values())
    if total <= most:
        return dict(end)
    shares = {partition: most * size / total for partition, size in behind.items()}
    return {
        partition: min(at, start[partition] + (math.floor(shares[partition]) or 1)) if partition in shares else at
        for partition, at in end.items()
    }
