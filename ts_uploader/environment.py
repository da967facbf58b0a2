"""The environment of the agent's broker: its id, log dirs and address. The default source is the broker's own file.

A custom provider (`--environment-provider module:Class`) is called with the path of `--server-properties` (or None) and
the id of `--cluster-id` (or None). Its `load()` returns the environment.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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
    """The facts about the agent's broker.

    Attributes:
        cluster_id: names the properties file, and is part of every key.
        broker_id: the broker's `broker.id` or `node.id`.
        log_dirs: absolute paths, in the order of the broker's own file; some may be on a failed disk.
        zookeeper_connect: `host:port,host:port/chroot`; empty for a broker without ZooKeeper.
        kraft: whether the broker runs in KRaft mode.
        defaults: settings of topics without their own, before the broker's dynamic settings.
        broker_properties: the broker's own file, including passwords: a client of this broker is configured from it.
        reload: reads the environment again; None if that is not possible.
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
        """Return whether the broker's file, read again, configures KRaft mode; False if the file is incomplete."""
        try:
            return self.reload is not None and self.reload().kraft
        except ConfigurationError:
            return False


CHOICE_OF_FILE: Final = (  # an id from the broker's disk names no file if `--cluster-id` was forgotten
    "set --cluster-id {} (in TS_UPLOADER_ARGUMENTS of the unit's environment file), or rename the file"
)


class EnvironmentProvider(ABC):
    """A source of the environment.

    Args:
        server_properties: the path given on the command line, or None.
        cluster_id: the one given on the command line, or None.
    """

    def __init__(self, server_properties: Path | None, cluster_id: str | None) -> None:
        self.server_properties = server_properties
        self.cluster_id = cluster_id

    @abstractmethod
    def load(self) -> Environment:
        """Return the environment.

        Raises:
            ConfigurationError: something is missing or wrong; names all problems at once.
        """


class ServerPropertiesEnvironment(EnvironmentProvider):
    """Reads the broker's own `server.properties`, and its `meta.properties` for the cluster id and a generated id."""

    def load(self) -> Environment:
        """Return the environment; see the contract."""
        if self.server_properties is None or not str(self.server_properties).strip("."):
            raise ConfigurationError(
                "the broker's environment",
                ["name the broker's own file with --server-properties PATH, or a class with --environment-provider"],
            )
        source = str(self.server_properties)
        properties = _read(self.server_properties)
        if properties is None:
            raise ConfigurationError(source, ["the file does not exist; name the file that the broker is started with"])
        problems: list[str] = []
        log_dirs = _log_dirs(properties)
        if not log_dirs:
            problems.append("log.dirs: missing, and so is log.dir; the agent watches these directories")
        failed = _unreadable(log_dirs)
        if len(failed) == len(log_dirs):
            problems += failed
        metas = _read_metas(log_dirs)
        problems += _contradictions(properties, metas)
        meta = next(iter(metas.values()), {})
        cluster_id = self.cluster_id or meta.get("cluster.id", "")
        problems += _cluster_id_problems(cluster_id)
        kraft = bool(properties.get("process.roles", "").strip())
        if not kraft and not properties.get("zookeeper.connect", "").strip():
            problems.append("neither zookeeper.connect nor process.roles is set: is this a broker's file?")
        broker = _broker_id(properties, meta)
        if broker is None:
            problems.append("neither broker.id nor node.id is a number, and the broker has not generated one yet")
        if problems or broker is None:
            raise ConfigurationError(source, problems)
        defaults = BrokerDefaults().overridden_by(properties)
        if defaults.problems:  # the agent starts all the same: with `config.providers` a value may be a reference
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


def _log_dirs(properties: Mapping[str, str]) -> tuple[Path, ...]:
    named = (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")
    return tuple(Path(part.strip()) for part in named if part.strip())


def _cluster_id_problems(cluster_id: str) -> list[str]:
    if not cluster_id:
        return [f"no {META_PROPERTIES} in log.dirs names a cluster.id; give one with --cluster-id"]
    if is_cluster_id(cluster_id):
        return []
    return [
        f"cluster id {cluster_id!r}: it is part of keys and of a file name; expected letters, digits, '.', '_' "
        "and '-', not beginning with '.'; name another with --cluster-id"
    ]


def _broker_id(properties: Mapping[str, str], meta: Mapping[str, str]) -> int | None:
    # A broker.id of -1 makes the broker generate one, which it stores in meta.properties.
    candidates = (properties.get("node.id"), properties.get("broker.id"), meta.get("node.id"), meta.get("broker.id"))
    return next((number for text in candidates if (number := _id(text)) is not None), None)


def _id(text: str | None) -> int | None:
    """Return an id that is configured, or that the broker generated; None for -1, which requests a generated id."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _contradictions(properties: Mapping[str, str], metas: Mapping[Path, Mapping[str, str]]) -> list[str]:
    """Return contradictions that Kafka itself rejects: another broker's disk, or disks of two brokers or clusters.

    With a moved disk the agent would ship one broker's segments under another one's name.
    """
    problems = []
    # The first occurrence of each id is the broker's; different ones contradict it.
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
                f"{first[0]}, but {' and '.join(others)}: Kafka rejects this. Is this another broker's file, or "
                "another broker's disk? Name the file and the log.dirs of one broker"
            )
    return problems


def _unreadable(log_dirs: tuple[Path, ...]) -> list[str]:
    """Return the errors of log dirs. If some of several disks fail, the broker continues, and so does the agent."""
    problems = []
    for log_dir in log_dirs:
        try:
            os.scandir(log_dir).close()
        except OSError as error:
            problems.append(f"log.dirs: {log_dir} cannot be read: {error.strerror}")
    return problems


def _read_metas(log_dirs: tuple[Path, ...]) -> dict[Path, dict[str, str]]:
    """Return the `meta.properties` of each log dir that has a readable one."""
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
        raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error
