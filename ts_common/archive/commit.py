"""The commit `offset.wm` and `log.start`: the end and the beginning of what readers return.

::

    00000000000000000100                 base offset of the highest segment of the run, 20 digits
    {"next":250,"epoch":4,...}           absent in a Java uploader's commit

The first line is the Java uploader's watermark, so that its consumer can read this archive. The `nonce` in the second
line makes the ETag unique, so that conditional writes fence even if next offset and epoch stay the same.

`log.start` contains the first offset that readers return, in 20 digits. After the commit went back, both objects have a
lineage (`Lineage`), `log.start` in a second line. Retention and erasure add fields there (`LogStart`)::

    00000000000000000100
    {"version":2,"lineage":[5,100,250],"floor":50,"since":"gc-20261128T020000000Z-1f2e3d4c","writtenBy":"gc-..."}
"""

import re
import secrets
import sys
import time
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

from ts_common.archive.epoch_history import StoredEpochs
from ts_common.archive.small_objects import COMMIT_BYTES, LOG_START_BYTES
from ts_common.archive.stored_object import (
    BrokerId,
    Crc32c,
    Epoch,
    FieldKind,
    Presence,
    StoredObject,
    between,
    json_line,
    limited,
)
from ts_common.format_version import ERASED_VERSION, LINEAGE_VERSION
from ts_common.json_objects import MAX_INT32, decoding, shown, whole_number

MAX_ERASED: Final = 999_999_999
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The last time that a partition's commit went back (protocol rule 5).

    An election can lose committed records. The commit then goes back, and offsets get other records. From then on the
    commit and `log.start` both have a lineage, so that no reader combines objects from before and after the loss. If a
    commit never went back, both objects have no lineage and the bytes of format version 1.

    Attributes:
        epoch: leader epoch of the agent whose commit went back.
        begin: the next offset that the commit went back to; from this offset on, records belong to this lineage.
        highest: no `log.start` of an earlier lineage is greater. Below it, a deletion of the earlier lineage can still
            be in progress, so agents use no plain segment names there.
    """

    epoch: int
    begin: int
    highest: int

    def encode(self) -> list[int]:
        """Return the lineage as JSON has it: `[epoch, begin, highest]`."""
        return [self.epoch, self.begin, self.highest]

    @classmethod
    def decode(cls, fields: object) -> "Lineage":
        """Parse the JSON of a lineage.

        Raises:
            ValueError: it is not a list of three whole numbers of at least 0.
        """
        match fields:
            case [epoch, begin, highest]:
                return cls(whole_number(epoch, 0, MAX_INT32), whole_number(begin), whole_number(highest))
        raise ValueError(f"lineage {shown(fields)} is not a list of three numbers")


LINEAGE: Final = FieldKind(Lineage.decode, Lineage.encode)
StoredLineage = Annotated[Lineage, LINEAGE]


def epoch_of(lineage: Lineage | None) -> int:
    """Return the leader epoch that orders lineages: a lineage of a lower epoch is older. -1 for no lineage."""
    return -1 if lineage is None else lineage.epoch


_FIRST_LINE = re.compile(rb"[0-9]{20}")


# `<broker>`, or `<broker>.<group>`: the log of an agent in one store.
LOG_NAME: Final = r"(?:0|[1-9][0-9]{0,9})(?:\.[A-Za-z0-9_-]{1,64})?"
LogName = Annotated[str, limited(75, LOG_NAME)]


@dataclass(frozen=True, slots=True)
class Live(StoredObject):
    """Where the live tail of a partition is: the packs that can have records from the next offset on (tail rule 4).

    Attributes:
        log: name of the log of packs of the leadership that wrote the commit.
        former: the logs and leader epochs of former leaderships whose entries count too.
        ahead: the leader's epochs from the next offset on.
    """

    log: LogName
    former: Annotated[tuple[tuple[LogName, Epoch], ...], "of"]
    ahead: StoredEpochs


@dataclass(frozen=True, slots=True)
class Commit(StoredObject, expected="a commit", most=COMMIT_BYTES, version=None, known=LINEAGE_VERSION):
    """A commit that an agent wrote.

    Attributes:
        highest_base: base offset of the highest segment of the run.
        next_offset: end of the run; readers see offsets below it.
        epoch: leader epoch of the leadership that committed.
        epochs: the epochs of the run, from the lowest stored segment on.
        last_stable_offset: no transaction is open below this offset; None if unknown.
        topic_id: topic id of the incarnation; None if the cluster has no topic ids.
        time: milliseconds since the epoch, the agent's clock.
        nonce: random text, so that no two commits have equal bytes.
        tail: (last offset, stored CRC) of the run's last batch; None if compaction can have changed it. A log with
            another batch there is not the committed log, whatever epochs it has.
        java: milliseconds since the epoch: last takeover of a Java uploader's commit; None if there was no takeover.
        lineage: lineage of the last time that the commit went back; None if it never did.
        live: where the live tail is; None without one. An agent of an earlier release drops it.
    """

    highest_base: Annotated[int, Presence.GIVEN]
    next_offset: Annotated[int, "next"]
    epoch: Epoch
    epochs: StoredEpochs
    last_stable_offset: Annotated[int | None, "lso", Presence.MAY_LACK]
    topic_id: Annotated[str | None, Presence.MAY_LACK]
    broker: BrokerId
    time: int
    nonce: str
    tail: Annotated[tuple[int, Crc32c] | None, Presence.MAY_LACK] = None
    java: Annotated[int | None, Presence.IF_SET] = None
    lineage: Annotated[StoredLineage | None, Presence.IF_SET] = None
    live: Annotated[Live | None, Presence.IF_SET] = None

    @property
    def has_run(self) -> bool:
        """Whether a segment was committed; without one, line 1 names no object (protocol rule 8)."""
        return self.highest_base < self.next_offset or bool(self.epochs.pairs)

    @property
    def shared(self) -> "Commit":
        """An equal commit with the parts of other commits that are equal: an agent has ten thousand in memory."""
        topic_id = self.topic_id and sys.intern(self.topic_id)
        return replace(self, epochs=_first(self.epochs), live=_first(self.live), topic_id=topic_id)

    def encode(self) -> bytes:
        """Return the content of `offset.wm`."""
        second = self.fields()
        if (lineage := second.pop("lineage", None)) is not None:
            second |= {"version": LINEAGE_VERSION, "lineage": lineage}
        return f"{self.highest_base:020d}\n".encode() + json_line(second)


@lru_cache(maxsize=64)
def _first(part: _Part) -> _Part:
    """Return the first of equal objects."""
    return part


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of the Java uploader: without a second line. It names the last segment shipped, but no end.

    Attributes:
        highest_base: base offset of that segment.
    """

    highest_base: int


