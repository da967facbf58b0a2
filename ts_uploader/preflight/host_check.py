"""What of the broker's host an agent needs: log dirs that it may read, watches and descriptors enough for them, and
settings of the broker that leave it time. `ts-uploader check` asks for it; nothing is written.
"""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.config.cluster_config import ClusterConfig
from ts_common.wording import counted
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, hint, ok, warning
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT, partition_directories
from ts_uploader.status.bounded_server import MOST_CONNECTIONS

_NAMED = 3  # of many
_ROOM = 2  # partitions come, and other programs of this user watch too
_FEW_DELAY_MS = 3_600_000  # an hour, as docs/deploy.md says
_SHORT_RETENTION_MS = 24 * 3_600_000
_LONG_CHECKPOINT_MS = 60_000
_GROUP = "put this user into the broker's group, and let that group read (750 for directories, 640 for files)"
_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Limits:
    """What this user may have.

    Attributes:
        watches: `fs.inotify.max_user_watches`; None where this kernel does not say.
        instances: `fs.inotify.max_user_instances`; likewise.
        descriptors: of one process (RLIMIT_NOFILE).
    """

    watches: int | None
    instances: int | None
    descriptors: int

    @classmethod
    def here(cls) -> "Limits":
        """Of this process."""
        directory = Path("/proc/sys/fs/inotify")
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(_number(directory / "max_user_watches"), _number(directory / "max_user_instances"), soft)


@dataclass(slots=True)
class _Seen:
    """What the log dirs hold."""

    directories: int = 0  # that a recursive watch needs a watch for
    partitions: int = 0  # that are shipped
    size: int = 0  # bytes of their logs


def host_findings(environment: Environment, config: ClusterConfig | None, stores: int, limits: Limits) -> list[Finding]:
    """What there is to say of a host.

    Args:
        environment: the broker's surroundings.
        config: the cluster's; None where it has errors: then every topic counts as shipped.
        stores: how many the agent ships to.
        limits: of this user.
    """
    seen = _Seen()
    findings = [finding for log_dir in environment.log_dirs for finding in _log_dir(log_dir, config, seen)]
    findings += _watches(environment, seen, limits)
    findings += _descriptors(environment, config, stores, limits)
    findings += _settings(environment, config, seen)
    return findings


def _log_dir(log_dir: Path, config: ClusterConfig | None, seen: _Seen) -> Iterator[Finding]:
    about = f"log dir {log_dir}"
    refused: list[str] = []
    links: list[str] = []
    shipped = 0
    try:
        seen.directories += 1 + sum(entry.is_dir(follow_symlinks=False) for entry in os.scandir(log_dir))
        for partition, is_link in partition_directories(log_dir):
            directory = log_dir / str(partition)
            if config is not None and not config.ships(partition.topic):
                continue
            shipped += 1
            if is_link:
                links.append(directory.name)
            elif (size := _readable(directory)) is None:
                refused.append(directory.name)
            else:
                seen.size += size
    except OSError as failed:
        way = "let this user read it, or take it out of log.dirs where its disk is gone"
        yield error(about, f"cannot be read: {failed.strerror}", way)
        return
    if not os.access(log_dir, os.X_OK):  # whoever may only read it learns names, and nothing of what they name
        yield error(about, "this user may list it, and open nothing in it", _GROUP)
        return
    seen.partitions += shipped
    if refused:
        yield error(about, f"{_some(refused)} cannot be read by this user", _GROUP)
    if links:
        yield warning(
            about, f"{_some(links)}: a symbolic link, which is not followed", "put the directory itself there"
        )
    checkpoint = log_dir / HIGH_WATERMARK_CHECKPOINT
    if checkpoint.exists() and not os.access(checkpoint, os.R_OK):
        yield error(about, f"{HIGH_WATERMARK_CHECKPOINT} cannot be read by this user: nothing could be shipped", _GROUP)
    elif not checkpoint.exists():
        yield hint(about, f"no {HIGH_WATERMARK_CHECKPOINT} yet: nothing is shipped before the broker wrote one")
    if not refused:
        yield ok(about, f"readable, {counted(shipped, 'partition')} to ship")


