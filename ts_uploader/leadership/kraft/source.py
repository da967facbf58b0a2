"""Leadership in KRaft mode: the broker beside us says what it leads, and its disk in which epoch.

Once a second: which checkpoints of epochs changed, what the broker's metadata says of those topics and of some of the
others in their turn, and for each partition that it leads by that, whether a leadership is known::

    metadata (leaders)  ->  directory (epoch, topic id)  ->  broker (epoch, as its replica leads)  ->  Led
                                                         ->  cluster (topic id)                   /
    metadata names another, nobody, or no such topic     ->  NotLed

Kafka's clients are not told epochs with the metadata, and the checkpoint alone is not enough:

- A broker publishes metadata first and makes itself leader afterwards (`BrokerMetadataPublisher.onMetadataUpdate`,
  `Partition.makeLeader`, which writes the new epoch to the checkpoint). In between the metadata says that it leads, and
  the list still ends with an epoch of the former leader: a follower's list has these too. The file is therefore read
  first and the replica asked for its epoch then; a leadership is said only where both are equal.
- An epoch can rise while the leader stays (a reassignment, an in-sync set that shrank). The metadata shows nothing of
  that, but the checkpoint is another file then: it is looked at each second, and what was asked no longer counts.
- A topic is deleted and created again between two reads. The list and the id are of one directory (`replica`); that
  directory must still stand after the answers, so the replica that answered writes to it, and the cluster must know
  the topic by that id. Where epochs are equal by chance (0 and 0), this tells the incarnations apart.
- A broker that is cut off from the controllers believes that it goes on leading, and so do we. What it has not
  replicated stays above its high watermark, and the commit of the next leader epoch refuses ours (protocol rule 7).
- After an election a replica does not tell its epoch before its high watermark reached where the epoch began, which may
  never come while too few replicas are in sync. It says that it leads then, and an epoch is on its disk before it does:
  the list that was read before counts if it is still the same file afterwards.

While the broker does not answer nothing is said. Controllers are not asked: what the broker says counts. Everything is
asked again each `poll_seconds`, also where nothing seems to have changed.

The load is bounded: a round asks for `_URGENT` topics at most that changed or are new and for `_IN_TURN` others, looks
at `_LOOKS` files, and reads the settings of `_SETTINGS` topics. Who became leader shows on the disk at once; who is
not any more is noticed in its turn, and does no harm before.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import structlog

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.events import Leadership, Led, NotLed
from ts_uploader.findings import Finding
from ts_uploader.leadership.contract import LeadershipSource, Said
from ts_uploader.leadership.denied_requests import DeniedRequest, Refusals
from ts_uploader.leadership.kraft.broker_client import AnsweredByAnother, BrokerAway, BrokerClient, NotKnown, Refused
from ts_uploader.leadership.kraft.check import kraft_findings
from ts_uploader.leadership.kraft.replica_state import Replica, find, read
from ts_uploader.log_dirs.local_log import EpochsMark, epochs_mark
from ts_uploader.retention.topic_retention import BROKER_KEYS, TOPIC_KEYS, BrokerSettings, TopicSettings

log = structlog.get_logger()

_URGENT = 200  # a question takes a tenth of a millisecond here, and less there
_IN_TURN = 100
_LOOKS = 4_000  # some 3 microseconds each
_SETTINGS = 20  # each answer holds all thirty settings of a topic
_QUESTIONS = 1_000  # partitions in one request for epochs
_UNCONFIRMED_SECONDS = 60.0  # after which it is worth a word
_PATIENCE = 2  # rounds without an answer, before the client is started anew
_CLOSE_SECONDS = 2.0

T = TypeVar("T", TopicPartition, str)


class _Turns(Generic[T]):
    """Takes some of many at a time, each in its turn, also while there are always others."""

    def __init__(self) -> None:
        self._all: list[T] = []
        self._last: T | None = None  # that was taken; None: the first comes next

    def change(self, among: Set[T]) -> None:
        self._all = sorted(among)

    def take(self, most: int) -> Sequence[T]:
        at = 0 if self._last is None else bisect_right(self._all, self._last)
        taken = self._all[at : at + most]
        self._last = taken[-1] if at + most < len(self._all) else None
        return taken


class _Known:
    """What is known of one partition.

    Attributes:
        directory: the live one; None until one was found. Of several the one that is being asked about.
        mark: of its checkpoint, when it was last looked at.
        confirmed: the mark for which `leadership` was confirmed; None for none.
        asked_at: when, by the monotonic clock.
        leadership: this broker's; None while it is not known to lead.
        doubted_since: since when the broker leads by its metadata and did not confirm it, by the monotonic clock.
    """

    __slots__ = ("asked_at", "confirmed", "directory", "doubted_since", "leadership", "mark")

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.mark: EpochsMark | None = None
        self.confirmed: EpochsMark | None = None
        self.asked_at = 0.0
        self.leadership: Leadership | None = None
        self.doubted_since: float | None = None


class KraftLeadership(LeadershipSource):
    """See the module's page.

    Args:
        environment: the broker's surroundings.
        emit: as the contract says.
        poll_seconds: likewise.
        client: librdkafka's settings for a client of this broker.

    Raises:
        ConfigurationError: librdkafka refuses them; from the constructor.
    """

    round_seconds: ClassVar[float] = 1.0
    answer_seconds: ClassVar[float] = 3.0

    def __init__(
        self, environment: Environment, emit: Callable[[Said], None], poll_seconds: float, client: Mapping[str, str]
    ) -> None:
        super().__init__(environment, emit, poll_seconds)
        self._client = BrokerClient(environment.broker_id, client, self.answer_seconds)
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards the next; the thread in `run` owns what is below it
        self._wanted: Set[TopicPartition] | None = None
        self._known: dict[TopicPartition, _Known] = {}
        self._topics: dict[str, set[TopicPartition]] = {}
        self._urgent: dict[str, None] = {}  # topics to be asked for before the others, in this order
        self._topic_turns: _Turns[str] = _Turns()
        self._look_turns: _Turns[TopicPartition] = _Turns()
        self._settings_at: dict[str, float] = {}  # by topic, when they were last asked for; "" for the broker's
        self._refusals = Refusals(environment.broker_id, _identity(client), poll_seconds)
        self._connected: bool | None = None
        self._unanswered = 0  # rounds in a row

    @property
    def connected(self) -> bool:
        """Whether the broker answered in the last round."""
        return bool(self._connected)

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """As the contract says; the next round asks for the new ones, and none comes earlier for it."""
        with self._lock:
            self._wanted = frozenset(partitions)

    def run(self) -> None:
        """As the contract says."""
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._round()
                    self._refusals.say(began)
                except BrokerAway as error:
                    self._say_away(error)
                self._stopping.wait(max(0.0, began + self.round_seconds - time.monotonic()))
        finally:
            self._client.close(_CLOSE_SECONDS)

    def stop(self) -> None:
        """As the contract says."""
        self._stopping.set()

    def examine(self, topics: Set[str]) -> list[Finding]:
        """As the contract says."""
        return kraft_findings(self._client, self.environment, topics)

    def _round(self) -> None:
        self._follow()
        self._ask_for_settings()  # first: see `broker_client`
        self._say_back()
        self._look()
        topics = dict.fromkeys((*islice(self._urgent, _URGENT), *self._topic_turns.take(_IN_TURN)))
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
        for at in range(0, len(led), _QUESTIONS):
            self._confirm_and_say(led[at : at + _QUESTIONS])
            if self._stopping.is_set():
                return

    def _follow(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        for partition in self._known.keys() - wanted:
            del self._known[partition]
        for partition in sorted(wanted - self._known.keys()):
            self._known[partition] = _Known()
            self._urgent[partition.topic] = None
        self._topics = {}
        for partition in self._known:
            self._topics.setdefault(partition.topic, set()).add(partition)
        for by_topic in (self._urgent, self._settings_at):
            for topic in by_topic.keys() - self._topics.keys() - {""}:
                del by_topic[topic]
        self._refusals.keep(self._topics.keys())
        self._topic_turns.change(self._topics.keys())
        self._look_turns.change(self._known.keys())

    def _look(self) -> None:
        """Ask first for what changed on the disk."""
        for partition in self._look_turns.take(_LOOKS):
            known = self._known[partition]
            mark = None if known.directory is None else epochs_mark(known.directory)
            if mark is None:
                known.directory = find(self.environment.log_dirs, partition)
                mark = None if known.directory is None else epochs_mark(known.directory)
            if mark != known.mark:
                known.mark = mark
                self._urgent[partition.topic] = None

    def _leaders(self, topic: str) -> dict[int, int] | None:
        """Leaders by partition, none where there is no such topic; None where it is not known."""
        try:
            leaders = self._client.leaders(topic)
        except Refused as refused:
            self._refusals.take(DeniedRequest.LEADERS, topic, str(refused))
            return None
        except NotKnown as unknown:
            log.debug("topic_leaders_unknown", topic=topic, error=str(unknown))
            return None
        self._refusals.granted(DeniedRequest.LEADERS, topic)
        return leaders or {}

    def _take_leaders(self, topic: str, leaders: Mapping[int, int]) -> list[TopicPartition]:
        """Say which partitions are not led here; the answer is which are, by the metadata."""
        led = []
        for partition in sorted(self._topics.get(topic, ())):
            if leaders.get(partition.partition) == self.environment.broker_id:
                led.append(partition)
            else:
                known = self._known[partition]
                known.leadership = known.confirmed = known.doubted_since = None
                self.emit(NotLed(partition))
        return led

    def _confirm_and_say(self, led: Sequence[TopicPartition]) -> None:
        now = time.monotonic()
        unsure = []
        for partition in led:
            known = self._known[partition]
            current = known.directory is not None and known.confirmed == epochs_mark(known.directory)
            if not current or now > known.asked_at + self.poll_seconds:
                unsure.append(partition)
        confirmed = self._confirm(unsure)
        for partition in led:
            known = self._known[partition]
            if partition in confirmed:
                replica = confirmed[partition]
                known.confirmed, known.asked_at, known.doubted_since = replica.mark, now, None
                if known.leadership is None or (known.leadership.epoch, known.leadership.topic_id) != (
                    replica.epoch,
                    replica.topic_id,
                ):
                    known.leadership = Leadership(replica.epoch, replica.topic_id, time.time_ns())
            elif partition in unsure:
                known.confirmed = None
                self._doubt(partition, known, now)
            if known.confirmed is not None and known.leadership is not None:
                self.emit(Led(partition, known.leadership))

    def _confirm(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Replica]:
        """What the disk says of these, where broker and cluster say the same and it still stands afterwards."""
        replicas: dict[TopicPartition, Replica] = {}
        for partition in partitions:
            directory = self._known[partition].directory
            replica = None if directory is None else read(directory)
            if replica is not None:
                replicas[partition] = replica
        if not replicas:
            return {}
        ids = self._client.topic_ids({partition.topic for partition in replicas})
        epochs = self._client.epochs(replicas)
        return {
            partition: replica
            for partition, replica in replicas.items()
            if partition in epochs
            and self._is_of(replica, partition, epochs[partition])
            and ids.get(partition.topic) == replica.topic_id
            and replica.stands
        }

    def _is_of(self, replica: Replica, partition: TopicPartition, epoch: int | None) -> bool:
        """Whether the disk shows the epoch in which the broker leads.

        A broker that tells none leads in the one that it wrote last. Where another directory is live, that may be the
        one that it writes to.
        """
        if epoch is not None:
            return replica.epoch == epoch
        return find(self.environment.log_dirs, partition, after=replica.directory) == replica.directory

    def _doubt(self, partition: TopicPartition, known: _Known, now: float) -> None:
        """Ask for it again soon, of another directory where several are live, and say so where that lasts."""
        self._urgent[partition.topic] = None
        known.directory = find(self.environment.log_dirs, partition, after=known.directory)
        if known.doubted_since is None:
            known.doubted_since = now
        elif now > known.doubted_since + _UNCONFIRMED_SECONDS:
            known.doubted_since = float("inf")  # once
            log.warning(
                "leadership_unconfirmed",
                message="the broker's metadata says that it leads this partition; disk, broker and cluster disagree on "
                "leader epoch and topic id; retried",
                partition=str(partition),
                directory=str(known.directory),
            )

    def _ask_for_settings(self) -> None:
        """Ask for those that are due, or for those that were asked for longest ago."""
        now = time.monotonic()
        asked_at = self._settings_at
        if not self._topics or now >= asked_at.get("", now) + self.poll_seconds or "" not in asked_at:
            self._take_settings("", self._client.broker_settings())
            asked_at[""] = now
        oldest = sorted(self._topics, key=lambda topic: asked_at.get(topic, 0.0))[:_SETTINGS]
        due = [topic for topic in oldest if topic not in asked_at or now >= asked_at[topic] + self.poll_seconds]
        asked = due or oldest[:1]
        if asked:
            found = self._client.topic_settings(asked)
            for topic in asked:
                asked_at[topic] = now
                if topic in found:
                    self._take_settings(topic, found[topic])

    def _take_settings(self, topic: str, overrides: dict[str, str] | None) -> None:
        asked = DeniedRequest.TOPIC_SETTINGS if topic else DeniedRequest.BROKER_SETTINGS
        if overrides is None:
            self._refusals.take(asked, topic, "no permission")
            return
        self._refusals.granted(asked, topic)
        if topic:
            self.emit(TopicSettings(topic, _pairs(overrides, TOPIC_KEYS)))
        else:
            self.emit(BrokerSettings(_pairs(overrides, BROKER_KEYS)))

    def _say_back(self) -> None:
        if not self._connected:
            log.info("broker_connected", broker=self.environment.broker_id)
        self._connected = True
        self._unanswered = 0

    def _say_away(self, error: BrokerAway) -> None:
        if self._connected is not False:
            log.warning(
                "broker_unavailable",
                message="leadership unknown; no new partition is shipped",
                broker=self.environment.broker_id,
                bootstrap=self._client.bootstrap,
                error=str(error),
            )
        self._connected = False
        self._unanswered += 1
        if self._unanswered % _PATIENCE == 0:
            try:
                self._client.start_anew()
            except BrokerAway as unusable:
                if self._unanswered == _PATIENCE:  # once
                    log.warning("broker_connection_failed", message="retried", error=str(unusable))


def _identity(client: Mapping[str, str]) -> str:
    """Under which name the broker knows a client with these settings, as far as they tell."""
    if "sasl.username" in client:
        return client["sasl.username"]
    own = client.keys() & {"ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"}
    return "the subject of its certificate" if own else "ANONYMOUS"


def _pairs(overrides: Mapping[str, str], keys: Set[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in overrides.items() if key in keys))
