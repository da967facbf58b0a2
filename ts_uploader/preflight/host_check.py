"""Checks the broker's host for `ts-uploader check`; writes nothing.

The agent needs log dirs that it may read, enough inotify watches and descriptors, and broker settings that leave it
time to ship.
"""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.config.cluster_config import ClusterConfig
from ts_common.http_server.bounded_server import MOST_CONNECTIONS
from ts_common.wording import counted, some
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, error, hint, ok, warning
from ts_uploader.log_dirs.directory_scan import HIGH_WATERMARK_CHECKPOINT, partition_directories

_NAMED = 3  # names in a finding; the rest is counted
_ROOM = 2  # for more partitions, and for other programs of this user
_FEW_DELAY_MS = 3_600_000  # an hour, as in docs/deploy.md
_SHORT_RETENTION_MS = 24 * 3_600_000
_LONG_CHECKPOINT_MS = 60_000
_GROUP = "put this user into the broker's group, and let that group read (750 for directories, 640 for files)"
_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of this user.

    Attributes:
        watches: `fs.inotify.max_user_watches`; None if the kernel does not report it.
        instances: `fs.inotify.max_user_instances`; None if the kernel does not report it.
        descriptors: of one process (RLIMIT_NOFILE).
    """

    watches: int | None
    instances: int | None
    descriptors: int

    @classmethod
    def here(cls) -> "Limits":
        """Return the limits of this process."""
        directory = Path("/proc/sys/fs/inotify")
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(_number(directory / "max_user_watches"), _number(directory / "max_user_instances"), soft)


@dataclass(slots=True)
class _Seen:
    """The content of the log dirs."""

    directories: int = 0  # each needs a watch
    partitions: int = 0  # that are shipped
    size: int = 0  # bytes of their logs


def host_findings(environment: Environment, config: ClusterConfig | None, stores: int, limits: Limits) -> list[Finding]:
    """Return the findings for a host.

    Args:
        config: the cluster's; None if it has errors: then every topic counts as shipped.
        stores: number of stores that the agent ships to.
    """
    seen = _Seen()
    findings = [finding for log_dir in environment.log_dirs for finding in _log_dir(log_dir, config, seen)]
    findings += _watches(seen, limits)
    findings += _descriptors(config, stores, limits)
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
        way = "let this user read it; if its disk failed, remove it from log.dirs"
        yield error(about, f"cannot be read: {failed.strerror}", way)
        return
    if not os.access(log_dir, os.X_OK):  # with read permission alone, names are visible but files cannot be opened
        yield error(about, "this user may list it, but open no file in it", _GROUP)
        return
    seen.partitions += shipped
    if refused:
        yield error(about, f"{some(sorted(refused), _NAMED)} cannot be read by this user", _GROUP)
    if links:
        yield warning(
            about,
            f"{some(sorted(links), _NAMED)}: a symbolic link, which is not followed",
            "replace the link by the directory itself",
        )
    checkpoint = log_dir / HIGH_WATERMARK_CHECKPOINT
    if checkpoint.exists() and not os.access(checkpoint, os.R_OK):
        yield error(about, f"{HIGH_WATERMARK_CHECKPOINT} cannot be read by this user: nothing can be shipped", _GROUP)
    elif not checkpoint.exists():
        yield hint(about, f"no {HIGH_WATERMARK_CHECKPOINT} yet: nothing is shipped before the broker writes one")
    if not refused:
        yield ok(about, f"readable, {counted(shipped, 'partition')} to ship")


def _readable(directory: Path) -> int | None:
    """Return the size of a partition's logs in bytes; None if the directory or a log in it may not be read."""
    try:
        logs = [entry for entry in os.scandir(directory) if entry.name.endswith(LOG_SUFFIX)]
        if any(not os.access(entry.path, os.R_OK) for entry in islice(logs, 1)):
            return None
        return sum(entry.stat().st_size for entry in logs)
    except FileNotFoundError:
        return 0  # it was removed meanwhile
    except OSError:
        return None


def _watches(seen: _Seen, limits: Limits) -> Iterator[Finding]:
    needed = seen.directories
    for key, limit, wants in (
        ("fs.inotify.max_user_watches", limits.watches, needed),
        ("fs.inotify.max_user_instances", limits.instances, 1),
    ):
        about = f"sysctl {key}"
        if limit is None:
            yield hint(about, "this kernel does not report it")
        elif limit < wants:
            yield error(about, f"{limit}, and the log dirs need {wants}", f"sysctl -w {key}={_ROOM * wants}")
        elif limit < _ROOM * wants:
            way = f"sysctl -w {key}={_ROOM * wants}: leave room for more partitions and for this user's other programs"
            yield warning(about, f"{limit}, and the log dirs need {wants} already", way)
        else:
            yield ok(about, f"{limit}; the log dirs need {wants}")


def _descriptors(config: ClusterConfig | None, stores: int, limits: Limits) -> Iterator[Finding]:
    """Check the limit of descriptors by the bound of docs/deploy.md, which tests hold the agent to."""
    threads = 3 if config is None else config.upload_threads
    needed = 23 + 2 * threads + stores * (3 * threads + 16) + MOST_CONNECTIONS
    about = "descriptors (ulimit -n)"
    if limits.descriptors < needed:
        way = f"raise it to {_ROOM * needed} or more (LimitNOFILE= in the unit)"
        yield error(about, f"{limits.descriptors}, and the agent may need {needed}", way)
    else:
        yield ok(about, f"{limits.descriptors}; the agent needs at most {needed}")


def _settings(environment: Environment, config: ClusterConfig | None, seen: _Seen) -> Iterator[Finding]:
    """Check the broker's defaults of its file; a topic's settings may differ, and the agent's metrics show each."""
    about = f"settings of broker {environment.broker_id}"
    for problem in environment.defaults.problems:
        yield hint(about, problem)
    retention = environment.defaults.retention
    if retention.file_delete_delay_ms < _FEW_DELAY_MS:
        found = (
            f"log.segment.delete.delay.ms is {retention.file_delete_delay_ms} ms: all the time left once Kafka deletes"
        )
        yield hint(
            about, found, f"raise it to {_FEW_DELAY_MS} (an hour) or more: files renamed to .deleted are still shipped"
        )
    age_ms = retention.retention_ms if retention.deletes else None
    if age_ms is not None and age_ms < _SHORT_RETENTION_MS:
        found = f"log.retention is {age_ms / 3_600_000:.1f} h: a longer outage of the store loses data"
        yield hint(about, found, "keep a day or more, so that an outage can be survived")
    if environment.defaults.checkpoint_interval_ms > _LONG_CHECKPOINT_MS:
        found = f"replica.high.watermark.checkpoint.interval.ms is {environment.defaults.checkpoint_interval_ms}"
        yield hint(about, found, "lower it: offsets above the last checkpoint are not shipped")
    if environment.broker_properties.get(_UNCLEAN, "").strip().lower() == "true":
        yield hint(
            about, f"{_UNCLEAN}=true: an election may lose committed records, and the archive follows the leader"
        )
    limit = None if config is None else config.upload_max_bytes_per_second
    if limit is not None and age_ms:
        rate = seen.size / (age_ms / 1000)  # all of it was written within the retention
        if rate > limit:
            found = f"the broker writes about {rate:.0f} bytes per second, and the upload rate is limited to {limit}"
            yield warning(about, found, "raise ts.segment.uploader.upload.max.bytes.per.second")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
