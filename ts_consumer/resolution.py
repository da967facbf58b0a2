"""Looking up a partition: its next offset, and the tier that has it. A look-up runs on a thread of its own."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaException

from ts_common.archive.epoch_history import NO_EPOCH
from ts_common.errors import DataLoss, StoreUnavailable
from ts_common.model import TopicPartition
from ts_consumer.archive_tier import ArchivedPartition, ArchiveTier, HistoryPlan
from ts_consumer.brokers import Brokers
from ts_consumer.configuration import GAP_KEY, Configuration, OnGap
from ts_consumer.errors import UNKNOWN_TOPIC, NoOffset, SeamRefused
from ts_consumer.errors import refusal as refused
from ts_consumer.live import Key
from ts_consumer.modes import Extent, TierMode, Way, way_of, whole

TAIL: Final = -2000  # librdkafka's OFFSETTAIL(n) is this minus n

log = structlog.get_logger()


@dataclass(frozen=True)
class Resolution:
    """What a look-up found.

    Attributes:
        way: where the next offset is read; never `BELOW`.
        offset: the next one; None if nothing is known yet (an archive without the partition).
        plan: what is read of the archive, if that is the way.
        epoch: the leader epoch of the record before the offset that the application, or its group, has; None if it is
            unknown.
        skipped: the number of offsets that no tier has and that are passed over by option.
    """

    way: Way
    offset: int | None
    plan: HistoryPlan | None = None
    epoch: int | None = None
    skipped: int = 0


class Resolver:
    """Looks partitions up; used on threads.

    Args:
        brokers: returns what sends requests to brokers; None without brokers.
    """

    def __init__(
        self,
        configuration: Configuration,
        archive: ArchiveTier,
        brokers: Callable[[], Brokers | None],
    ) -> None:
        self._configuration = configuration
        self._archive = archive
        self._brokers = brokers
        self._warned: set[tuple[str, str, str]] = set()  # topic and ids

    def resolve(
        self, key: Key, wanted: int, *, history: HistoryPlan | None, refusal: str | None, epoch: int | None
    ) -> Resolution:
        """Return the next offset and its tier.

        Args:
            wanted: an offset, or one of librdkafka's logical offsets.
            history: what the application read last of the archive; None if it read nothing there.
            refusal: the brokers' reason, if they refused that offset.
            epoch: the leader epoch of the record before the offset that the application has; None if it is unknown.

        Raises:
            NoOffset: no tier has it, and `auto.offset.reset` is `error`; or the archive ends below Kafka's log start,
                and that is an error.
            SeamRefused: Kafka has another topic of that name than the archive; or the archive, or the brokers' log,
                does not continue the records that the application has.
            DataLoss: the archive lost the offset, and lost offsets are errors.
            KafkaException: from a broker; or no broker is there, and the archive lacks the partition.
            TieredStorageError: from the store.
        """
        mode = self._configuration.mode
        if wanted in {OFFSET_STORED, OFFSET_INVALID}:
            wanted, epoch = self._committed(key)
        if mode is TierMode.TIERED_STORAGE_PREFERRED and wanted >= 0 and refusal is None:
            found = self._by_archive_alone(key, wanted, epoch, history)
            if found is not None:
                return found
        kafka = self._kafka(key)
        _check_refusal(key, wanted, refusal, kafka)
        if mode is TierMode.KAFKA_PREFERRED and kafka is not None and history is None and wanted != OFFSET_BEGINNING:
            offset = self._offset(key, wanted, None, kafka)
            if offset is not None and offset >= kafka.start:  # this needs no request to the store
                return Resolution(Way.KAFKA, offset, epoch=epoch)
        archived = self._archived_or_kafkas(key, wanted, epoch, history, kafka)
        if archived is None and self._brokers() is None:
            raise self.unknown(key)
        return self._decided(key, wanted, epoch, archived, kafka)

    def _by_archive_alone(
        self, key: Key, wanted: int, epoch: int | None, history: HistoryPlan | None
    ) -> Resolution | None:
        """Return where an offset is read if the archive has it; else None: brokers decide too."""
        with contextlib.suppress(DataLoss):
            archived = self._archived(key, wanted, epoch, history)
            if archived is not None and archived.extent.start <= wanted < archived.extent.end:
                return Resolution(Way.ARCHIVE, wanted, self._archive.plan(archived, wanted), epoch)
        return None

    def _archived_or_kafkas(
        self, key: Key, wanted: int, epoch: int | None, history: HistoryPlan | None, kafka: Extent | None
    ) -> ArchivedPartition | None:
        """Return what the archive has; None if it cannot be read and brokers have what is wanted; else raise."""
        try:
            return self._archived(key, wanted, epoch, history)
        except DataLoss:  # its commit is missing or damaged
            if kafka is None or not (wanted == OFFSET_END or wanted >= kafka.start):
                raise
            if not self._continues(key, history):
                raise
        except StoreUnavailable:  # brokers validate the epoch of the record before the offset
            is_kafkas = kafka is not None and kafka.start <= wanted <= kafka.end
            if self._configuration.mode is not TierMode.KAFKA_PREFERRED or not is_kafkas:
                raise
            if not self._continues(key, history):
                raise
        return None

    def _decided(
        self, key: Key, wanted: int, epoch: int | None, archived: ArchivedPartition | None, kafka: Extent | None
    ) -> Resolution:
        """Return where a partition is read, from what both tiers have of it."""
        mode, extent = self._configuration.mode, None if archived is None else archived.extent
        offset = self._offset(key, wanted, extent, kafka)
        if offset is None:
            return Resolution(Way.NOWHERE_YET, None)
        way = way_of(mode, offset, extent, kafka)
        if way is Way.BELOW:
            offset, epoch = self._reset(key, offset, extent, kafka), None
            way = way_of(mode, offset, extent, kafka)
        if way is Way.NOWHERE_YET and kafka is not None and self._configuration.on_gap is not OnGap.WAIT:
            self._skip(key, offset, kafka)
            return Resolution(Way.KAFKA, kafka.start, skipped=kafka.start - offset)
        if way is Way.ARCHIVE and archived is not None:
            preferred = kafka.start if kafka is not None and mode is TierMode.KAFKA_PREFERRED else None
            try:
                return Resolution(way, offset, self._archive.plan(archived, offset, preferred), epoch)
            except DataLoss:
                if kafka is None or offset < kafka.start:
                    raise
                way = Way.KAFKA  # brokers still have what the archive lost
        return Resolution(way, offset, epoch=epoch)

    def both(self, key: Key) -> tuple[ArchivedPartition | None, Extent]:
        """Return what the archive has of a partition, and the offsets of both tiers; raise as `resolve`."""
        archived = self._archived(key, OFFSET_BEGINNING, None, None)
        found = whole(None if archived is None else archived.extent, self._kafka(key))
        if found is None:
            raise self.unknown(key)
        return archived, found

    def unknown(self, key: Key) -> KafkaException:
        """Return the error of a partition that neither the archive nor a broker has."""
        cluster, location = self._configuration.cluster, self._configuration.endpoint(key[0]).location
        return refused(
            UNKNOWN_TOPIC,
            f"{key[0]} [{key[1]}]: the archive of cluster {cluster} at {location} does not have the partition. "
            "Without a broker, list_topics() lists the archive's directories, also of a partition without a "
            "commit, which cannot be read yet. A partition that is shipped later is read then",
        )

    def _kafka(self, key: Key) -> Extent | None:
        brokers = self._brokers()
        return None if brokers is None or not self._configuration.mode.reads_kafka else brokers.extent(key)

    def _committed(self, key: Key) -> tuple[int, int | None]:
        """Return the committed offset and its leader epoch; a logical offset without one."""
        brokers = self._brokers()
        found = None if brokers is None else brokers.committed(key)
        if found is not None:
            return found
        match self._configuration.reset:
            case "earliest":
                return OFFSET_BEGINNING, None
            case "latest":
                return OFFSET_END, None
        raise NoOffset(f"{key[0]} [{key[1]}]: the group has no committed offset, and auto.offset.reset is error")

    def _archived(
        self, key: Key, wanted: int, epoch: int | None, history: HistoryPlan | None
    ) -> ArchivedPartition | None:
        """Return what the archive has, if it continues the records that the application has; raise as `resolve`."""
        archived = self._archived_topic(key, history)
        return None if archived is None or _is_behind(archived, wanted, epoch) else archived

    def _archived_topic(self, key: Key, history: HistoryPlan | None) -> ArchivedPartition | None:
        """Return what the archive has of the topic of that name that brokers have."""
        self._continues(key, history)  # the archive of a topic that was created again may have no commit yet
        topic, archived, brokers = key[0], self._archive.look(TopicPartition(*key)), self._brokers()
        if archived is None or archived.topic_id is None:
            return archived
        theirs = None if brokers is None else brokers.topic_id(topic)
        present = archived.topic_id if theirs is None else theirs
        _check_same(topic, history, present)
        if present == archived.topic_id:
            return archived
        if (warned := (topic, archived.topic_id, present)) not in self._warned:
            self._warned.add(warned)
            log.warning("archive_of_another_topic", topic=topic, archived=archived.topic_id, brokers=present)
        return None

    def _continues(self, key: Key, history: HistoryPlan | None) -> bool:
        """Return whether brokers have the topic that the application read in the archive; False if that is unknown.

        Raises:
            SeamRefused: they have another one of that name.
        """
        if history is None or history.topic_id is None:
            return True
        brokers = self._brokers()
        present = None if brokers is None else brokers.topic_id(key[0])
        if present is not None:
            _check_same(key[0], history, present)
        return present is not None

    def _offset(self, key: Key, wanted: int, archive: Extent | None, kafka: Extent | None) -> int | None:
        """Return an offset for a logical one; None if no tier has the partition."""
        if wanted >= 0:
            return wanted
        both = whole(archive, kafka)
        if both is None:
            return None
        if wanted == OFFSET_BEGINNING:
            return both.start
        if wanted == OFFSET_END:
            return both.end
        if wanted <= TAIL:
            return max(both.end - (TAIL - wanted), both.start)
        raise NoOffset(f"{key[0]} [{key[1]}]: {wanted} is no offset")

    def _reset(self, key: Key, offset: int, archive: Extent | None, kafka: Extent | None) -> int:
        """Return where a partition continues whose next offset both tiers have removed."""
        reset = self._configuration.reset
        where = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(reset)
        found = None if where is None else self._offset(key, where, archive, kafka)
        if found is None:
            raise NoOffset(
                f"{key[0]} [{key[1]}]: offset {offset} was removed from Kafka and from the archive, and "
                "auto.offset.reset is error"
            )
        log.warning("offset_reset", topic=key[0], partition=key[1], offset=offset, policy=reset, to=found)
        return found

    def _skip(self, key: Key, offset: int, kafka: Extent) -> None:
        topic, partition = key
        if self._configuration.on_gap is OnGap.ERROR:
            raise NoOffset(
                f"{topic} [{partition}]: the archive ends at offset {offset}, and Kafka's log starts at {kafka.start}. "
                f"The rest is not shipped yet, or lost; {GAP_KEY} decides"
            )
        log.warning("gap_skipped", topic=topic, partition=partition, from_offset=offset, to_offset=kafka.start)


def _check_refusal(key: Key, wanted: int, refusal: str | None, kafka: Extent | None) -> None:
    """Raise SeamRefused if brokers refused an offset although their log has it, or ends below it."""
    if refusal is not None and kafka is not None and wanted >= kafka.start:
        raise SeamRefused(
            f"{key[0]} [{key[1]}]: brokers refuse offset {wanted}, and their log has {kafka.start} to {kafka.end}. "
            "An election removed records that the application has, the topic was created again, or it never had "
            f"that offset. To continue, seek to an offset from {kafka.start} to {kafka.end} ({refusal})"
        )


def _check_same(topic: str, history: HistoryPlan | None, present: str) -> None:
    """Check that what the application read last of the archive is of the topic id that the topic has now.

    Raises:
        SeamRefused: it is of another one.
    """
    if history is not None and history.topic_id not in {None, present}:
        raise SeamRefused(
            f"{topic} was created again: the records before this offset are of topic id {history.topic_id}, and "
            f"now it has {present}. Seek to a start of the new topic"
        )


def _is_behind(archived: ArchivedPartition, offset: int, epoch: int | None) -> bool:
    """Return whether the archive still has an earlier leader's records where the application has a later one's.

    Args:
        offset: the next one.
        epoch: the leader epoch of the record before it that the application has; None if it is unknown.

    Raises:
        SeamRefused: the archive follows a later leader, which never had the application's last records; as a consumer
            of Kafka validates its position (KIP-320).
    """
    epochs, end = archived.view.epochs, archived.view.end
    if epoch is None or epoch == NO_EPOCH or not epochs.pairs or offset < archived.extent.start:
        return False
    last, _ = epochs.pairs[-1]
    if epoch >= last:
        return epoch > last and offset < end
    _, shared = epochs.end_of(epoch, end)
    if shared < offset:
        raise SeamRefused(
            f"{archived.view.partition}: an election removed records that the application has. The archive follows the "
            f"later leader from offset {shared} on, and the application has everything below {offset}. "
            f"Seek to {shared} or below"
        )
    return False