def _readable(directory: Path) -> int | None:
    """Bytes of a partition's logs; None where the directory or a log in it may not be read."""
    try:
        logs = [entry for entry in os.scandir(directory) if entry.name.endswith(LOG_SUFFIX)]
        if any(not os.access(entry.path, os.R_OK) for entry in islice(logs, 1)):
            return None
        return sum(entry.stat().st_size for entry in logs)
    except FileNotFoundError:
        return 0  # it went meanwhile
    except OSError:
        return None


def _watches(environment: Environment, seen: _Seen, limits: Limits) -> Iterator[Finding]:
    needed = seen.directories
    for key, limit, wants in (
        ("fs.inotify.max_user_watches", limits.watches, needed),
        ("fs.inotify.max_user_instances", limits.instances, len(environment.log_dirs)),
    ):
        about = f"sysctl {key}"
        if limit is None:
            yield hint(about, "this kernel does not say it")
        elif limit < wants:
            yield error(about, f"{limit}, and the log dirs need {wants}", f"sysctl -w {key}={_ROOM * wants}")
        elif limit < _ROOM * wants:
            way = f"sysctl -w {key}={_ROOM * wants}: partitions come, and other programs of this user count too"
            yield warning(about, f"{limit}, and the log dirs need {wants} already", way)
        else:
            yield ok(about, f"{limit}, of which the log dirs need {wants}")


def _descriptors(
    environment: Environment, config: ClusterConfig | None, stores: int, limits: Limits
) -> Iterator[Finding]:
    """By the bound that docs/deploy.md gives, and the tests hold the agent to."""
    threads = 3 if config is None else config.upload_threads
    needed = 20 + 2 * threads + 3 * len(environment.log_dirs) + stores * (3 * threads + 16) + MOST_CONNECTIONS
    about = "descriptors (ulimit -n)"
    if limits.descriptors < needed:
        way = f"raise it to {_ROOM * needed} or more (LimitNOFILE= in the unit)"
        yield error(about, f"{limits.descriptors}, and the agent may need {needed}", way)
    else:
        yield ok(about, f"{limits.descriptors}, of which the agent needs at most {needed}")


def _settings(environment: Environment, config: ClusterConfig | None, seen: _Seen) -> Iterator[Finding]:
    """The broker's defaults, as its file says; topics may say otherwise, and the agent shows what each has left."""
    about = f"settings of broker {environment.broker_id}"
    for problem in environment.defaults.problems:
        yield hint(about, problem)
    retention = environment.defaults.retention
    if retention.file_delete_delay_ms < _FEW_DELAY_MS:
        found = (
            f"log.segment.delete.delay.ms is {retention.file_delete_delay_ms} ms: all that is left once Kafka deletes"
        )
        yield hint(
            about, found, f"raise it to {_FEW_DELAY_MS} (an hour) or more: what is renamed to .deleted is still shipped"
        )
    age_ms = retention.retention_ms if retention.deletes else None
    if age_ms is not None and age_ms < _SHORT_RETENTION_MS:
        found = f"log.retention is {age_ms / 3_600_000:.1f} h: a store that is away for longer costs data"
        yield hint(about, found, "keep a day or more, so that an outage can be outlasted")
    if environment.defaults.checkpoint_interval_ms > _LONG_CHECKPOINT_MS:
        found = f"replica.high.watermark.checkpoint.interval.ms is {environment.defaults.checkpoint_interval_ms}"
        yield hint(about, found, "lower it: nothing above the last checkpoint is shipped")
    if environment.broker_properties.get(_UNCLEAN, "").strip().lower() == "true":
        yield hint(
            about, f"{_UNCLEAN}=true: an election may lose committed records, and the archive follows the leader"
        )
    limit = None if config is None else config.upload_max_bytes_per_second
    if limit is not None and age_ms:
        rate = seen.size / (age_ms / 1000)  # what stands there came in within the retention
        if rate > limit:
            found = f"some {rate:.0f} bytes come in each second, and the upload rate is held to {limit}"
            yield warning(about, found, "raise ts.segment.uploader.upload.max.bytes.per.second")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
