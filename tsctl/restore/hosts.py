"""The files of one host: where they are, and how they get into place while its broker is stopped.

While `place` works, `meta.properties` of each log dir has another name, and the one in its place has ids that the
broker rejects: it does not start half placed. The mark of a clean stop stays, and the checkpoints name the end of each
log: the broker starts without recovery, and with empty producer state. A recovery would rebuild the state of the old
cluster's producers, whose ids the new cluster gives to others: their first records would be acknowledged as duplicates,
and not written.
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import javaproperties
from awscrt.checksums import crc32c

from ts_common.errors import ConfigurationError, CorruptData, QueryError
from ts_common.json_objects import MAX_INT32
from ts_common.log_format.checkpoints import (
    encode_offset_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from ts_common.model import TopicPartition
from tsctl.durable_files import sync_directory, write_file
from tsctl.restore.documents import Created, Replica, Staged
from tsctl.restore.fetching import STAGING, STATE
from tsctl.restore.partition_plan import PartitionPlan

_META: Final = "meta.properties"
_LOCKED: Final = "meta.properties.restore"
_NO_CLUSTER: Final = "locked-by-tsctl-restore"
_CLEAN: Final = ".kafka_cleanshutdown"
_PARTITION_METADATA: Final = "partition.metadata"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Host:
    """The log dirs of a broker.

    Attributes:
        broker: its id.
        metadata_dir: of KRaft, if it is not the first log dir.
    """

    broker: int
    log_dirs: tuple[Path, ...]
    metadata_dir: Path | None = None

    @classmethod
    def of(cls, server_properties: Path) -> "Host":
        """Return the host of a broker's `server.properties`.

        Raises:
            ConfigurationError: the file cannot be read, or has no id or no log dirs.
        """
        try:
            found = javaproperties.loads(server_properties.read_text(encoding="iso-8859-1"))
        except (OSError, javaproperties.InvalidUEscapeError) as error:
            raise ConfigurationError(str(server_properties), [f"cannot be read: {error}"]) from error
        broker = found.get("node.id", found.get("broker.id", ""))
        dirs = found.get("log.dirs") or found.get("log.dir") or ""
        names = [name.strip() for name in dirs.split(",") if name.strip()]
        problems = [] if broker.isdecimal() else ["node.id or broker.id: a number is expected"]
        problems += [] if names else ["log.dirs: a list of directories is expected"]
        problems += [f"log.dirs: {name} is no directory of this host" for name in names if not Path(name).is_dir()]
        if problems:
            raise ConfigurationError(str(server_properties), problems)
        metadata = Path(found.get("metadata.log.dir") or names[0])
        return cls(int(broker), tuple(map(Path, names)), metadata if metadata.is_dir() else None)

    def directories(self, partitions: Iterable[TopicPartition], created: Created) -> dict[TopicPartition, Path]:
        """Return the directory of each partition, which the broker made when the topic was created.

        Raises:
            QueryError: one is missing, in two log dirs, or of another topic.
        """
        found = {}
        for partition in partitions:
            places = [each / str(partition) for each in self.log_dirs if (each / str(partition)).is_dir()]
            if len(places) != 1:
                raise QueryError(
                    f"{partition}: {len(places)} directories in the log dirs of broker {self.broker}, and one is "
                    "expected; run `tsctl restore create`, and let the broker run until it has made them"
                )
            _check_id(places[0], partition, created)
            found[partition] = places[0]
        return found

    @property
    def is_locked(self) -> bool:
        """Whether `meta.properties` of any directory has its other name."""
        return any((each / _LOCKED).exists() for each in self._identified)

    @property
    def _identified(self) -> tuple[Path, ...]:
        """The directories with `meta.properties`; the one of the metadata log need not be a log dir."""
        first = () if self.metadata_dir is None else (self.metadata_dir,)
        return tuple(dict.fromkeys((*first, *self.log_dirs)))

    @property
    def runs(self) -> bool:
        """Whether the broker runs."""
        for each in self.log_dirs:
            with (each / ".lock").open("a+b") as file:
                if not _is_free(file.fileno()):
                    return True
        return False

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Check that the broker does not run, and keep it from starting within the block.

        Raises:
            QueryError: the broker runs, or did not stop cleanly.
        """
        held = []
        try:
            for each in self.log_dirs:
                descriptor = os.open(each / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
                held.append(descriptor)
                if not _is_free(descriptor):
                    raise QueryError(f"{each}: broker {self.broker} runs; stop it first")
            unclean = [str(each) for each in self.log_dirs if not (each / _CLEAN).exists()]
            if unclean:
                raise QueryError(
                    f"{', '.join(unclean)}: no {_CLEAN}: broker {self.broker} did not stop cleanly; start it, and stop "
                    "it with its own script. A start with recovery loses the first records of new producers"
                )
            yield
        finally:
            for descriptor in held:
                os.close(descriptor)

    def lock(self) -> None:
        """Keep `meta.properties` under another name, and write one with ids that the broker rejects at its start.

        Without any, a broker of ZooKeeper writes a new one, and so do containers that format at each start.
        """
        for each in self._identified:
            if (each / _META).exists() and not (each / _LOCKED).exists():
                write_file(each / _LOCKED, (each / _META).read_bytes())
            if (each / _LOCKED).exists():
                write_file(each / _META, _rejected((each / _LOCKED).read_text(encoding="iso-8859-1")))

    def unlock(self) -> None:
        """Undo `lock`."""
        for each in reversed(self._identified):
            if (each / _LOCKED).exists():
                (each / _LOCKED).replace(each / _META)
                sync_directory(each)


def _is_free(descriptor: int) -> bool:
    """Lock a file as Kafka's FileLock does, until it is closed; return whether no process has locked it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise
        return False
    return True


def _rejected(meta: str) -> bytes:
    """Return the content of a `meta.properties` of the same version, with the ids of no broker and no cluster."""
    version = javaproperties.loads(meta).get("version", "0")
    node = "broker.id" if version == "0" else "node.id"
    return f"version={version}\ncluster.id={_NO_CLUSTER}\n{node}={MAX_INT32}\n".encode()


def replica_of(state: Staged) -> Replica:
    """Return what the record of a host has of a partition."""
    lines = sorted(f"{entry.name} {entry.size} {entry.crc32c:08x}\n" for entry in state.files)
    return Replica(state.end, sum(entry.size for entry in state.files), crc32c("".join(lines).encode()))


def staged(directory: Path, plan_id: str, plan: PartitionPlan) -> Staged:
    """Return the complete state of a partition's files.

    Raises:
        QueryError: they are not complete.
    """
    found = Staged.load(directory / STAGING / STATE)
    if found is None or found.plan != plan_id or not (found.complete and found.is_of(plan)):
        raise QueryError(f"{directory}: its files are not complete; run `tsctl restore fetch` on this host again")
    return found


def place(directory: Path, state: Staged) -> None:
    """Replace the files of a partition by the staged ones; a repeated call completes it.

    Raises:
        CorruptData: a file is neither staged nor in place.
        OSError: the file system refused a rename.
    """
    staging, names = directory / STAGING, {entry.name for entry in state.files}
    for path in directory.iterdir():
        if path.is_file() and path.name not in names and path.name != _PARTITION_METADATA:
            path.unlink()
    for entry in state.files:
        if (staging / entry.name).exists():
            (staging / entry.name).replace(directory / entry.name)
    sync_directory(directory)
    check_placed(directory, state)


def check_placed(directory: Path, state: Staged) -> None:
    """Check that a partition's directory has exactly the files of a state, by their sizes.

    Raises:
        CorruptData: a file is missing, has another size, or belongs to another log.
    """
    expected = {entry.name: entry.size for entry in state.files}
    found = {each.name: each.stat().st_size for each in directory.iterdir() if each.is_file()}
    found.pop(_PARTITION_METADATA, None)
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise CorruptData(f"{directory}: {wrong[:3]}: missing, or not of the restore; run `tsctl restore fetch` again")


def write_checkpoints(log_dir: Path, placed: Mapping[TopicPartition, tuple[PartitionPlan, Staged]]) -> None:
    """Enter the logs of a log dir in the broker's checkpoints, which stay as they are for other partitions.

    Raises:
        CorruptData: a checkpoint is damaged.
        OSError: it cannot be written.
    """
    ends = {(each.topic, each.partition): state.end for each, (_, state) in placed.items()}
    starts = {(each.topic, each.partition): plan.start for each, (plan, _) in placed.items()}
    for name, values in ((_RECOVERY_POINTS, ends), (_HIGH_WATERMARKS, ends), (_LOG_STARTS, starts)):
        path = log_dir / name
        data = path.read_bytes() if path.exists() else b""
        offsets = parse_offset_checkpoint(data) if data else {}  # a broker makes an empty file first
        write_file(path, encode_offset_checkpoint(offsets | values))


def _check_id(directory: Path, partition: TopicPartition, created: Created) -> None:
    path, expected = directory / _PARTITION_METADATA, created.topics.get(partition.topic)
    found = parse_partition_metadata(path.read_bytes()) if path.exists() else None
    if found != expected:
        raise QueryError(
            f"{directory}: topic id {found}, and created.json has {expected}; the broker would rename the directory as "
            "stray; run `tsctl restore create` again"
        )
