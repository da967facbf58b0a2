"""Leadership from ZooKeeper, in real time: a watch on each node of the partitions that have a local directory.

Each read of a path sets its watch. kazoo's callback thread only notes the path that changed. The thread in `run` reads
the noted paths with many requests in flight, and emits the state of each. It alone owns the state. kazoo's `DataWatch`
is not used, because it starts a thread per watch after each reconnection.

- When the connection is lost or the session expires, kazoo drops all watches. So everything is read again after each
  connection. In between, the source emits nothing. A failed request is retried soon, without delaying the others.
- kazoo can give up: its thread died, ZooKeeper rejected its credentials, or a restored ensemble is older than its last
  transaction. Then a new client replaces it; after a rejection, only after a pause.
- A warning reports that ZooKeeper does not answer: once an attempt failed or some seconds passed, and again for each
  new reason (`connection`). It is not logged in the first milliseconds, before a session is possible. The loss of a
  session is logged at once.
- Settings of topics and brokers are read last, and cause no error: with `zookeeper.set.acl=true` only brokers may read
  those of brokers (Kafka's `ZkData.SensitiveRootPaths`). A denied setting is unknown. The source warns once, and reads
  it again with everything else.
- When the cluster migrates to KRaft, the nodes in ZooKeeper become stale (`migration`). The source reads that first,
  and then emits nothing, as while ZooKeeper is unavailable. Once the broker's own file has it run in KRaft mode, the
  process ends. The supervisor then starts one that uses the broker.
"""

import random
import threading
import time
from collections.abc import Callable, Set
from typing import Any, ClassVar

import structlog
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.leadership.kraft.deleted_topics import DeletedTopics
from ts_uploader.leadership.zookeeper.connection import Connection, Trouble
from ts_uploader.leadership.zookeeper.connection_check import zookeeper_findings
from ts_uploader.leadership.zookeeper.migration import BrokerMigrated, Registration
from ts_uploader.leadership.zookeeper.security import Security
from ts_uploader.leadership.zookeeper.state import TOPICS, Node, ZookeeperState, topic_id_in, topic_path
from ts_uploader.leadership.zookeeper.tls import tls_context
from ts_uploader.messages.observations import Led

log = structlog.get_logger()

_IN_FLIGHT = 1_000
_POLL_SPREAD = 0.75, 1.25
_RETRY_SECONDS = 2.0
_SLICE_SECONDS = 0.2  # between two checks for `stop` while a request is under way
_CLOSE_SECONDS = 2.0
_EVERYTHING = "/"  # noted like a path
_DELETIONS = "/admin/delete_topics/"


