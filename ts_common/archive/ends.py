"""The high watermarks of the partitions that a broker leads, in `ends/<broker>.json`.

::

    <base prefix>/ts-uploader~cluster~<cluster>/ends/1.json
    {"version":1,"broker":1,"time":1700000000000,"partitions":{"orders-0":[4711,1699999998000]}}

For each partition the object has the valid high watermark (protocol rule 1), and the mtime of the checkpoint where the
agent read it, in milliseconds since the epoch by the broker's clock. Each agent overwrites its own object every few
minutes. An object can be old: its agent ended, or its broker leads no partition any more.
"""

import json
import re
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

_NAME: Final = re.compile(r"([0-9]{1,10})\.json", re.ASCII)
_LARGEST: Final = 16 << 20  # ten thousand partitions with names of ordinary length are half a megabyte


@dataclass(frozen=True, slots=True)
class End:
    """The end of a partition's committed records.

    Attributes:
        high_watermark: records below this offset are on all in-sync replicas.
        time: milliseconds since the epoch: the broker wrote its checkpoint.
    """

    high_watermark: int
    time: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the partitions that one broker leads, as its agent reports them.

    Attributes:
        broker: id of the broker.
        time: milliseconds since the epoch, the agent's clock: the object was written.
        partitions: the partitions with a valid high watermark.
    """

    broker: int
    time: int
    partitions: Mapping[TopicPartition, End]

    def encode(self) -> bytes:
        """Return the content of the object: one line."""
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
    """Parse the content of `ends/<broker>.json`; unknown fields are ignored.

    Args:
        data: the content.
        broker: id of the expected broker.
        key: key of the object, for messages.

    Raises:
        CorruptData: the content is damaged, or belongs to another broker.
        NewerFormat: a later release wrote it.
    """
    fields = parse_fields(data, key, "the ends of a broker", _LARGEST)
    with decoding(key, "the ends of a broker", data):
        ends = Ends(
            whole_number(fields["broker"], 0, MAX_INT32),
            whole_number(fields["time"]),
            dict(_end(name, value) for name, value in fields["partitions"].items()),
        )
        if ends.broker != broker:
            raise ValueError(f"broker {ends.broker}; {broker} is expected")
    return ends


def read_ends(store: ObjectStore, keys: ClusterKeys, broker: int) -> Ends | None:
    """Read the ends that a broker's agent wrote last; None if there is no such object.

    Raises:
        CorruptData, NewerFormat: as `decode_ends`.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    key = keys.ends_of(broker)
    try:
        return decode_ends(get_small(store, key, _LARGEST)[0], broker, key)
    except ObjectNotFound:
        return None


def brokers_with_ends(store: ObjectStore, keys: ClusterKeys) -> list[int]:
    """Return the ids of the brokers with such an object, ascending; other names are ignored.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    names = (info.key.removeprefix(keys.ends) for info in store.list(keys.ends))
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)) is not None)


def _end(name: str, value: object) -> tuple[TopicPartition, End]:
    partition = TopicPartition.parse(name)
    if partition is None:
        raise ValueError(f"{name!r} is not a partition")
    high_watermark, time = pair(value)
    return partition, End(whole_number(high_watermark), whole_number(time))