def decode_commit(data: bytes, key: str) -> Commit | ForeignCommit:
    """Parse the content of `offset.wm`; unknown fields are ignored.

    Args:
        key: key of the object, for messages.

    Raises:
        CorruptData: the first line is not 20 digits, or the second line is damaged.
        NewerFormat: a later release wrote the second line.
    """
    first, _, second = data.partition(b"\n")
    with decoding(key, "a commit", data):
        highest_base = _first_line(first)
    if not second.strip():
        return ForeignCommit(highest_base)
    return Commit.decode(second, key, highest_base=highest_base)


@dataclass(frozen=True, slots=True)
class LogStart(
    StoredObject,
    expected="a log start",
    most=LOG_START_BYTES,
    version=LINEAGE_VERSION,
    known=ERASED_VERSION,
    knows_all=True,
):
    """The content of `log.start`, and of its copy below `gc/log-start/`.

    Attributes:
        offset: first offset that readers return: the start S.
        lineage: its lineage; None if no commit went back before it was written.
        floor: the floor F: retention deleted nothing at or above it. None: unknown, never S.
        since: `written_by` of the write of retention that last raised the start; None where nothing is hidden.
        erased: number of the least list of erased offsets that exists; None without one.
        written_by: another text in each write of retention, and in each write that has a floor or `erased`. An ETag is
            a hash of the content, and a number can be written twice: without it, a late write would succeed.
    """

    offset: Annotated[int, Presence.GIVEN]
    # Null is damage here: an object without a lineage has no such field.
    lineage: Annotated[Lineage | None, LINEAGE, Presence.IF_SET] = None
    _: KW_ONLY
    floor: Annotated[int | None, between(), Presence.IF_SET] = None
    since: Annotated[str | None, limited(1024), Presence.IF_SET] = None
    erased: Annotated[int | None, between(1, MAX_ERASED), Presence.IF_SET] = None
    written_by: Annotated[str | None, limited(1024), Presence.IF_SET] = None

    def check(self) -> None:
        """Check that the second line has a reason to exist."""
        if self.lineage is None and self.written_by is None:
            raise ValueError("the second line has neither a lineage nor a writer")

    def fields(self) -> dict[str, Any]:
        """Return the JSON values of the second line."""
        found = StoredObject.fields(self)
        return found | {"version": LINEAGE_VERSION if self.erased is None else ERASED_VERSION}

    def encode(self) -> bytes:
        """Return the content of the object."""
        has_second = self.lineage is not None or self.written_by is not None
        return encode_log_start(self.offset) + (json_line(self.fields()) if has_second else b"")

    def in_lineage(self, lineage: Lineage | None, start: int) -> "LogStart":
        """Return the `log.start` that an agent writes when its commit is of another lineage (protocol rule 5).

        It carries what retention and erasure wrote. An unknown floor stays unknown.

        Args:
            lineage: of the commit.
            start: the first offset that readers return then.
        """
        floor = None if self.floor is None else min(self.floor, start)
        since = None if start == floor else self.since
        carries = (floor, since, self.erased) != (None, None, None)
        writer = new_writer("agent") if carries else None
        return LogStart(start, lineage, floor=floor, since=since, erased=self.erased, written_by=writer)

    @classmethod
    def begun(cls, offset: int, lineage: Lineage | None = None, erased: int | None = None) -> "LogStart":
        """Return a `log.start` without anything of retention, by an agent.

        Args:
            offset: first offset that readers return.
            lineage: of the commit.
            erased: number of the greatest list of erased offsets; None without one.
        """
        return cls(offset, lineage, erased=erased, written_by=None if erased is None else new_writer("agent"))

    def fits(self, lineage: Lineage | None) -> bool:
        """Return whether readers can use it with a commit of this lineage: its own is the same or older."""
        return self.lineage == lineage or epoch_of(self.lineage) < epoch_of(lineage)

    def shown_from(self, lineage: Lineage | None) -> int:
        """Return the first offset that readers of a commit of this lineage return (reading rule 1), if it `fits`.

        An older `log.start` can be above the first offset of the newer lineage, until an agent writes it.
        """
        if lineage is None or self.lineage == lineage:
            return self.offset
        return min(self.offset, lineage.begin)


