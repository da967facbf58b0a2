"""Leadership from ZooKeeper, in real time: a watch on each node of the partitions that have a local directory.

Each read of a path sets its watch. kazoo's callback thread only notes which path changed; the thread in `run` reads
what is noted, many requests in flight, and says of each state that it read what is so. It alone owns what is known.
Not kazoo's `DataWatch`: that starts a thread per watch after each reconnection.

- The connection is lost, the session expires: kazoo drops all watches then, so everything is read after each
  connection. In between nothing is said. A request that fails is made again soon, and the others go on.
- kazoo gives up (its thread died, ZooKeeper refused its credentials, or the ensemble was restored and is older than
  what it saw): a new client, after a pause where it was refused.
- A warning says that ZooKeeper does not answer, once an attempt failed or some seconds passed, and again for each new
  reason (`zookeeper_connection`). Nothing is said of the first milliseconds, in which no session can be there yet; the
  loss of one is said at once.
- Settings of topics and brokers are read last and are not worth an alarm: with `zookeeper.set.acl=true` the brokers'
  may be read by brokers only (Kafka's `ZkData.SensitiveRootPaths`). What is refused is unknown, warned of once, and
  asked for again with everything else.
- The cluster goes over to KRaft: what stands in ZooKeeper is stale then (`migration`). Before anything else it is read
  whether this is so; then nothing is said, as while ZooKeeper is away. Once the broker's own file says that it runs in
  KRaft mode the process ends, and the one that its supervisor starts asks the broker.
"""

import threading
import time
from collections.abc import Callable, Set
from typing import Any, ClassVar

import structlog
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from ts_common.errors import ConfigurationError, TransientError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.events import Led
from ts_uploader.findings import Finding
from ts_uploader.leadership.contract import LeadershipSource, Said
from ts_uploader.leadership.zookeeper.check import zookeeper_findings
from ts_uploader.leadership.zookeeper.connection import Connection, Trouble
from ts_uploader.leadership.zookeeper.migration import Registration
from ts_uploader.leadership.zookeeper.security import Security
from ts_uploader.leadership.zookeeper.state import Node, ZookeeperState, topic_path
from ts_uploader.leadership.zookeeper.tls import tls_context

log = structlog.get_logger()

_IN_FLIGHT = 1_000
_RETRY_SECONDS = 2.0
_SLICE_SECONDS = 0.2  # between two looks whether to stop while an answer is awaited
_CLOSE_SECONDS = 2.0
_EVERYTHING = "/"  # noted like a path


class BrokerMigrated(TransientError):
    """The broker runs in KRaft mode now, by its own file: an agent that is started now asks the broker."""


