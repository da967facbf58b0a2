"""The ends of what a broker leads, `ends/<broker>.json`: high watermarks, and when the broker wrote them down.

::

    <base prefix>/ts-uploader~cluster~<cluster>/ends/1.json
    {"version":1,"broker":1,"time":1700000000000,"partitions":{"orders-0":[4711,1699999998000]}}

For each partition the high watermark that counts (protocol rule 1), and the time of modification of the checkpoint that
it was read from, milliseconds since the epoch by the broker's clock. Each agent writes its own object over every few
minutes. An object that is old says what was so then: the agent is gone, or leads nothing any more.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import ObjectNotFound
from ts_common.format_version import VERSION
from ts_common.json_objects import MAX_INT32, decoding, pair, parse_fields, whole_number
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

_LARGEST: Final = 16 << 20  # ten thousand partitions with names of ordinary length are half a megabyte


@dataclass(frozen=True, slots=True)
class End:
    """How far a partition's committed records reach.

    Attributes:
        high_watermark: the offset below which records are committed.
        time: milliseconds since the epoch, when the broker wrote it down.
    """

    high_watermark: int
    time: int


@dataclass(frozen=True, slots=True)
class Ends:
    """What one agent says of the partitions that its broker leads.

    Attributes:
        broker: its id.
        time: milliseconds since the epoch, the agent's clock, when this was written.
        partitions: those with a high watermark that counts.
    """

    broker: int
    time: int
    partitions: Mapping[TopicPartition, End]

    def encode(self) -> bytes:
        """The text of the object: one line."""
        fields = {
            "version": VERSION,
            "broker": self.broker,
            "time": self.time,
            "partitions": {
                str(partition): [end.high_watermark, end.time] for partition, end in sorted(self.partitions.items())
            },
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def decode_ends(data: bytes, broker: int, key: str) -> Ends:
    """Read the text of `ends/<broker>.json`. Fields of later releases are passed over.

    Args:
        data: the text.
        broker: whose ends are expected.
        key: of the object, for messages.

    Raises:
        CorruptData: it is not that text, or another broker's.
        NewerFormat: it is a later release's.
    """
    fields = parse_fields(data, key, "the ends of a broker", _LARGEST)
    with decoding(key, "the ends of a broker", data):
        ends = Ends(
            whole_number(fields["broker"], 0, MAX_INT32),
            whole_number(fields["time"]),
            dict(_end(name, said) for name, said in fields["partitions"].items()),
        )
        if ends.broker != broker:
            raise ValueError(f"broker {ends.broker}; {broker} is expected")
    return ends


def read_ends(store: ObjectStore, keys: ClusterKeys, broker: int) -> Ends | None:
    """What a broker's agent said last in a store; None where it said nothing.

    Raises:
        CorruptData, NewerFormat: as `decode_ends`.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    key = keys.ends_of(broker)
    try:
        return decode_ends(get_small(store, key, _LARGEST)[0], broker, key)
    except ObjectNotFound:
        return None


def _end(name: str, said: object) -> tuple[TopicPartition, End]:
    partition = TopicPartition.parse(name)
    if partition is None:
        raise ValueError(f"{name!r} is no partition")
    high_watermark, time = pair(said)
    return partition, End(whole_number(high_watermark), whole_number(time))