class ZookeeperLeadership(LeadershipSource):
    """A leadership source that watches ZooKeeper; see the module's docstring.

    Args:
        security: TLS and SASL of the connection.

    Raises:
        ConfigurationError: `zookeeper.connect` is malformed, or a key store or credentials file cannot be used; from
            the constructor.
    """

    session_seconds: ClassVar[float] = 10.0
    grace_seconds: ClassVar[float] = 5.0  # without a session and without a failure, before a warning
    give_up_seconds: ClassVar[float] = 60.0  # without a connection, before kazoo is restarted
    refused_seconds: ClassVar[float] = 10.0  # the same, if ZooKeeper rejected the identity

    def __init__(
        self,
        environment: Environment,
        emit: Callable[[LeadershipEvent], None],
        poll_seconds: float,
        security: Security | None = None,
    ) -> None:
        super().__init__(environment, emit, poll_seconds)
        self._security = security or Security()
        if self._security.tls is not None:
            tls_context(self._security.tls)  # a defective store ends the start
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._connection = self._new_connection()
        self._lock = threading.Lock()  # guards the next two attributes; the thread in `run` owns those below them
        self._wanted: Set[TopicPartition] | None = None  # the partitions to follow from now on
        self._noted: set[str] = set()
        self._state = ZookeeperState(environment.broker_id)
        self._registration = Registration(environment.broker_id)
        self._stale: bool | None = None  # None until the registration was read
        self._failed: set[str] = set()
        self._denied: set[str] = set()  # settings with a warning
        self._retry_at = self._poll_at = 0.0
        self._lost_at: float | None = None
        self._answered = False  # in this session
        self._questions = DeletedTopics()
        self._warned: set[str] = set()  # reasons, since ZooKeeper last answered

    @property
    def connected(self) -> bool:
        """Whether the session is up, and ZooKeeper has the broker's leadership."""
        return self._in_session and self._answered and self._stale is False

    @property
    def trouble(self) -> str | None:
        """Why ZooKeeper is unavailable or ignored, for operators; None while connected."""
        if self.connected:
            return None
        if self._stale:
            return self._registration.stale
        trouble = self._connection.trouble
        return None if trouble is None else str(trouble)

    @property
    def broker_away(self) -> bool:
        """Whether ZooKeeper answers, and the broker is not registered there; also while it restarts."""
        return self._in_session and self._answered and self._registration.absent

    @property
    def _in_session(self) -> bool:
        return self._connection.in_session

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Watch these partitions; the thread in `run` reads the new ones."""
        with self._lock:
            self._wanted = frozenset(partitions)
        self._wake.set()

    def run(self) -> None:
        """Read and watch until `stop`."""
        try:
            self._connection.client.start_async()
            while not self._stopping.is_set():
                now = time.monotonic()
                if self._in_session:
                    self._lost_at = None
                    self._read_noted(now)
                    self._answer_questions()
                    next_look = min(self._poll_at, self._retry_at) if self._failed else self._poll_at
                    if not self._connection.in_session:
                        continue
                else:
                    if self._lost_at is None:
                        self._lost_at = now
                    if self._connection.ended:
                        self._connection.close(0.0)
                    warned = self._warn_unavailable(now, self._lost_at)
                    next_look = self._lost_at + (self._restart_seconds if warned else self.grace_seconds)
                    if now >= self._lost_at + self._restart_seconds:
                        self._restart_client()
                        continue
                self._wake.wait(max(0.0, next_look - time.monotonic()))
                self._wake.clear()
        finally:
            self._connection.close(_CLOSE_SECONDS)

    def stop(self) -> None:
        """End `run` soon, whether ZooKeeper answers or not."""
        self._stopping.set()
        self._wake.set()

    def examine(self, topics: Set[str]) -> list[Finding]:
        """Return whether ZooKeeper is reached, lets this identity read, and has the broker."""
        return zookeeper_findings(self._connection, self._security, self.environment, topics)

    def is_deleted(self, topic: str, topic_id: str) -> bool | None:
        """Return whether ZooKeeper lacks a topic with this id, or has it marked for deletion; None without an answer.

        The nodes of a topic stay until each of its brokers deleted its replica, a stopped broker too. The thread of
        `run` reads them. A server that is behind returns older nodes.
        """
        answer = self._questions.ask(topic, topic_id, 0.0)
        if not answer:
            self._wake.set()
        return answer

    def _answer_questions(self) -> None:
        for topic, topic_id in self._questions.waiting():
            if not self.connected:
                return
            client, path, marked = self._connection.client, f"{TOPICS}{topic}", f"{_DELETIONS}{topic}"
            failures: dict[str, Exception] = {}
            found = self._await({path: client.get_async(path), marked: client.exists_async(marked)}, failures)
            failed = [repr(error) for error in failures.values() if not isinstance(error, NoNodeError)]
            if failed:
                log.info("topic_deletion_unknown", topic=topic, errors=failed)
                continue
            known = None
            if path in found:
                data, at = found[path]
                known = topic_id_in(topic, Node(data, at.czxid, at.mzxid))
            gone = path not in found or found[marked] is not None
            self._questions.answer(topic, topic_id, deleted=gone or (known is not None and known != topic_id))

    def _read_noted(self, now: float) -> None:
        with self._lock:
            wanted, noted = self._wanted, self._noted
            self._wanted, self._noted = None, set()
        if wanted is not None:
            noted |= self._state.follow(wanted)
        if self._failed and now >= self._retry_at:
            noted, self._failed = noted | self._failed, set()
        if _EVERYTHING in noted or now >= self._poll_at:
            noted = self._state.partitions.keys() | self._state.settings | self._registration.paths
            self._failed = set()
            # Agents that connected together, as after an election of ZooKeeper, do not poll together.
            self._poll_at = now + self.poll_seconds * random.uniform(*_POLL_SPREAD)  # noqa: S311
        if not self._read_registration(noted & self._registration.paths):
            self._read_soon(noted)
            return
        ordered = sorted(path for path in noted if path in self._state.partitions or path in self._state.states)
        settings = sorted(noted & self._state.settings)
        for read_and_emit, paths in ((self._read_and_emit, ordered), (self._read_and_emit_settings, settings)):
            for at in range(0, len(paths), _IN_FLIGHT):
                read_and_emit(paths[at : at + _IN_FLIGHT])
                if self._stopping.is_set() or not self._in_session:
                    return  # the next connection notes everything

    def _read_registration(self, paths: Set[str]) -> bool:
        """Read these; return whether the other nodes in ZooKeeper are current.

        Raises:
            BrokerMigrated: the broker now runs in KRaft mode.
        """
        answers, failures = self._read(sorted(paths))
        self._log_failures(failures)
        for path, node in answers.items():
            self._registration.take(path, exists=node is not None)
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
                f"broker {self.environment.broker_id} runs in KRaft mode by its own file: ZooKeeper no longer has its "
                "leadership; restart the agent, which then reads it from the broker"
            )

    def _read_and_emit(self, paths: list[str]) -> None:
        """Read these states and topics, states first, and emit the leadership of each partition."""
        states = [path for path in paths if path in self._state.partitions]
        topics = sorted({topic_path(path) for path in paths})
        answers, failures = self._read([*states, *topics])
        self._log_failures(failures)
        for topic in answers.keys() & topics:
            self._note(self._state.take_topic(topic, answers[topic]) - set(states))
        unread = {*states, *topics} - answers.keys()
        for state in states:
            if topic_path(state) not in answers:
                unread.add(state)
            elif state in answers:
                report = self._state.take_state(state, answers[state], time.time_ns())
                if isinstance(report, Led):
                    self._registration.take_led(report, self.environment.log_dirs)
                    if self._registration.stale is not None:
                        unread.add(state)
                        continue
                if report is not None:
                    self.emit(report)
        self._judge()
        self._read_soon(unread)

    def _read_and_emit_settings(self, paths: list[str]) -> None:
        answers, failures = self._read(paths)
        denied = {path for path, error in failures.items() if isinstance(error, NoAuthError)}
        self._log_failures({path: error for path, error in failures.items() if path not in denied})
        if denied - self._denied:
            log.warning(
                "zookeeper_settings_denied",
                message="the broker's own settings are used",
                paths=sorted(denied)[:10],
                of=len(denied),
            )
        self._denied = (self._denied - answers.keys()) | denied
        for path, node in answers.items():
            report = self._state.take_settings(path, node)
            if report is not None:
                self.emit(report)
        self._read_soon(set(paths) - answers.keys() - denied)

    def _read_soon(self, paths: Set[str]) -> None:
        if paths:
            self._failed |= paths
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _read(self, paths: list[str]) -> tuple[dict[str, Node | None], dict[str, Exception]]:
        """Read these paths and set a watch on each; return the nodes, None if absent, and the failures."""
        failures: dict[str, Exception] = {}
        client = self._connection.client
        found = self._await({path: client.get_async(path, self._changed) for path in paths}, failures)
        answers: dict[str, Node | None] = {path: Node(data, at.czxid, at.mzxid) for path, (data, at) in found.items()}
        # `get` sets no watch on an absent node, `exists` does.
        absent = [path for path, error in failures.items() if isinstance(error, NoNodeError)]
        for path in absent:
            del failures[path]
        stats = self._await({path: client.exists_async(path, self._changed) for path in absent}, failures)
        answers |= {path: None for path, stat in stats.items() if stat is None}
        self._note(stats.keys() - answers.keys())  # created in between
        return answers, failures

    def _log_failures(self, failures: dict[str, Exception]) -> None:
        if failures and not self._stopping.is_set():
            errors = sorted({repr(error) for error in failures.values()})
            if any(isinstance(error, AuthFailedError) for error in failures.values()):
                self._connection.refused()
                return
            denied = any(isinstance(error, NoAuthError) for error in failures.values())
            log_failed = log.error if denied else log.warning
            log_failed(
                "zookeeper_read_failed", message="retried", paths=sorted(failures)[:10], of=len(failures), errors=errors
            )

    def _await(self, requests: dict[str, Any], failures: dict[str, Exception]) -> dict[str, Any]:
        answers = {}
        for path, request in requests.items():
            try:
                while not request.wait(_SLICE_SECONDS if self._in_session else 0.0):
                    if self._stopping.is_set() or not self._in_session:
                        raise ConnectionLoss("the connection was lost before the answer")
                answers[path] = request.get(block=False)
            except Exception as error:  # noqa: BLE001  (kazoo also raises any error of its decoder)
                failures[path] = error
        return answers

    def _changed(self, event: WatchedEvent) -> None:
        # On kazoo's callback thread. A lost connection is an event too, once per watch and without a path.
        if event.path is not None:
            self._note({event.path})

    @property
    def _restart_seconds(self) -> float:
        """Seconds without a session before another client takes over."""
        return self.refused_seconds if self._connection.ended else self.give_up_seconds

    def _warn_unavailable(self, now: float, lost_at: float) -> bool:
        """Log each reason once; return False while no attempt failed and the grace period lasts."""
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
        # kazoo drops its watches with each session.
        hosts, noticed = self.environment.zookeeper_connect, lambda: self._note({_EVERYTHING})
        return Connection(hosts, self._security, self.session_seconds, noticed, before)

    def _restart_client(self) -> None:
        if not self._connection.ended:
            log.warning("zookeeper_client_restarted", hosts=self.environment.zookeeper_connect)
        self._connection.close(0.0)
        self._lost_at = None
        try:
            self._connection = self._new_connection(self._connection.trouble)
        except ConfigurationError as error:  # a credentials file is being written, or is missing
            self._connection.unusable(error)
            return
        self._state.forget_versions()
        self._connection.client.start_async()
