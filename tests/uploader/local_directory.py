"""A partition's directory as a broker leaves it, made file by file."""

from pathlib import Path

from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.directory_scan import list_partition
from ts_uploader.messages.observations import Listing

TP = TopicPartition("t", 0)
CLUSTER = ClusterKeys("c", 5)
KEYS = CLUSTER.partition(TP)
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
INDEXES = (".index", ".timeindex")


class LocalDirectory:
    """One directory, `<log dir>/t-0`.

    Args:
        log_dir: where it lies.
    """

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.path = log_dir / str(TP)
        self.path.mkdir(parents=True)
        self.topic_id(ID)

    def topic_id(self, topic_id: str) -> None:
        """Write `partition.metadata`."""
        (self.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")

    def segments(self, *bases: int) -> None:
        """Empty segments; the last is the active one."""
        for base in bases:
            self.write(base, b"")

    def write(self, base: int, data: bytes) -> None:
        """A segment's `.log`, and empty indexes."""
        for suffix in INDEXES:
            (self.path / f"{base:020d}{suffix}").touch()
        (self.path / f"{base:020d}.log").write_bytes(data)

    def rename(self, *bases: int, suffixes: tuple[str, ...] = (".log", *INDEXES)) -> None:
        """As retention does: each file bears `.deleted` from now on."""
        for base in bases:
            for suffix in suffixes:
                path = self.path / f"{base:020d}{suffix}"
                path.rename(path.with_name(path.name + ".deleted"))

    def unlink(self, *bases: int) -> None:
        """Remove every file of these segments, under any name."""
        for base in bases:
            for path in self.path.glob(f"{base:020d}.*"):
                path.unlink()

    def epochs(self, *pairs: tuple[int, int]) -> None:
        """Write `leader-epoch-checkpoint`."""
        lines = ["0", str(len(pairs)), *(f"{epoch} {start}" for epoch, start in pairs)]
        (self.path / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")

    def no_epochs(self) -> None:
        """A log of an old magic has no such file."""
        (self.path / "leader-epoch-checkpoint").unlink(missing_ok=True)

    def log_start(self, offset: int) -> None:
        """Write the log dir's `log-start-offset-checkpoint`, as after DeleteRecords."""
        (self.log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{TP.topic} {TP.partition} {offset}\n")

    def listing(self) -> Listing:
        """What the directory holds now."""
        listing = list_partition(TP, self.log_dir)
        assert listing is not None
        return listing
