"""The broker's surroundings: its id, its log dirs, how it is reached. By default they come from the broker's own file.

A provider of your own (`--environment-provider module:Class`) is called with the path given as `--server-properties`
(or None) and the cluster id given as `--cluster-id` (or None), and answers `load()`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties
import structlog

from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_uploader.retention.topic_retention import BrokerDefaults

log = structlog.get_logger()

META_PROPERTIES = "meta.properties"
_IDS = ("node.id", "broker.id")


@dataclass(frozen=True, slots=True)
class Environment:
    """What the agent knows of the broker beside it.

    Attributes:
        cluster_id: names the properties file and stands in every key.
        broker_id: the broker's `broker.id` or `node.id`.
        log_dirs: absolute paths, in the order of the broker's own file; some may be on a disk that failed.
        zookeeper_connect: `host:port,host:port/chroot`; empty for a broker without ZooKeeper.
        kraft: whether the broker runs in KRaft mode.
        defaults: what counts for topics without settings of their own, before the broker's dynamic settings.
        broker_properties: the broker's own file, passwords included: a client of this broker is set up from it.
        reload: tells the environment as it is by now; None where that cannot be asked.
    """

    cluster_id: str
    broker_id: int
    log_dirs: tuple[Path, ...]
    zookeeper_connect: str
    kraft: bool
    defaults: BrokerDefaults = field(default_factory=BrokerDefaults)
    broker_properties: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    reload: "Callable[[], Environment] | None" = field(default=None, repr=False, compare=False)

    def runs_kraft_now(self) -> bool:
        """Whether the broker's file, read anew, says KRaft mode; a file that is just being written says nothing."""
        try:
            return self.reload is not None and self.reload().kraft
        except ConfigurationError:
            return False


class EnvironmentProvider(ABC):
    """Where the environment comes from.

    Args:
        server_properties: the path given on the command line, or None.
        cluster_id: the one given on the command line, or None.
    """

    def __init__(self, server_properties: Path | None, cluster_id: str | None) -> None:
        self.server_properties = server_properties
        self.cluster_id = cluster_id

    @abstractmethod
    def load(self) -> Environment:
        """The environment.

        Raises:
            ConfigurationError: something is missing or wrong; all problems at once.
        """


