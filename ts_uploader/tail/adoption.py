"""Ships again what readers use of former leaderships, so that commits need not name them for long (tail rule 4).

A segment that closes does the same, and most do so within the hour. Then nothing is left to adopt. Own entries must
reach from the next offset to where this leadership begins: until then, a late pack of a former leader could still be
shown, and then no longer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from ts_common.archive.commit import Commit
from ts_common.errors import CorruptData, SegmentChanged
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import FormerCovered
from ts_uploader.tail.led_partitions import LedPartition, beginning
from ts_uploader.tail.live_log import LiveLog, Piece

log = structlog.get_logger()

_AFTER_SECONDS: Final = 1800.0  # of a leadership
_EVERY_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Adopted:
    """A partition that is shipped again: from where, up to where at least."""

    led: LedPartition
    log: LiveLog
    start: int
    until: int


class Adoption:
    """The partitions of one log with former leaderships."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}  # leader epoch, and since when it names former ones
        self._adopted: dict[TopicPartition, _Adopted] = {}
        self._looked = 0.0

    def look(self, led: Iterable[LedPartition], now: float) -> None:
        """Begin with partitions whose commits have named former leaderships for half an hour; call it each round."""
        if now - self._looked < _EVERY_SECONDS:
            return
        self._looked = now
        before, self._since = self._since, {}
        for each in led:
            if each.own is None or not _former(each.own.commit):
                continue
            epoch, since = before.get(each.partition, (each.epoch, now))
            since = since if epoch == each.epoch else now
            self._since[each.partition] = each.epoch, since
            end = each.end
            if now - since >= _AFTER_SECONDS and end is not None and each.partition not in self._adopted:
                start = each.own.commit.next_offset
                until = max(end, beginning(each.own.commit))
                self._adopted[each.partition] = _Adopted(each, each.log_from(start), start, until)
        for partition in self._adopted.keys() - self._since.keys():
            del self._adopted[partition]

    def read(self, most: int) -> list[tuple[LedPartition, Piece]]:
        """Return pieces of at most so many bytes, or one larger batch; what cannot be read begins again later."""
        pieces = []
        for partition, adopted in list(self._adopted.items()):
            if most <= 0:
                break
            try:
                piece = adopted.log.read(adopted.led.high, most)
            except (SegmentChanged, CorruptData, OSError) as error:
                log.info("tail_not_adopted", partition=str(partition), error=str(error))
                del self._adopted[partition]
                continue
            if piece is not None:
                pieces.append((adopted.led, piece))
                most -= piece.length
        return pieces

    def take(self, pieces: Iterable[tuple[LedPartition, Piece]], now: float) -> list[FormerCovered]:
        """Continue after pieces, which the store has; return the partitions that need no former leadership."""
        covered = []
        for led, piece in pieces:
            adopted = self._adopted.get(led.partition)
            if adopted is not None and adopted.led is led:
                adopted.log.take(piece)
                if piece.end >= adopted.until:
                    covered.append(FormerCovered(led.partition, led.epoch, adopted.start))
                    del self._adopted[led.partition]
                    self._since[led.partition] = led.epoch, now  # a commit that fails is requested again
        return covered

    def begin_again(self) -> None:
        """Forget what was shipped: what the store has is unknown."""
        self._adopted.clear()


def _former(commit: Commit) -> bool:
    """Return whether a commit names another leadership, of another epoch."""
    return commit.live is not None and any(epoch != commit.epoch for _, epoch in commit.live.former)
