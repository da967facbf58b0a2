"""The plan of one partition: the objects of its offsets, what is lost, and the transactions that are ended."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from ts_common.archive.commit import StoredLineage
from ts_common.archive.copies import SegmentCopy
from ts_common.archive.epoch_history import StoredEpochs
from ts_common.archive.object_keys import LOG_SUFFIX, OFFSET_DIGITS, TAIL_DIRECTORY, SegmentName
from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Ended
from ts_common.archive.segment_metadata import known_crc32c
from ts_common.archive.stored_object import BrokerId, Crc32c, FieldKind, Presence, StoredObject, between, limited
from ts_common.json_objects import MAX_INT64, MIN_INT64, shown, text
from ts_common.store.validation import is_key
from tsctl.restore.transactions import MAX_PRODUCER_EPOCH, OpenTransaction

_SEGMENT_BYTES: Final = 1 << 30  # of a live tail in one segment: Kafka's default of `segment.bytes`
_ENTRY: Final = re.compile(rf".*/{TAIL_DIRECTORY}[^/]+/[a-z]+/[^/@]+@[0-9]{{1,19}}")
_Text = Annotated[str, limited(1 << 20)]


def _source_key(value: object) -> str:
    found = text(value)
    name = SegmentName.parse(found.rpartition("/")[2])
    if name is not None and name[1] == LOG_SUFFIX and is_key(found):
        return found
    if _ENTRY.fullmatch(found) is not None and is_key(found):
        return found
    raise ValueError(f"{shown(found)} is not the key of a segment's `.log`, nor of an entry of a live tail")


@dataclass(frozen=True, slots=True)
class Source:
    """A stored `.log`, or an entry of a live tail.

    Attributes:
        key: of the `.log`; a restored log has its older ones in another directory. For an entry, the key of its object
            and the position of its first byte there: `<key>@<position>`.
        size: bytes.
        crc32c: of these bytes; None if the archive has none.
        time_max: greatest timestamp in ms; None if unknown.
    """

    key: Annotated[str, FieldKind(_source_key)]
    size: int
    crc32c: Crc32c | None
    time_max: Annotated[int, between(MIN_INT64)] | None

    @property
    def is_entry(self) -> bool:
        """Whether it is an entry of a live tail."""
        return "@" in self.key.rpartition("/")[2]

    @property
    def object(self) -> tuple[str, int]:
        """The key of the object, and the position of the first byte in it."""
        if not self.is_entry:
            return self.key, 0
        key, _, position = self.key.rpartition("@")
        return key, int(position)

    @property
    def base(self) -> int:
        """The base offset in its name; 0 of an entry, which has none."""
        return 0 if self.is_entry else int(self.key.rpartition("/")[2][:OFFSET_DIGITS])


@dataclass(frozen=True, slots=True)
class Step:
    """Offsets `[start, end)` and the objects that have them; several compacted ones are united."""

    start: int
    end: int
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, part: ReadRange) -> "Step":
        """Return the step of a range of a view."""
        return cls(part.start, part.end, tuple(map(_source, part.copies)))

    @property
    def is_tail(self) -> bool:
        """Whether an entry of a live tail has them."""
        return any(source.is_entry for source in self.sources)

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets `[start, end)` that are not restored.

    Attributes:
        why: for people.
    """

    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class PartitionPlan(StoredObject, version=None, expected="the plan of a partition"):
    """What is restored of a partition.

    Attributes:
        start: first offset that consumers see.
        end: the offset after the last of the archive; markers of `ended` follow it.
        stored_end: the offset after the last that the archive has.
        stable: below it the archive has no open transaction.
        replicas: broker ids, the preferred leader first.
        steps: in order.
        lost: holes, in order.
        ended: in the order of their markers.
        epochs: of the archive's commit, and its lineage: `restored.json` has them.
        notes: what a person should read before approving.
        homes: if other topics are served meanwhile, the broker ids that the last step moves the partition to;
            `replicas` is one broker then.
        left_open: transactions that get no marker, so that Kafka recovers the segments from the first of them on.
    """

    start: int
    end: int
    stored_end: int
    stable: int
    replicas: tuple[BrokerId, ...]
    steps: tuple[Step, ...]
    lost: tuple[Hole, ...]
    ended: tuple[Ended, ...]
    epochs: StoredEpochs
    lineage: StoredLineage | None
    notes: tuple[_Text, ...]
    homes: Annotated[tuple[BrokerId, ...], Presence.MAY_LACK] = ()
    left_open: Annotated[tuple[OpenTransaction, ...], Presence.MAY_LACK] = ()

    def check(self) -> None:
        """Check that the steps ascend within the bounds, and that a broker can have the markers and the replicas."""
        bounds = [self.start, *(bound for step in self.steps for bound in (step.start, step.end)), self.end]
        if bounds != sorted(bounds) or self.log_end > MAX_INT64 or not all(step.sources for step in self.steps):
            raise ValueError(f"offsets {shown(bounds)}: ascending ones, with an object for each step, are expected")
        if any(each.producer_epoch > MAX_PRODUCER_EPOCH for each in self.ended):
            raise ValueError(f"producer epochs from -1 to {MAX_PRODUCER_EPOCH} are expected")
        if not self.replicas or len({*self.replicas}) < len(self.replicas):
            raise ValueError(f"replicas {shown(self.replicas)}: different brokers are expected")

    @property
    def log_end(self) -> int:
        """The end of the restored log, with its markers."""
        return self.end + len(self.ended)

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(step.size for step in self.steps)

    @property
    def closed_end(self) -> int:
        """The offset after the last that closed segments have; the live tail has what follows, up to `end`."""
        return next((step.start for step in self.steps if step.is_tail), self.end)

    def segments(self, done: int = 0) -> Iterator[tuple[Step, ...]]:
        """Yield the steps that become one segment each: of the live tail as many as a segment may have.

        Args:
            done: how many steps are left out; those of earlier segments.
        """
        some, size = list[Step](), 0
        for step in self.steps[done:]:
            if some and not (step.is_tail and some[-1].is_tail and size + step.size <= _SEGMENT_BYTES):
                yield tuple(some)
                some, size = [], 0
            some.append(step)
            size += step.size
        if some:
            yield tuple(some)


def _source(copy: SegmentCopy) -> Source:
    return Source(copy.key, copy.segment.size, known_crc32c(copy.metadata), copy.metadata.time_max)