class ServerPropertiesEnvironment(EnvironmentProvider):
    """Reads the broker's own `server.properties`, and its `meta.properties` for the cluster id and a generated id."""

    def load(self) -> Environment:
        """As the contract says."""
        if self.server_properties is None or not str(self.server_properties).strip("."):
            raise ConfigurationError(
                "the broker's surroundings",
                ["give the broker's own file with --server-properties PATH, or a class with --environment-provider"],
            )
        source = str(self.server_properties)
        properties = _read(self.server_properties)
        if properties is None:
            raise ConfigurationError(source, ["there is no such file; it is the file that the broker is started with"])
        problems: list[str] = []
        log_dirs = tuple(
            Path(part.strip())
            for part in (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")
            if part.strip()
        )
        if not log_dirs:
            problems.append("log.dirs: absent, and so is log.dir; the agent watches these directories")
        failed = _unreadable(log_dirs)
        if len(failed) == len(log_dirs):
            problems += failed
        metas = _read_metas(log_dirs)
        problems += _contradictions(properties, metas)
        meta = next(iter(metas.values()), {})
        cluster_id = self.cluster_id or meta.get("cluster.id", "")
        if not cluster_id:
            problems.append(f"no {META_PROPERTIES} in log.dirs names a cluster.id; give one with --cluster-id")
        elif not is_cluster_id(cluster_id):
            problems.append(
                f"cluster id {cluster_id!r}: it stands in keys and names a file, so letters, digits, '.', '_' and '-', "
                "not beginning with '.'; give another with --cluster-id"
            )
        kraft = bool(properties.get("process.roles", "").strip())
        if not kraft and not properties.get("zookeeper.connect", "").strip():
            problems.append("neither zookeeper.connect nor process.roles is there: is this a broker's file?")
        broker = _broker_id(properties, meta)
        if broker is None:
            problems.append("neither broker.id nor node.id is a number, and the broker has not generated one yet")
        if problems or broker is None:
            raise ConfigurationError(source, problems)
        defaults = BrokerDefaults().overridden_by(properties)
        if defaults.problems:  # no reason not to start: with `config.providers` a value may be the name of another
            log.warning("broker_settings_unreadable", file=source, problems=defaults.problems)
        if failed:
            log.warning("log_dirs_unreadable", message="the agent continues without them", file=source, problems=failed)
        return Environment(
            cluster_id=cluster_id,
            broker_id=broker,
            log_dirs=tuple(log_dir.absolute() for log_dir in log_dirs),
            zookeeper_connect=properties.get("zookeeper.connect", "").strip(),
            kraft=kraft,
            defaults=defaults,
            broker_properties=properties,
            reload=self.load,
        )


def _broker_id(properties: Mapping[str, str], meta: Mapping[str, str]) -> int | None:
    # A broker.id of -1 asks the broker to generate one, which it then keeps in meta.properties.
    candidates = (properties.get("node.id"), properties.get("broker.id"), meta.get("node.id"), meta.get("broker.id"))
    return next((number for text in candidates if (number := _id(text)) is not None), None)


def _id(text: str | None) -> int | None:
    """An id that somebody gave, or that the broker generated; None for none and for -1, which asks for one."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _contradictions(properties: Mapping[str, str], metas: Mapping[Path, Mapping[str, str]]) -> list[str]:
    """What Kafka itself refuses to start with: another broker's disk, or the disks of two brokers or clusters.

    A disk that was moved would let the agent ship one broker's segments in another one's name.
    """
    problems = []
    # Where each id is first said: it is the broker's, and whoever says another contradicts.
    said = [(f"{name}={number}", number) for name in _IDS if (number := _id(properties.get(name))) is not None]
    clusters: list[tuple[str, str]] = []
    for log_dir, meta in metas.items():
        where = f"in {log_dir / META_PROPERTIES}"
        said += [(f"{name}={number} {where}", number) for name in _IDS if (number := _id(meta.get(name))) is not None]
        if cluster := meta.get("cluster.id", "").strip():
            clusters.append((f"cluster.id={cluster} {where}", cluster))
    for found in (said, clusters):
        first = next(iter(found), None)
        others = [text for text, value in found if first is not None and value != first[1]]
        if first is not None and others:
            problems.append(
                f"{first[0]}, but {' and '.join(others)}: Kafka does not start so. Is this another broker's file, or "
                "another broker's disk? Name the file and the log.dirs of one broker"
            )
    return problems


def _unreadable(log_dirs: tuple[Path, ...]) -> list[str]:
    """What is wrong with log dirs. Of several disks some may have failed: the broker goes on, and so does the agent."""
    problems = []
    for log_dir in log_dirs:
        try:
            os.scandir(log_dir).close()
        except OSError as error:
            problems.append(f"log.dirs: {log_dir} cannot be read: {error.strerror}")
    return problems


def _read_metas(log_dirs: tuple[Path, ...]) -> dict[Path, dict[str, str]]:
    """The `meta.properties` of each log dir that has one; one that cannot be read says nothing."""
    metas = {}
    for log_dir in log_dirs:
        try:
            found = _read(log_dir / META_PROPERTIES)
        except ConfigurationError:
            continue
        if found:
            metas[log_dir] = found
    return metas


def _read(path: Path) -> dict[str, str] | None:
    try:
        # Java reads properties as ISO 8859-1.
        return dict(javaproperties.loads(path.read_text(encoding="iso-8859-1")))
    except FileNotFoundError:
        return None
    except (OSError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigurationError(str(path), [f"it cannot be read: {error}"]) from error