class ZookeeperLeadership(LeadershipSource):
    """See the module's page.

    Args:
        environment: the broker's surroundings.
        emit: as the contract says.
        poll_seconds: likewise.
        security: how the connection is secured.

    Raises:
        ConfigurationError: `zookeeper.connect` is not what it should be, or a store or a file with credentials cannot
            be used; from the constructor.
    """

    session_seconds: ClassVar[float] = 10.0
    grace_seconds: ClassVar[float] = 5.0  # without a session and without a failure, before it is worth a warning
    give_up_seconds: ClassVar[float] = 60.0  # without a connection, before kazoo is started anew
    refused_seconds: ClassVar[float] = 10.0  # the same, where ZooKeeper refused the identity

    def __init__(
        self,
        environment: Environment,
        emit: Callable[[Said], None],
        poll_seconds: float,
        security: Security | None = None,
    ) -> None:
        super().__init__(environment, emit, poll_seconds)
        self._security = security or Security()
        if self._security.tls is not None:
            tls_context(self._security.tls)  # what is wrong with the stores ends the start
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._connection = self._new_connection()
        self._lock = threading.Lock()  # guards the next two; the thread in `run` owns what is below them
        self._wanted: Set[TopicPartition] | None = None  # what is to be followed from now on
        self._noted: set[str] = set()
        self._knowledge = ZookeeperState(environment.broker_id)
        self._registration = Registration(environment.broker_id)
        self._stale: bool | None = None  # not before the registration was read
        self._failed: set[str] = set()
        self._refused: set[str] = set()  # settings that were warned of
        self._retry_at = self._poll_at = 0.0
        self._lost_at: float | None = None
        self._answered = False  # in this session
        self._warned: set[str] = set()  # reasons, since ZooKeeper last answered

    @property
    def connected(self) -> bool:
        """Whether the session is up, and ZooKeeper is where the broker's leadership is told."""
        return self._in_session and self._answered and self._stale is False

    @property
    def trouble(self) -> str | None:
        """As the contract says."""
        if self.connected:
            return None
        if self._stale:
            return self._registration.stale
        trouble = self._connection.trouble
        return None if trouble is None else str(trouble)

    @property
    def _in_session(self) -> bool:
        return self._connection.in_session

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """As the contract says; the thread in `run` reads the new ones."""
        with self._lock:
            self._wanted = frozenset(partitions)
        self._wake.set()

    def run(self) -> None:
        """As the contract says."""
        try:
            self._connection.client.start_async()
            while not self._stopping.is_set():
                now = time.monotonic()
                if self._in_session:
                    self._lost_at = None
                    self._read_noted(now)
                    next_look = min(self._poll_at, self._retry_at) if self._failed else self._poll_at
                    if not self._connection.in_session:
                        continue
                else:
                    if self._lost_at is None:
                        self._lost_at = now
                    if self._connection.ended:
                        self._connection.close(0.0)
                    warned = self._say_away(now, self._lost_at)
                    next_look = self._lost_at + (self._patience if warned else self.grace_seconds)
                    if now >= self._lost_at + self._patience:
                        self._start_anew()
                        continue
                self._wake.wait(max(0.0, next_look - time.monotonic()))
                self._wake.clear()
        finally:
            self._connection.close(_CLOSE_SECONDS)

    def stop(self) -> None:
        """As the contract says."""
        self._stopping.set()
        self._wake.set()

    def examine(self, topics: Set[str]) -> list[Finding]:
        """As the contract says."""
        return zookeeper_findings(self._connection, self._security, self.environment, topics)

    def _read_noted(self, now: float) -> None:
        with self._lock:
            wanted, noted = self._wanted, self._noted
            self._wanted, self._noted = None, set()
        if wanted is not None:
            noted |= self._knowledge.follow(wanted)
        if self._failed and now >= self._retry_at:
            noted, self._failed = noted | self._failed, set()
        if _EVERYTHING in noted or now >= self._poll_at:
            noted = self._knowledge.partitions.keys() | self._knowledge.settings | self._registration.paths
            self._failed = set()
            self._poll_at = now + self.poll_seconds
        if not self._read_registration(noted & self._registration.paths):
            self._read_soon(noted)
            return
        ordered = sorted(path for path in noted if path in self._knowledge.partitions or path in self._knowledge.states)
        settings = sorted(noted & self._knowledge.settings)
        for read_and_say, paths in ((self._read_and_say, ordered), (self._read_and_say_settings, settings)):
            for at in range(0, len(paths), _IN_FLIGHT):
                read_and_say(paths[at : at + _IN_FLIGHT])
                if self._stopping.is_set() or not self._in_session:
                    return  # the next connection notes everything

    def _read_registration(self, paths: Set[str]) -> bool:
        """Read these; whether what else stands in ZooKeeper may be said.

        Raises:
            BrokerMigrated: see the module's page.
        """
        answers, failures = self._read(sorted(paths))
        self._say_failures(failures)
        for path, node in answers.items():
            self._registration.take(path, stands=node is not None)
        if (paths - answers.keys()) | (self._failed & self._registration.paths):
            return False
        if not self._answered:
            self._connection.answered()
            self._warned.clear()
            self._answered = True
            log.info("zookeeper_connected", connect=self.environment.zookeeper_connect)
        self._judge()
        return not self._stale

    def _judge(self) -> None:
        reason, was_stale = self._registration.stale, self._stale
        self._stale = reason is not None
        if reason is not None and not was_stale:
            log.error(
                "zookeeper_ignored",
                message="leadership unknown; no new partition is shipped. The cluster migrates to KRaft; this broker "
                "is not registered in ZooKeeper. If it runs in KRaft mode, restart the agent with the properties file "
                "that sets process.roles",
                broker=self.environment.broker_id,
                reason=reason,
            )
        elif was_stale and reason is None:
            log.info("broker_registered", broker=self.environment.broker_id)
            self._note({_EVERYTHING})
        if self._stale and self.environment.runs_kraft_now():
            raise BrokerMigrated(
                f"broker {self.environment.broker_id} runs in KRaft mode by its own file: leadership has to be asked "
                "of the broker, and no longer of ZooKeeper"
            )

    def _read_and_say(self, paths: list[str]) -> None:
        """Read these states, then their topics and these; say of each partition what is so."""
        states = [path for path in paths if path in self._knowledge.partitions]
        topics = sorted({topic_path(path) for path in paths})
        answers, failures = self._read([*states, *topics])
        self._say_failures(failures)
        for topic in answers.keys() & topics:
            self._note(self._knowledge.take_topic(topic, answers[topic]) - set(states))
        said_nothing = {*states, *topics} - answers.keys()
        for state in states:
            if topic_path(state) not in answers:
                said_nothing.add(state)
            elif state in answers:
                said = self._knowledge.take_state(state, answers[state], time.time_ns())
                if isinstance(said, Led):
                    self._registration.take_led(said, self.environment.log_dirs)
                    if self._registration.stale is not None:
                        said_nothing.add(state)
                        continue
                if said is not None:
                    self.emit(said)
        self._judge()
        self._read_soon(said_nothing)

    def _read_and_say_settings(self, paths: list[str]) -> None:
        answers, failures = self._read(paths)
        refused = {path for path, error in failures.items() if isinstance(error, NoAuthError)}
        self._say_failures({path: error for path, error in failures.items() if path not in refused})
        if refused - self._refused:
            paths_said = sorted(refused)[:10]
            log.warning(
                "zookeeper_settings_denied",
                message="the broker's own settings are used",
                paths=paths_said,
                of=len(refused),
            )
        self._refused = (self._refused - answers.keys()) | refused
        for path, node in answers.items():
            said = self._knowledge.take_settings(path, node)
            if said is not None:
                self.emit(said)
        self._read_soon(set(paths) - answers.keys() - refused)

    def _read_soon(self, paths: Set[str]) -> None:
        if paths:
            self._failed |= paths
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _read(self, paths: list[str]) -> tuple[dict[str, Node | None], dict[str, Exception]]:
        """What these paths hold, None where nothing stands, with a watch on each; and what failed instead."""
        failures: dict[str, Exception] = {}
        client = self._connection.client
        found = self._await({path: client.get_async(path, self._changed) for path in paths}, failures)
        answers: dict[str, Node | None] = {path: Node(data, at.czxid, at.mzxid) for path, (data, at) in found.items()}
        # `get` sets no watch where nothing stands, `exists` does.
        absent = [path for path, error in failures.items() if isinstance(error, NoNodeError)]
        for path in absent:
            del failures[path]
        stats = self._await({path: client.exists_async(path, self._changed) for path in absent}, failures)
        answers |= {path: None for path, stat in stats.items() if stat is None}
        self._note(stats.keys() - answers.keys())  # came in between
        return answers, failures

    def _say_failures(self, failures: dict[str, Exception]) -> None:
        if failures and not self._stopping.is_set():
            errors = sorted({repr(error) for error in failures.values()})
            if any(isinstance(error, AuthFailedError) for error in failures.values()):
                self._connection.refused()
                return
            refused = any(isinstance(error, NoAuthError) for error in failures.values())
            say = log.error if refused else log.warning
            say("zookeeper cannot be read, trying on", paths=sorted(failures)[:10], of=len(failures), errors=errors)

    def _await(self, requests: dict[str, Any], failures: dict[str, Exception]) -> dict[str, Any]:
        answers = {}
        for path, request in requests.items():
            try:
                while not request.wait(_SLICE_SECONDS if self._in_session else 0.0):
                    if self._stopping.is_set() or not self._in_session:
                        raise ConnectionLoss("the connection was lost before the answer came")
                answers[path] = request.get(block=False)
            except Exception as error:  # noqa: BLE001  (kazoo also hands on whatever its decoder raised)
                failures[path] = error
        return answers

    def _changed(self, event: WatchedEvent) -> None:
        # On kazoo's callback thread. A lost connection comes here too, once per watch and without a path.
        if event.path is not None:
            self._note({event.path})

    @property
    def _patience(self) -> float:
        """Seconds without a session before another client takes over."""
        return self.refused_seconds if self._connection.ended else self.give_up_seconds

    def _say_away(self, now: float, lost_at: float) -> bool:
        """Warn of what is not warned of yet; whether there is a reason, or no answer came for a while."""
        was_answered, self._answered = self._answered, False
        trouble = self._connection.trouble
        if trouble is not None:
            reason = str(trouble)
        elif was_answered:
            reason = "the session was lost"
        elif now < lost_at + self.grace_seconds:
            return False
        else:
            reason = "no answer"
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning(
                "zookeeper_unavailable",
                message="leadership unknown; no new partition is shipped",
                connect=self.environment.zookeeper_connect,
                key="zookeeper.connect",
                reason=reason,
            )
        return True

    def _note(self, paths: Set[str]) -> None:
        if paths:
            with self._lock:
                self._noted |= paths
            self._wake.set()

    def _new_connection(self, before: Trouble | None = None) -> Connection:
        # With each session kazoo dropped its watches.
        hosts, noticed = self.environment.zookeeper_connect, lambda: self._note({_EVERYTHING})
        return Connection(hosts, self._security, self.session_seconds, noticed, before)

    def _start_anew(self) -> None:
        if not self._connection.ended:
            log.warning("zookeeper_client_restarted", hosts=self.environment.zookeeper_connect)
        self._connection.close(0.0)
        self._lost_at = None
        try:
            self._connection = self._new_connection(self._connection.trouble)
        except ConfigurationError as error:  # a file with credentials is being written, or is gone
            self._connection.unusable(error)
            return
        self._knowledge.forget_versions()
        self._connection.client.start_async()
