"""A whole cluster on loopback, the entry to the local servers.

    with LocalCluster(brokers=2, s3=True) as cluster:
        cluster.create_topic("t", partitions=3, replication=2, config={"segment.bytes": "100000"})
        cluster.produce("t", [Record(b"value", key=b"key")], partition=0)
        cluster.brokers[1].kill()
        wait_for(lambda: cluster.leader("t", 0) == 2, "broker 2 leads t-0")

LocalCluster, with the topic helpers of `dev.local.kafka.topics.Topics`
    brokers               dict[int, Broker] by id, from 1; each a Server: start, stop, kill, pause, resume, restart
    zookeeper             ZooKeeper, or None in KRaft mode
    controller            Controller with `own_controller`; otherwise None, and in KRaft mode broker 1 is the controller
    s3                    S3Server with `s3`, or None
    servers               all servers that it starts; those that others need are first
    links                 with `proxied`: LinkProxy by name, "broker-1:zookeeper" and "broker-1", to cut, stall and heal
    agent_surroundings(broker)  a server.properties for an agent that reaches ZooKeeper by a link, "agent-1:zookeeper"
    bootstrap             "127.0.0.1:p1,127.0.0.1:p2"
    cluster_id            Kafka's
    admin()               a confluent_kafka AdminClient
    directory, logs       data, deleted at the end; one log file for each server, kept after an error
    tail_of_logs()        the ends of all logs, for a failed test's report; see also running_clusters()
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from dev.local.certificates import Certificates
from dev.local.jars import BUILD, Line
from dev.local.kafka.broker import Broker, KRaftBroker, ZooKeeperBroker
from dev.local.kafka.controller import Controller
from dev.local.kafka.storage import new_cluster_id
from dev.local.kafka.topics import Record, Topics
from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.kafka.zookeeper_security import ZooKeeperSecurity
from dev.local.process import TAIL_LINES, Server
from dev.local.proxy.cluster_links import agent_link_name, link_broker, write_agent_properties
from dev.local.proxy.link import LinkProxy
from dev.local.stores.s3 import S3Server
from dev.local.waiting import WaitTimedOutError, wait_for

__all__ = ["LocalCluster", "Record", "WaitTimedOutError", "running_clusters", "wait_for"]

Mode = Literal["zookeeper", "kraft"]

_TEMPORARY = BUILD / "tmp"
_LOGS = BUILD / "logs"
_running: "weakref.WeakSet[LocalCluster]" = weakref.WeakSet()


def running_clusters() -> "list[LocalCluster]":
    """Return the running clusters of this process, for a test's report."""
    return list(_running)


