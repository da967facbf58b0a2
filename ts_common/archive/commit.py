"""The commit `offset.wm` and `log.start`: the end and the beginning of what readers return.

::

    00000000000000000100                 base offset of the highest segment of the run, 20 digits
    {"next":250,"epoch":4,...}           absent in a Java uploader's commit

The first line is the Java uploader's watermark, so that its consumer can read this archive. The `nonce` in the second
line makes the ETag unique, so that conditional writes fence even if next offset and epoch stay the same.

`log.start` contains the first offset that readers return, in 20 digits. After the commit went back, both objects have a
lineage (`ts_common.archive.lineage`), `log.start` in a second line::

    00000000000000000100
    {"version":2,"lineage":[5,100,250]}
"""

import json
import re
from dataclasses import dataclass

from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.lineage import LINEAGE_VERSION, Lineage, epoch_of
from ts_common.archive.small_objects import COMMIT_BYTES, LOG_START_BYTES
from ts_common.json_objects import (
    MAX_INT32,
    MAX_UINT32,
    decoding,
    epoch_pair,
    optional_number,
    pair,
    parse_fields,
    rows,
    text,
    whole_number,
)

_FIRST_LINE = re.compile(rb"[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that an agent wrote.

    Attributes:
        highest_base: base offset of the highest segment of the run.
        next_offset: end of the run; readers see offsets below it.
        epoch: leader epoch of the leadership that committed.
        epochs: the epochs of the run, from the lowest stored segment on.
        last_stable_offset: no transaction is open below this offset; None if unknown.
        topic_id: topic id of the incarnation; None if the cluster has no topic ids.
        broker: id of the agent's broker.
        time: milliseconds since the epoch, the agent's clock.
        nonce: random text, so that no two commits have equal bytes.
        tail: (last offset, stored CRC) of the run's last batch; None if compaction can have changed it. A log with
            another batch there is not the committed log, whatever epochs it has.
        java: milliseconds since the epoch: last takeover of a Java uploader's commit; None if there was no takeover.
        lineage: lineage of the last time that the commit went back; None if it never did.
    """

    highest_base: int
    next_offset: int
    epoch: int
    epochs: EpochHistory
    last_stable_offset: int | None
    topic_id: str | None
    broker: int
    time: int
    nonce: str
    tail: tuple[int, int] | None = None
    java: int | None = None
    lineage: Lineage | None = None

    def encode(self) -> bytes:
        """Return the content of `offset.wm`."""
        second: dict[str, object] = {
            "next": self.next_offset,
            "epoch": self.epoch,
            "epochs": [list(pair) for pair in self.epochs],
            "lso": self.last_stable_offset,
            "topicId": self.topic_id,
            "broker": self.broker,
            "time": self.time,
            "nonce": self.nonce,
            "tail": self.tail,
        }
        if self.java is not None:
            second["java"] = self.java
        if self.lineage is not None:
            second["version"] = LINEAGE_VERSION
            second["lineage"] = self.lineage.encode()
        return f"{self.highest_base:020d}\n{json.dumps(second, separators=(',', ':'))}\n".encode()


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
        data: the object's bytes.
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
        fields = parse_fields(second, key, "a commit", COMMIT_BYTES, known=LINEAGE_VERSION)
        return Commit(
            highest_base=highest_base,
            next_offset=whole_number(fields["next"]),
            epoch=whole_number(fields["epoch"], NO_EPOCH, MAX_INT32),
            epochs=EpochHistory(tuple([epoch_pair(each) for each in rows(fields["epochs"])])),
            last_stable_offset=optional_number(fields.get("lso")),
            topic_id=None if fields.get("topicId") is None else text(fields["topicId"]),
            broker=whole_number(fields["broker"], -1, MAX_INT32),
            time=whole_number(fields["time"]),
            nonce=text(fields["nonce"]),
            tail=None if fields.get("tail") is None else _tail(fields["tail"]),
            java=optional_number(fields.get("java")),
            lineage=None if fields.get("lineage") is None else Lineage.decode(fields["lineage"]),
        )


@dataclass(frozen=True, slots=True)
class LogStart:
    """The content of `log.start`.

    Attributes:
        offset: first offset that readers return.
        lineage: its lineage; None if no commit went back before it was written.
        written_by: the run of `tsctl gc` that wrote it, another text in each write; None if an agent wrote it. An ETag
            is a hash of the content, and retention can write a number twice: without it, a late write would succeed.
    """

    offset: int
    lineage: Lineage | None = None
    written_by: str | None = None

    def encode(self) -> bytes:
        """Return the content of the object."""
        if self.lineage is None and self.written_by is None:
            return encode_log_start(self.offset)
        second: dict[str, object] = {"version": LINEAGE_VERSION}
        second |= {} if self.lineage is None else {"lineage": self.lineage.encode()}
        second |= {} if self.written_by is None else {"writtenBy": self.written_by}
        return encode_log_start(self.offset) + f"{json.dumps(second, separators=(',', ':'))}\n".encode()

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


def encode_log_start(offset: int) -> bytes:
    """Return the content of a `log.start` without a lineage: the first offset that readers return, in 20 digits."""
    return f"{offset:020d}\n".encode()


def decode_log_start(data: bytes, key: str) -> LogStart:
    """Parse the content of `log.start`; unknown fields are ignored.

    Raises:
        CorruptData: the first line is not 20 digits, or the second contains a malformed value or neither field.
        NewerFormat: a later release wrote the second line.
    """
    first, _, second = data.strip().partition(b"\n")
    with decoding(key, "a log start", data):
        offset = _first_line(first)
        if not second.strip():
            return LogStart(offset)
        fields = parse_fields(second, key, "a log start", LOG_START_BYTES, known=LINEAGE_VERSION)
        if "lineage" not in fields and "writtenBy" not in fields:
            raise ValueError("the second line has neither a lineage nor a writer")
        return LogStart(
            offset,
            Lineage.decode(fields["lineage"]) if "lineage" in fields else None,
            text(fields["writtenBy"]) if "writtenBy" in fields else None,
        )


def _first_line(line: bytes) -> int:
    """Return the offset in the first line, which a Java uploader reads too."""
    if not _FIRST_LINE.fullmatch(line.strip()):
        raise ValueError("the first line is not 20 digits")
    return whole_number(int(line))


def _tail(value: object) -> tuple[int, int]:
    last_offset, crc = pair(value)
    return whole_number(last_offset), whole_number(crc, 0, MAX_UINT32)