def new_writer(kind: str, at: float | None = None) -> str:
    """Return a text for `LogStart.written_by` that no other write has.

    Args:
        kind: `gc`, `agent` or `erase`.
        at: seconds since the epoch; None for now.
    """
    at = time.time() if at is None else at
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at))
    return f"{kind}-{stamp}{int(at * 1000) % 1000:03d}Z-{secrets.token_hex(4)}"


def encode_log_start(offset: int) -> bytes:
    """Return the content of a `log.start` without a lineage: the first offset that readers return, in 20 digits."""
    return f"{offset:020d}\n".encode()


def decode_log_start(data: bytes, key: str) -> LogStart:
    """Parse the content of `log.start`.

    Raises:
        CorruptData: the first line is not 20 digits, or the second contains a malformed value, or neither lineage nor
            writer.
        NewerFormat: a later release wrote the second line: its version or a field is unknown.
    """
    first, _, second = data.strip().partition(b"\n")
    with decoding(key, "a log start", data):
        offset = _first_line(first)
    return LogStart.decode(second, key, offset=offset) if second.strip() else LogStart(offset)


def _first_line(line: bytes) -> int:
    """Return the offset in the first line, which a Java uploader reads too."""
    if not _FIRST_LINE.fullmatch(line.strip()):
        raise ValueError("the first line is not 20 digits")
    return whole_number(int(line))