class LocalCluster(Topics):
    """Real servers on loopback, from the start of a `with` block to its end.

    At the end all servers are killed and their data is deleted, also after an error or Ctrl-C. After an error the logs
    stay in `build/logs`, and the error has notes with their ends. A kill -9 of this process ends the servers too; its
    data directory in `build/tmp` is deleted by the next cluster of this checkout.

    Args:
        brokers: number of brokers; their ids are 1, 2, ...
        mode: "zookeeper" is Kafka 3.9 with ZooKeeper; "kraft" is Kafka 4, and broker 1 is the controller too.
        line: version line of Kafka in KRaft mode.
        own_controller: in KRaft mode, whether the controller is a process of its own.
        s3: whether to start an S3 server; or one of another cluster, which runs.
        tls: whether an S3 server that it starts serves https, to clients with `certificates`.
        buckets: created at the start, if it starts an S3 server.
        properties: of every broker; they override `dev.local.kafka.broker.DEFAULTS`.
        topic_config: of every topic; a topic's own settings override it.
        broker_properties: of single brokers, by id; they override `properties`.
        log_dirs: number of log directories of each broker.
        proxied: whether each broker's connections to ZooKeeper and to each other pass a link that can be cut; see
            `dev.local.proxy.cluster_links`. With ZooKeeper only.
        zookeeper_security: of ZooKeeper; brokers connect without TLS unless their properties set it.
        name: the beginning of the directories' names.

    Raises:
        ValueError: `proxied` in KRaft mode.
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`; from `__enter__`, as the following.
        ServerDiedError, WaitTimedOutError: a server did not start; the message has the end of its log.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        mode: Mode = "zookeeper",
        line: Line = "4",
        own_controller: bool = False,
        s3: bool | S3Server = False,
        tls: bool = False,
        buckets: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        broker_properties: Mapping[int, Mapping[str, str]] | None = None,
        topic_config: Mapping[str, str] | None = None,
        log_dirs: int = 1,
        proxied: bool = False,
        zookeeper_security: ZooKeeperSecurity | None = None,
        name: str = "cluster",
    ) -> None:
        if proxied and mode != "zookeeper":
            raise ValueError(f"a proxied cluster runs with ZooKeeper, not with mode={mode!r}")
        _TEMPORARY.mkdir(parents=True, exist_ok=True)
        _remove_orphans()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}.{os.getpid()}.", dir=_TEMPORARY))
        self.logs = _LOGS / self.directory.name
        self.certificates = Certificates(self.directory) if tls else None
        self._own_s3 = (
            S3Server(self.directory / "s3", self.logs, certificates=self.certificates) if s3 is True else None
        )
        self.s3 = s3 if isinstance(s3, S3Server) else self._own_s3
        self.zookeeper = (
            ZooKeeper(self.directory / "zookeeper", self.logs, zookeeper_security) if mode == "zookeeper" else None
        )
        self.links: dict[str, LinkProxy] = {}
        self._proxied = proxied
        self._buckets = tuple(buckets)
        kraft_id = new_cluster_id()
        made: dict[int, Broker] = {}
        self.controller = (
            Controller(self.directory / "controller", self.logs, line, kraft_id, properties) if own_controller else None
        )
        controller: KRaftBroker | Controller | None = self.controller
        for number in range(1, brokers + 1):
            own = {**(properties or {}), **(broker_properties or {}).get(number, {})}
            directory = self.directory / f"broker-{number}"
            if self.zookeeper is not None:
                made[number] = ZooKeeperBroker(number, directory, self.logs, self.zookeeper, own, log_dirs)
            else:
                broker = KRaftBroker(number, directory, self.logs, kraft_id, own, controller, log_dirs, line)
                controller = controller or broker
                made[number] = broker
        super().__init__(made, topic_config)

    @property
    def servers(self) -> list[Server]:
        """All servers that it starts; those that others need are first."""
        others = (self._own_s3, self.zookeeper, self.controller)
        return [server for server in (*others, *self.brokers.values()) if server is not None]

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id, from a broker's `meta.properties`."""
        return next(iter(self.brokers.values())).cluster_id()

    def zookeeper_broker(self, broker: int) -> ZooKeeperBroker:
        """Return a broker with the methods of ZooKeeper mode.

        Raises:
            TypeError: the cluster runs without ZooKeeper.
        """
        found = self.brokers[broker]
        if not isinstance(found, ZooKeeperBroker):
            raise TypeError(f"{found.name} runs without ZooKeeper")
        return found

    def agent_surroundings(self, broker: int) -> Path:
        """Return a copy of a broker's `server.properties` for an agent that reaches ZooKeeper by its own link.

        The link is `links["agent-1:zookeeper"]` for broker 1; later calls return the same one. The cluster need not be
        proxied.

        Raises:
            TypeError: the cluster runs without ZooKeeper.
        """
        beside = self.zookeeper_broker(broker)
        name = agent_link_name(broker)
        if name not in self.links and self.zookeeper is not None:
            self.links[name] = LinkProxy(name, self.zookeeper.port)
        path = self.directory / f"agent-{broker}" / "server.properties"
        return write_agent_properties(beside, self.links[name], path)

    def __enter__(self) -> Self:
        _running.add(self)
        try:
            self._start()
        except BaseException:
            self._end(keep_logs=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.tail_of_logs())
        self._end(keep_logs=error is not None)

    def tail_of_logs(self, lines: int = TAIL_LINES) -> str:
        """Return the end of each server's log."""
        return "\n".join(server.tail(lines) for server in self.servers)

    def _start(self) -> None:
        # S3 needs the longest and depends on no other server. While ZooKeeper starts, it accepts connections that it
        # never answers. A broker with such a connection hangs until its timeout, so brokers wait for ZooKeeper.
        if self._own_s3 is not None:
            self._own_s3.launch()
        if self.zookeeper is not None:
            self.zookeeper.start()
            for number in self.brokers if self._proxied else ():
                self.links.update(link_broker(self.zookeeper_broker(number), self.zookeeper))
        if self.controller is not None:
            self.controller.launch()
        with ThreadPoolExecutor(max(1, len(self.brokers))) as pool:  # KRaft formats each broker's log dirs first
            list(pool.map(lambda broker: broker.launch(), self.brokers.values()))
        for server in self.servers:
            server.wait_ready()
        if self._own_s3 is not None:
            for bucket in self._buckets:
                self._own_s3.create_bucket(bucket)
        wait_for(
            lambda: all(len(broker.metadata().brokers) == len(self.brokers) for broker in self.brokers.values()),
            f"each of {len(self.brokers)} brokers to see all others",
        )

    def _end(self, *, keep_logs: bool) -> None:
        _running.discard(self)
        # The data is deleted anyway, so the servers are killed.
        for server in reversed(self.servers):
            server.kill()
        for link in self.links.values():
            link.close()
        shutil.rmtree(self.directory)
        if not keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)


def _remove_orphans() -> None:
    """Delete the data of clusters whose process was killed, and kept logs older than a day.

    A data directory's name contains the id of its process.
    """
    for logs in _LOGS.glob("*"):
        if time.time() - logs.stat().st_mtime > 86_400:
            shutil.rmtree(logs, ignore_errors=True)
    for directory in _TEMPORARY.glob("*.*.*"):
        process = directory.name.split(".")[-2]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(directory, ignore_errors=True)
