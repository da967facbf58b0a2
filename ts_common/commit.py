"""The commit and `log.start`: up to where, and from where on, readers may look.

::

    00000000000000000100                 base offset of the highest segment of the run, 20 digits
    {"next":250,"epoch":4,...}           ours alone; a Java uploader writes the first line only

The first line is the Java uploader's watermark, so its consumer finds what is written here. The second line makes the
commit's ETag its own (`nonce`), so that conditional writes fence even where next offset and epoch stay the same.

`log.start` holds the first offset that readers show, in 20 digits. Once the commit went back, both objects bear a
lineage (`ts_common.lineage`), `log.start` in a second line::

    00000000000000000100
    {"version":2,"lineage":[5,100,250]}
"""

import json
import re
from dataclasses import dataclass

from ts_common.epochs import EpochLine
from ts_common.errors import CorruptData
from ts_common.format_version import check_version
from ts_common.lineage import LINEAGE_VERSION, Lineage, epoch_of

_FIRST_LINE = re.compile(r"[0-9]{20}")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of ours.

    Attributes:
        highest_base: base offset of the highest segment of the run.
        next_offset: end of the run; readers see offsets below it.
        epoch: leader epoch of the reign that committed.
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
    epochs: EpochLine
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
    try:
        first, _, second = data.decode("ascii").partition("\n")
        if not _FIRST_LINE.fullmatch(first.strip()):
            raise ValueError(f"the first line is {first[:40]!r}, not 20 digits")
        if not second.strip():
            return ForeignCommit(int(first))
        fields = json.loads(second)
        check_version(fields, key, LINEAGE_VERSION)
        commit = Commit(
            highest_base=int(first),
            next_offset=_integer(fields, "next"),
            epoch=_integer(fields, "epoch"),
            epochs=EpochLine(tuple((int(epoch), int(start)) for epoch, start in fields["epochs"])),
            last_stable_offset=None if fields.get("lso") is None else _integer(fields, "lso"),
            topic_id=fields.get("topicId"),
            broker=_integer(fields, "broker"),
            time=_integer(fields, "time"),
            nonce=str(fields["nonce"]),
            tail=None if fields.get("tail") is None else (int(fields["tail"][0]), int(fields["tail"][1])),
            java=None if fields.get("java") is None else _integer(fields, "java"),
            lineage=None if fields.get("lineage") is None else Lineage.decode(fields["lineage"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CorruptData(f"{key}: not a commit: {error!r}; the store holds {data[:80]!r}") from error
    return commit


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
    first, _, second = data.decode("ascii", "replace").strip().partition("\n")
    if not _FIRST_LINE.fullmatch(first):
        raise CorruptData(f"{key}: not a log start offset of 20 digits: {data[:80]!r}")
    if not second.strip():
        return LogStart(int(first))
    try:
        fields = json.loads(second)
        check_version(fields, key, LINEAGE_VERSION)
        return LogStart(int(first), Lineage.decode(fields["lineage"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{key}: the second line holds no lineage: {error!r}; found {data[:80]!r}") from error


def _integer(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not a number")
    return value
