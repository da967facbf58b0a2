"""The files of a broker with ten thousand partitions, without a broker: directories, checkpoints and leaderships.

Two log dirs: one with the partitions that the broker leads, one with those that it follows. So an agent can run with
the first alone. Each partition has one record in its active segment, and one in a closed segment if it has that.
"""

import base64
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dev.bench.measuring.made_archives import CLUSTER, small_records
from dev.bench.measuring.made_leadership import write_leaderships
from dev.bench.measuring.raw_puts import RawPuts
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.packed import pack
from ts_common.archive.positions import Positions, Row
from ts_common.model import TopicPartition

BROKER: Final = 1
_ANOTHER: Final = 2
_TOPICS: Final = 10
_CHECKPOINT_SECONDS: Final = 5.0
_PUTTERS: Final = 8
_BATCH: Final = small_records(1)


def topic_id(topic: str) -> str:
    """Return the id of a topic, in Kafka's form."""
    return base64.urlsafe_b64encode(topic.encode().ljust(16, b"x")).decode()[:22]


def partitions(first: int, count: int) -> list[TopicPartition]:
    """Return partitions of ten topics, by number."""
    return [TopicPartition(f"many-{number % _TOPICS}", number // _TOPICS) for number in range(first, first + count)]


def _log(base: int) -> bytes:
    log = bytearray(_BATCH)
    struct.pack_into(">q", log, 0, base)
    struct.pack_into(">i", log, 12, 0)  # the leader epoch; neither is below the checksum
    return bytes(log)


class MadeBroker:
    """A context manager that writes the high watermark checkpoints every five seconds, as a broker does.

    Args:
        directory: for the log dirs and the broker's files.
        led: number of partitions that the broker leads.
        followed: number of partitions that it follows.

    Attributes:
        led: all partitions that the broker leads at first.
        followed: the others.
        moves: whether the high watermark of each partition is another one in each checkpoint.
        leaderships: the file for `made_leadership`.
    """

    def __init__(self, directory: Path, led: int, followed: int) -> None:
        self.led, self.followed = partitions(0, led), partitions(led, followed)
        self.moves = False
        self.leaderships = directory / "leaderships"
        self._directory = directory
        self._places = {directory / "led": self.led, directory / "followed": self.followed}
        self._closed: set[TopicPartition] = set()
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="made-broker", daemon=True)

    def __enter__(self) -> Self:
        active = _log(0)
        for log_dir, here in self._places.items():
            log_dir.mkdir()
            (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={BROKER}\ncluster.id={CLUSTER}\n")
            for partition in here:
                made = log_dir / str(partition)
                made.mkdir()
                (made / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(partition.topic)}")
                _write_epochs(made, [(0, 0)])
                _write_segment(made, 0, active)
        self.lead(self.led, 0)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def properties(self, *, alone: bool = False) -> Path:
        """Write `server.properties`, and return its path.

        Args:
            alone: only the log dir of the partitions that the broker leads at first.
        """
        log_dirs = ",".join(str(log_dir) for log_dir in list(self._places)[: 1 if alone else 2])
        path = self._directory / f"server{'-alone' if alone else ''}.properties"
        path.write_text(f"broker.id={BROKER}\nlog.dirs={log_dirs}\nzookeeper.connect=127.0.0.1:1\n")
        return path

    def close_segments(self, of: Iterable[TopicPartition]) -> None:
        """Close the first segment of each of these that has none closed yet."""
        active = _log(1)
        for partition in of:
            if partition not in self._closed:
                _write_segment(self._place(partition), 1, active)
                self._closed.add(partition)

    def lead(self, led: Sequence[TopicPartition], epoch: int) -> None:
        """Lead these and no others; from epoch 1 on those that were followed first, in this epoch."""
        here = set(self.led)
        write_leaderships(
            self.leaderships, {each: (0 if each in here else epoch, topic_id(each.topic)) for each in led}
        )

    def begin_epoch(self, of: Iterable[TopicPartition], epoch: int) -> None:
        """Write a leader epoch that begins at the end of the log, as a broker does before it leads."""
        for partition in of:
            _write_epochs(self._place(partition), [(0, 0), (epoch, 2)])

    def _place(self, partition: TopicPartition) -> Path:
        number = partition.partition * _TOPICS + int(partition.topic.rpartition("-")[2])
        return self._directory / ("led" if number < len(self.led) else "followed") / str(partition)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._written += self.moves
            for log_dir, here in self._places.items():
                rows = (f"{p.topic} {p.partition} {1 + (p in self._closed) + self._written}\n" for p in here)
                replacement = log_dir / "replication-offset-checkpoint.tmp"
                replacement.write_text(f"0\n{len(here)}\n{''.join(rows)}")
                replacement.replace(log_dir / "replication-offset-checkpoint")
            self._ended.wait(_CHECKPOINT_SECONDS)


def put_commits(puts: RawPuts, prefix: str, led: Sequence[TopicPartition], arriving: Sequence[TopicPartition]) -> None:
    """Put the commit and the log start of partitions whose closed segment is shipped. No start reads the segment.

    Args:
        led: by this broker's agent.
        arriving: by another's, in the same leader epoch.
    """
    keys = ClusterKeys(CLUSTER)

    def put(partition: TopicPartition, broker: int) -> None:
        own = keys.partition(partition)
        puts.put(f"{prefix}/{own.log_start}", encode_log_start(0))
        puts.put(f"{prefix}/{own.commit}", _commit(partition, broker))

    with ThreadPoolExecutor(_PUTTERS, "put") as pool:
        for of, broker in ((led, BROKER), (arriving, _ANOTHER)):
            for done in [pool.submit(put, partition, broker) for partition in of]:
                done.result()


def put_positions(puts: RawPuts, prefix: str, led: Sequence[TopicPartition]) -> None:
    """Put the positions object of this broker, with a row for each of these partitions."""
    start = encode_log_start(0).decode()
    rows = {each: Row(_commit(each, BROKER).decode(), "", start, "", has_gaps=False, sealed=0) for each in led}
    key = ClusterKeys(CLUSTER).positions_of(BROKER)
    puts.put(f"{prefix}/{key}", pack(Positions(BROKER, int(time.time() * 1000), rows).encode()))


def _commit(partition: TopicPartition, broker: int) -> bytes:
    """Return the commit of a partition whose closed segment is shipped."""
    now, nonce, tail = int(time.time() * 1000), f"{abs(hash(partition)):016x}", int.from_bytes(_BATCH[17:21], "big")
    epochs = EpochHistory(((0, 0),))
    return Commit(0, 1, 0, epochs, 1, topic_id(partition.topic), broker, now, nonce, (0, tail)).encode()


def _write_segment(directory: Path, base: int, log: bytes) -> None:
    for suffix in (".index", ".timeindex"):
        (directory / f"{base:020d}{suffix}").write_bytes(b"")
    (directory / f"{base:020d}.log").write_bytes(log)


def _write_epochs(directory: Path, pairs: Sequence[tuple[int, int]]) -> None:
    rows = "".join(f"{epoch} {start}\n" for epoch, start in pairs)
    replacement = directory / "leader-epoch-checkpoint.tmp"
    replacement.write_text(f"0\n{len(pairs)}\n{rows}")
    replacement.replace(directory / "leader-epoch-checkpoint")
