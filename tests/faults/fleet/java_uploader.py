"""The Java uploader as the store sees it (`tests/data/java-uploader`, and its `DirectoryTreeWatcher`).

- When its broker becomes leader of a partition, it reads the first line of `offset.wm`, and queues each closed segment
  with a higher name. It never reads what other uploaders write there later.
- It puts a segment's three files without a condition or metadata. If the segment's name is above the last one that
  this uploader wrote, it then puts `offset.wm` with the name alone.
- It uploads its queue even if its broker no longer leads. The queue is lost with the process.
"""

from collections import deque
from math import inf

from dev.local.kafka.cluster import wait_for
from tests.faults.leaders import PATIENCE, Background, zookeeper_of
from tests.uploader.beside import Archive
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import ObjectNotFound

_FILES = (".index", ".log", ".timeindex")  # in arbitrary order


class JavaUploader(Background):
    """A Java uploader on a broker, inside a `with`.

    Args:
        archive: with its topic and store.
        broker: its id.
        partitions: of the topic.
    """

    def __init__(self, archive: Archive, broker: int, partitions: int = 1) -> None:
        super().__init__()
        self._archive = archive
        self._broker = archive.cluster.brokers[broker]
        self._partitions = range(partitions)
        self._may_upload: float = inf  # segments
        self._queue: deque[tuple[int, int]] = deque()  # partition, base
        self._taken: dict[int, set[int]] = {}  # by led partition: bases that were queued
        self._latest: dict[int, int] = {}  # by partition: the last name that it wrote to `offset.wm`, or read there
        _ = archive.store  # opened by this thread

    def hold(self) -> None:
        """Upload nothing for now; closed segments are queued."""
        self._may_upload = 0

    def release_one(self) -> None:
        """Upload one segment, and pause again; return when it is done."""
        left = len(self._queue)
        self._may_upload = 1
        wait_for(lambda: len(self._queue) < left, "the Java uploader to upload one segment", PATIENCE)

    def queued(self, partition: int = 0) -> list[int]:
        """Return the base offsets that are queued and not uploaded."""
        return [base for of, base in list(self._queue) if of == partition]

    def run(self) -> None:
        topic = self._archive.topic
        with zookeeper_of(self._archive.cluster).client() as client:
            while not self._ending.wait(0.05):
                for partition in self._partitions:
                    state = client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0]
                    if b'"leader":%d,' % self._broker.id not in state:
                        self._taken.pop(partition, None)
                    else:
                        self._take_up(partition)
                while self._queue and self._may_upload and not self._ending.is_set():
                    self._may_upload -= 1
                    self._upload(*self._queue[0])
                    self._queue.popleft()

    def _take_up(self, partition: int) -> None:
        if partition not in self._taken:
            self._taken[partition] = set()
            self._latest.pop(partition, None)
            try:
                text, _ = self._archive.store.get(self._archive.partition_keys(partition).commit)
                self._latest[partition] = int(text.split(b"\n")[0])
            except ObjectNotFound:
                pass
        directory = self._broker.partition_directory(self._archive.topic, partition)
        for base in sorted(int(path.stem) for path in directory.glob("*.log"))[:-1]:
            if base > self._latest.get(partition, -1) and base not in self._taken[partition]:
                self._taken[partition].add(base)
                self._queue.append((partition, base))

    def _upload(self, partition: int, base: int) -> None:
        directory = self._broker.partition_directory(self._archive.topic, partition)
        keys = self._archive.partition_keys(partition)
        for suffix in _FILES:
            data = (directory / f"{base:020d}{suffix}").read_bytes()
            self._archive.store.put(keys.segment(SegmentName(base), suffix), data)
        if base > self._latest.get(partition, -1):
            self._archive.store.put(keys.commit, b"%020d" % base)
            self._latest[partition] = base


def wait_taken_over(archive: Archive, partition: int = 0) -> Commit:
    """Wait until the commit is this project's again."""
    wait_for(lambda: archive.commit(partition) is not None, "a commit of ours", PATIENCE)
    commit = archive.commit(partition)
    assert commit is not None
    return commit
