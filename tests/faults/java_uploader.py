"""The Java uploader as a store meets it (`tests/data/java-uploader`, and its `DirectoryTreeWatcher`).

- Where its broker begins to lead a partition, it reads the first line of `offset.wm`, and takes up each closed segment
  whose name is above that; what other uploaders write there later it never reads.
- A segment's three files are put as they are, without a condition or metadata; then, where its name is above the last
  one that this uploader wrote, `offset.wm` with the name alone.
- What it has taken up it uploads, also where its broker leads no more. What it has not uploaded goes with the process.
"""

from collections import deque
from math import inf

from tests.faults.leaders import PATIENCE, Background, zookeeper_of
from tests.uploader.beside import Archive
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import ObjectNotFound
from ts_local.cluster import wait_for

_FILES = (".index", ".log", ".timeindex")  # in no order that means anything


class JavaUploader(Background):
    """One beside a broker, from `with` to its end.

    Args:
        archive: whose topic and store.
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
        self._latest: dict[int, int] = {}  # by partition: what it wrote last to `offset.wm`, or read there
        _ = archive.store  # opened by this thread

    def hold(self) -> None:
        """Upload nothing for now; what closes is queued."""
        self._may_upload = 0

    def release_one(self) -> None:
        """Upload one segment, and hold again; returns when it is done."""
        left = len(self._queue)
        self._may_upload = 1
        wait_for(lambda: len(self._queue) < left, "the Java uploader to upload one segment", PATIENCE)

    def queued(self, partition: int = 0) -> list[int]:
        """Base offsets of what it has taken up and not uploaded."""
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
    """Until the commit is one of ours again."""
    wait_for(lambda: archive.commit(partition) is not None, "a commit of ours", PATIENCE)
    commit = archive.commit(partition)
    assert commit is not None
    return commit
