"""The commit and `log.start`: up to where, and from where on, readers may look.

::

    00000000000000000100                 base offset of the highest segment of the run, 20 digits
    {"next":250,"epoch":4,...}           ours alone; a Java uploader writes the first line only

The first line is the Java uploader's watermark, so its consumer finds what is written here. The second line makes the
commit's ETag its own (`nonce`), so that conditional writes fence even where next offset and epoch stay the same.

`log.start` holds the first offset that readers show, in 20 digits. Once the commit went back, both objects bear a
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
    shown,
    text,
    whole_number,
)

_FIRST_LINE = re.compile(rb"[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of ours.

    Attributes:
        highest_base: base offset of the highest segment of the run.
        next_offset: end of the run; readers see offsets below it.
        epoch: leader epoch of the leadership that committed.
        epochs: the run's epochs, from where the archive begins.
        last_stable_offset: offset below which no transaction is open; None where it was not to be had.
        topic_id: of the incarnation; None where the cluster knows no topic ids.
        broker: id of the broker beside which the agent ran.
        time: milliseconds since the epoch, the agent's clock.
        nonce: random, so that no two commits have equal bytes.
        tail: (last offset, stored CRC) of the run's last batch; None where compaction may have changed it. A log that
            has another batch there is not the one that was committed, whatever its epochs say.
        java: milliseconds since the epoch, when a Java uploader's commit was last taken over here; None: never.
        lineage: of the last time that the commit went back; None: never.
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
        """The text of `offset.wm`."""
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
    """A commit without a second line: the Java uploader's. It names the last segment shipped and no end."""

    highest_base: int


def decode_commit(data: bytes, key: str) -> Commit | ForeignCommit:
    """Read the text of `offset.wm`. Fields of later versions are passed over.

    Args:
        data: the object's bytes.
        key: of the object, for the message.

    Raises:
        CorruptData: no 20-digit first line, or a second line that is not one of ours.
        NewerFormat: the second line is a later release's.
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
        offset: first offset that readers show.
        lineage: that it counts in; None where no commit went back before it was written.
    """

    offset: int
    lineage: Lineage | None = None

    def encode(self) -> bytes:
        """The text of the object."""
        if self.lineage is None:
            return encode_log_start(self.offset)
        second = {"version": LINEAGE_VERSION, "lineage": self.lineage.encode()}
        return encode_log_start(self.offset) + f"{json.dumps(second, separators=(',', ':'))}\n".encode()

    def fits(self, lineage: Lineage | None) -> bool:
        """Whether readers can join it to a commit of this lineage: it is of the same, or of an older one."""
        return self.lineage == lineage or epoch_of(self.lineage) < epoch_of(lineage)

    def shown_from(self, lineage: Lineage | None) -> int:
        """The first offset that readers of a commit of this lineage show (reading rule 1); meaningful where it `fits`.

        An older `log.start` may lie above where the newer lineage begins: the agent that went back writes it next.
        """
        if lineage is None or self.lineage == lineage:
            return self.offset
        return min(self.offset, lineage.begin)


def encode_log_start(offset: int) -> bytes:
    """The text of a `log.start` without a lineage: the first offset that readers show, 20 digits."""
    return f"{offset:020d}\n".encode()


def decode_log_start(data: bytes, key: str) -> LogStart:
    """Read the text of `log.start`. Fields of later versions are passed over.

    Raises:
        CorruptData: the first line is not 20 digits, or the second holds no lineage.
        NewerFormat: the second line is a later release's.
    """
    first, _, second = data.strip().partition(b"\n")
    with decoding(key, "a log start", data):
        offset = _first_line(first)
        if not second.strip():
            return LogStart(offset)
        fields = parse_fields(second, key, "a log start", LOG_START_BYTES, known=LINEAGE_VERSION)
        return LogStart(offset, Lineage.decode(fields["lineage"]))


def _first_line(line: bytes) -> int:
    """The offset in the line that a Java uploader reads too."""
    if not _FIRST_LINE.fullmatch(line.strip()):
        raise ValueError(f"the first line is {shown(line)}, not 20 digits")
    return whole_number(int(line))


def _tail(value: object) -> tuple[int, int]:
    last_offset, crc = pair(value)
    return whole_number(last_offset), whole_number(crc, 0, MAX_UINT32)
