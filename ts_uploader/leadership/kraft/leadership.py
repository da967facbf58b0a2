"""Leadership in KRaft mode: the local broker's metadata names what it leads, its disk the leader epoch.

Once a second the source finds the epoch checkpoints that changed. It requests the metadata of those topics, and of some
others in turn. For each partition that the broker leads by its metadata, it confirms the leadership::

    metadata (leaders)  ->  directory (epoch, topic id)  ->  broker (epoch, as its replica leads)  ->  Led
                                                         ->  cluster (topic id)                   /
    metadata names another, no leader, or no such topic  ->  NotLed

Neither the epochs of the metadata nor the checkpoint are enough alone:

- A broker publishes metadata first and becomes leader afterwards (`BrokerMetadataPublisher.onMetadataUpdate`,
  `Partition.makeLeader`, which writes the new epoch to the checkpoint). In between, the metadata names it as the leader
  while the list still ends with an epoch of the former leader, as a follower's list does. The source therefore reads
  the file first, then requests the replica's epoch. It reports a leadership only if both are equal.
- An epoch can rise while the leader stays (a reassignment, an in-sync set that shrank). The metadata does not show
  that, but the checkpoint is another file then. The source reads its status each second, and drops earlier answers.
- A topic can be deleted and created again between two reads. The list and the id are of one directory
  (`replica_state`). That directory must still be there after the answers, so the replica that answered writes to it.
  The cluster must have the topic with that id. This distinguishes incarnations whose epochs are equal (0 and 0).
- A broker that is cut off from the controllers continues to lead, by its own metadata, and this source agrees. Records
  that it has not replicated stay above its high watermark. The commit of the next leader epoch fences this agent's
  commits (protocol rule 7).
- After an election a replica does not return its epoch until its high watermark reaches the start of that epoch. While
  too few replicas are in sync, that never happens. The broker does confirm that it leads, and its epoch is on its disk
  before that. So the list that was read earlier counts if it is still the same file afterwards.

While the broker does not answer, the source reports nothing. It never connects to controllers: the broker's answer
counts. Each `poll_seconds` it requests the settings again, and each `_UNCHANGED_POLLS` of them the epochs, even if
nothing seems to have changed. A broker that gets another epoch replaces the checkpoint, so its file shows that earlier.

The load is bounded. A round requests at most `_URGENT` topics that changed or are new, and others with `_IN_TURN`
partitions together; after a larger topic, rounds without others follow. A round reads the status of `_LOOKS` files, of
up to `_HINTED` more in directories that changed, and the settings of `_SETTINGS` topics. The fewer partitions there
are, the fewer have their turn in one round. The disk shows a new leadership at once. The end of one is noticed when its
topic's turn is reached, and until then it does no harm.

Each `poll_seconds` a report is repeated, and once in the partition's turn after its directory changed.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import islice
from typing import ClassVar

import structlog

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.leadership.denied_requests import DeniedRequest, DeniedRequests
from ts_uploader.leadership.kraft.broker import AnsweredByAnother, Broker, BrokerAway, Denied, NotAvailable
from ts_uploader.leadership.kraft.connection_check import kraft_findings
from ts_uploader.leadership.kraft.deleted_topics import DeletedTopics
from ts_uploader.leadership.kraft.polled_partitions import NEVER, KnownPartition, Turns
from ts_uploader.leadership.kraft.replica_state import Replica, find, read
from ts_uploader.log_dirs.local_log import epochs_mark
from ts_uploader.messages.observations import Leadership, Led, NotLed
from ts_uploader.retention.topic_retention import BROKER_KEYS, TOPIC_KEYS, BrokerSettings, TopicSettings

log = structlog.get_logger()

_URGENT = 200  # a request costs the agent a tenth of a millisecond, and the broker less
_IN_TURN = 100  # partitions: each costs some 5 microseconds; ten thousand are all read within two minutes
_IN_TURN_ROUNDS = 5  # until all have had their turn, if there are few
_LOOKS = 500  # some 3 microseconds each; of thirty thousand, a change that no hint names is found within a minute
_LOOK_ROUNDS = 50
_LEAST = 20  # partitions of a round
_HINTED = 4_000
_SETTINGS = 20  # topics
_PARTITIONS_IN_REQUEST = 1_000  # for epochs
_UNCHANGED_POLLS = 10  # an answer for ten thousand partitions costs the broker 30 milliseconds
_UNCONFIRMED_SECONDS = 60.0  # then a warning is logged
_UNANSWERED_ROUNDS = 2  # then the client is restarted
_CLOSE_SECONDS = 2.0


class KraftLeadership(LeadershipSource):
    """A leadership source that reads the local broker and its disk; see the module's docstring.

    Args:
        broker: a client of this broker, for the thread of `run`.
        identity: its principal, as far as its settings show it.
    """

    round_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        environment: Environment,
        emit: Callable[[LeadershipEvent], None],
        poll_seconds: float,
        broker: Broker,
        identity: str,
    ) -> None:
        super().__init__(environment, emit, poll_seconds)
        self._client = broker
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards the next two attributes; the thread in `run` owns those below them
        self._wanted: Set[TopicPartition] | None = None
        self._hinted: dict[TopicPartition, None] = {}  # partitions to look at before the others, in this order
        self._known: dict[TopicPartition, KnownPartition] = {}
        self._topics: dict[str, set[TopicPartition]] = {}
        self._urgent: dict[str, None] = {}  # topics to request before the others, in this order
        self._topic_turns: Turns[str] = Turns()
        self._in_turn = 0  # partitions that the next round may read; below 0 after a large topic
        self._look_turns: Turns[TopicPartition] = Turns()
        self._settings_at: dict[str, float] = {}  # by topic, when they were last requested; "" for the broker's
        self._denied = DeniedRequests(environment.broker_id, identity, poll_seconds)
        self._questions = DeletedTopics()
        self._connected: bool | None = None
        self._unanswered = 0  # rounds in a row
        self._reason: str | None = None  # of the last one

    @property
    def connected(self) -> bool:
        """Whether the broker answered in the last round."""
        return bool(self._connected)

    @property
    def broker_away(self) -> bool:
        """Whether the broker did not answer in the last round: it is the source."""
        return not self._connected

    @property
    def trouble(self) -> str | None:
        """Why the broker does not answer; None while it does."""
        return None if self._connected else self._reason

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Watch these partitions from the next round on."""
        with self._lock:
            self._wanted = frozenset(partitions)

    def look_at(self, partition: TopicPartition) -> None:
        """Look at the checkpoint of a partition in the next round: its directory changed."""
        with self._lock:
            self._hinted[partition] = None

    def run(self) -> None:
        """Confirm leaderships once a second until `stop`."""
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._round()
                    self._denied.log_due(began)
                except BrokerAway as error:
                    self._note_unavailable(error)
                self._stopping.wait(max(0.0, began + self.round_seconds - time.monotonic()))
        finally:
            self._client.close(_CLOSE_SECONDS)

    def stop(self) -> None:
        """End `run` after the request that is under way."""
        self._stopping.set()

    def examine(self, topics: Set[str]) -> list[Finding]:
        """Return whether the broker answers, and lets this identity read these topics."""
        return kraft_findings(self._client, self.environment, topics)

    def is_deleted(self, topic: str, topic_id: str) -> bool | None:
        """Return whether the broker's metadata lacks a topic with this id; None if it does not answer.

        The broker drops a topic from its metadata before it renames the topic's directories. The thread of `run` sends
        the requests. That the topic exists is this broker's answer, and its id is any broker's.
        """
        return self._questions.ask(topic, topic_id, 0.0)

    def _answer_questions(self) -> None:
        questions = self._questions.waiting()
        exists: dict[str, bool] = {}
        for topic in dict(questions):
            with suppress(AnsweredByAnother, Denied, NotAvailable):  # the next round repeats it
                exists[topic] = self._client.leaders(topic) is not None
        present = {topic for topic, there in exists.items() if there}
        ids = self._client.topic_ids(present) if present else {}
        for topic, topic_id in questions:
            if topic in ids or exists.get(topic) is False:
                self._questions.answer(topic, topic_id, deleted=ids.get(topic) != topic_id, final=not exists[topic])

    def _round(self) -> None:
        self._follow()
        self._request_settings()  # first: see `librdkafka_client`
        self._note_answered()
        self._answer_questions()
        self._look()
        topics = dict.fromkeys((*islice(self._urgent, _URGENT), *self._take_turns()))
        led: list[TopicPartition] = []
        for topic in topics:
            if self._stopping.is_set():
                return
            try:
                leaders = self._leaders(topic)
            except AnsweredByAnother:
                break
            self._urgent.pop(topic, None)
            if leaders is not None:
                led += self._take_leaders(topic, leaders)
        for at in range(0, len(led), _PARTITIONS_IN_REQUEST):
            self._confirm_and_emit(led[at : at + _PARTITIONS_IN_REQUEST])
            if self._stopping.is_set():
                return

    def _take_turns(self) -> Sequence[str]:
        """Return the topics whose turn it is."""
        turns = self._share(_IN_TURN, _IN_TURN_ROUNDS)
        self._in_turn = min(self._in_turn + turns, turns)
        topics = self._topic_turns.take(self._in_turn, lambda topic: len(self._topics[topic]))
        self._in_turn -= sum(len(self._topics[topic]) for topic in topics)
        return topics

    def _share(self, most: int, rounds: int) -> int:
        """Return the number of partitions that have their turn in one round, if all have it within so many rounds."""
        return min(most, max(_LEAST, len(self._known) // rounds))

    def _follow(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        for partition in self._known.keys() - wanted:
            del self._known[partition]
        for partition in sorted(wanted - self._known.keys()):
            self._known[partition] = KnownPartition()
            self._urgent[partition.topic] = None
            self.look_at(partition)
        self._topics = {}
        for partition in self._known:
            self._topics.setdefault(partition.topic, set()).add(partition)
        for by_topic in (self._urgent, self._settings_at):
            for topic in by_topic.keys() - self._topics.keys() - {""}:
                del by_topic[topic]
        self._denied.keep(self._topics.keys())
        self._topic_turns.change(self._topics.keys())
        self._look_turns.change(self._known.keys())

    def _look(self) -> None:
        """Mark the topics whose checkpoints changed as urgent."""
        with self._lock:
            hinted = [*islice(self._hinted, _HINTED)]
            for partition in hinted:
                del self._hinted[partition]
        for partition in hinted:
            if (known := self._known.get(partition)) is not None:
                known.reported_at = NEVER  # a caller that saw no directory of it may have dropped the report
        for partition in (*hinted, *self._look_turns.take(self._share(_LOOKS, _LOOK_ROUNDS))):
            known = self._known.get(partition)
            if known is None:
                continue
            mark = None if known.directory is None else epochs_mark(known.directory)
            if mark is None:
                known.directory = find(self.environment.log_dirs, partition)
                mark = None if known.directory is None else epochs_mark(known.directory)
            if mark != known.mark:
                known.mark = mark
                self._urgent[partition.topic] = None

    def _leaders(self, topic: str) -> Mapping[int, int] | None:
        """Return the leaders by partition, empty without such a topic; None if they are unknown."""
        try:
            leaders = self._client.leaders(topic)
        except Denied as denied:
            self._denied.take(DeniedRequest.LEADERS, topic, str(denied))
            return None
        except NotAvailable as unknown:
            log.debug("topic_leaders_unknown", topic=topic, error=str(unknown))
            return None
        self._denied.granted(DeniedRequest.LEADERS, topic)
        return leaders or {}

    def _take_leaders(self, topic: str, leaders: Mapping[int, int]) -> list[TopicPartition]:
        """Report `NotLed` for the partitions that this broker does not lead; return the others."""
        led, now = [], time.monotonic()
        for partition in sorted(self._topics.get(topic, ())):
            if leaders.get(partition.partition) == self.environment.broker_id:
                led.append(partition)
            else:
                known = self._known[partition]
                known.leadership = known.confirmed = known.unconfirmed_since = None
                self._report(partition, known, now)
        return led

    def _confirm_and_emit(self, led: Sequence[TopicPartition]) -> None:
        now = time.monotonic()
        unsure = []
        for partition in led:
            known = self._known[partition]
            current = known.directory is not None and known.confirmed == epochs_mark(known.directory)
            if not current or now > known.requested_at + _UNCHANGED_POLLS * self.poll_seconds:
                unsure.append(partition)
        confirmed = self._confirm(unsure)
        for partition in led:
            known = self._known[partition]
            if partition in confirmed:
                replica = confirmed[partition]
                known.confirmed, known.requested_at, known.unconfirmed_since = replica.mark, now, None
                if known.leadership is None or (known.leadership.epoch, known.leadership.topic_id) != (
                    replica.epoch,
                    replica.topic_id,
                ):
                    known.leadership = Leadership(replica.epoch, replica.topic_id, time.time_ns())
            elif partition in unsure:
                known.confirmed = None
                self._retry_soon(partition, known, now)
            if known.confirmed is not None and known.leadership is not None:
                self._report(partition, known, now)

    def _report(self, partition: TopicPartition, known: KnownPartition, now: float) -> None:
        """Emit who leads, unless the same was reported less than `poll_seconds` ago."""
        leadership = known.leadership
        if known.reported is not leadership or now >= known.reported_at + self.poll_seconds:
            known.reported, known.reported_at = leadership, now
            self.emit(NotLed(partition) if leadership is None else Led(partition, leadership))

    def _confirm(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Replica]:
        """Return the replicas on disk that broker and cluster confirm, and that are unchanged afterwards."""
        replicas: dict[TopicPartition, Replica] = {}
        for partition in partitions:
            replica = _replica_of(self._known[partition])
            if replica is not None:
                replicas[partition] = replica
        if not replicas:
            return {}
        ids = self._client.topic_ids({partition.topic for partition in replicas})
        epochs = self._client.latest(replicas).epochs
        return {
            partition: replica
            for partition, replica in replicas.items()
            if partition in epochs
            and self._is_of(replica, partition, epochs[partition])
            and ids.get(partition.topic) == replica.topic_id
            and replica.is_current
        }

    def _is_of(self, replica: Replica, partition: TopicPartition, epoch: int | None) -> bool:
        """Whether the disk has the leader epoch of the broker's replica.

        If the broker returns no epoch, it leads with the one that it wrote last. If another directory is live as well,
        the broker may write to that one, so nothing is confirmed.
        """
        if epoch is not None:
            return replica.epoch == epoch
        return find(self.environment.log_dirs, partition, after=replica.directory) == replica.directory

    def _retry_soon(self, partition: TopicPartition, known: KnownPartition, now: float) -> None:
        """Retry in the next round, with another directory if several are live; log if that lasts."""
        self._urgent[partition.topic] = None
        known.directory = find(self.environment.log_dirs, partition, after=known.directory)
        if known.unconfirmed_since is None:
            known.unconfirmed_since = now
        elif now > known.unconfirmed_since + _UNCONFIRMED_SECONDS:
            known.unconfirmed_since = float("inf")  # logged once
            log.warning(
                "leadership_unconfirmed",
                message="the broker leads this partition by its metadata, but disk, broker and cluster disagree on "
                "leader epoch or topic id; retried",
                partition=str(partition),
                directory=str(known.directory),
            )

    def _request_settings(self) -> None:
        """Request the settings that are due, or else those that were requested longest ago."""
        now = time.monotonic()
        requested_at = self._settings_at
        if not self._topics or now >= requested_at.get("", now) + self.poll_seconds or "" not in requested_at:
            self._take_settings("", self._client.broker_settings())
            requested_at[""] = now
        oldest = sorted(self._topics, key=lambda topic: requested_at.get(topic, 0.0))[:_SETTINGS]
        due = [topic for topic in oldest if topic not in requested_at or now >= requested_at[topic] + self.poll_seconds]
        topics = due or oldest[:1]
        if topics:
            found = self._client.topic_settings(topics)
            for topic in topics:
                requested_at[topic] = now
                if topic in found:
                    self._take_settings(topic, found[topic])

    def _take_settings(self, topic: str, overrides: dict[str, str] | None) -> None:
        request = DeniedRequest.TOPIC_SETTINGS if topic else DeniedRequest.BROKER_SETTINGS
        if overrides is None:
            self._denied.take(request, topic, "no permission")
            return
        self._denied.granted(request, topic)
        if topic:
            self.emit(TopicSettings(topic, _pairs(overrides, TOPIC_KEYS)))
        else:
            self.emit(BrokerSettings(_pairs(overrides, BROKER_KEYS)))

    def _note_answered(self) -> None:
        if not self._connected:
            log.info("broker_connected", broker=self.environment.broker_id)
        self._connected = True
        self._unanswered = 0

    def _note_unavailable(self, error: BrokerAway) -> None:
        if self._connected is not False:
            log.warning(
                "broker_unavailable",
                message="leadership unknown; no new partition is shipped",
                broker=self.environment.broker_id,
                bootstrap=self._client.bootstrap,
                error=str(error),
            )
        self._connected, self._reason = False, str(error)
        self._unanswered += 1
        if self._unanswered % _UNANSWERED_ROUNDS == 0:
            try:
                self._client.restart()
            except BrokerAway as unusable:
                if self._unanswered == _UNANSWERED_ROUNDS:  # logged once
                    log.warning("broker_connection_failed", message="retried", error=str(unusable))


def _replica_of(known: KnownPartition) -> Replica | None:
    """Return the replica on disk; files that were confirmed are read again only after they changed."""
    if known.directory is None:
        return None
    mark, of = known.confirmed, known.leadership
    if mark is not None and of is not None and of.topic_id is not None and mark == epochs_mark(known.directory):
        return Replica(known.directory, mark, of.epoch, of.topic_id)
    return read(known.directory)


def _pairs(overrides: Mapping[str, str], keys: Set[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in overrides.items() if key in keys))
