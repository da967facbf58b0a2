"""The layout of a cluster's keys, `layout.json`: how many entropy bits they have.

::

    <base prefix>/ts-uploader~cluster~<cluster>/layout.json
    {"version":1,"entropyBits":5,"cluster":"prod","time":1700000000000}

The first agent writes it where none stands, and it is never changed. Every agent compares its own number with it before
it ships, so that no archive gets two widths. Readers and tools need not be told the number: they read it there. An
archive of an earlier release has none before its next agent starts.
"""

import json
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import MAX_ENTROPY_BITS, ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import ObjectNotFound, QueryError
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, text, whole_number
from ts_common.store.contract import ObjectStore

_LARGEST: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Layout:
    """How a cluster's keys are made.

    Attributes:
        entropy_bits: leading bits of MD5 in each key; 0 means none.
        cluster: the cluster's id.
        time: milliseconds since the epoch, the clock of the agent that wrote it.
    """

    entropy_bits: int
    cluster: str
    time: int

    def encode(self) -> bytes:
        """The text of `layout.json`."""
        fields = {
            "version": VERSION,
            "entropyBits": self.entropy_bits,
            "cluster": self.cluster,
            "time": self.time,
        }
        return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def decode_layout(data: bytes, cluster: str, key: str) -> Layout:
    """Read the text of `layout.json`. Fields of later releases are passed over.

    Args:
        data: the text.
        cluster: whose layout is expected.
        key: of the object, for messages.

    Raises:
        CorruptData: it is not that text, or of another cluster.
        NewerFormat: it is a later release's.
    """
    fields = parse_fields(data, key, "a cluster's layout", _LARGEST)
    with decoding(key, "a cluster's layout", data):
        layout = Layout(
            whole_number(fields["entropyBits"], 0, MAX_ENTROPY_BITS),
            text(fields["cluster"]),
            whole_number(fields["time"]),
        )
        if layout.cluster != cluster:
            raise ValueError(f"cluster {layout.cluster!r}; {cluster!r} is expected")
    return layout


def read_layout(store: ObjectStore, keys: ClusterKeys) -> Layout | None:
    """A cluster's layout in a store; None where none stands. One request.

    Raises:
        CorruptData, NewerFormat: as `decode_layout`.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    try:
        return decode_layout(get_small(store, keys.layout, _LARGEST)[0], keys.cluster, keys.layout)
    except ObjectNotFound:
        return None


def keys_of(store: ObjectStore, cluster: str, entropy_bits: int | None) -> ClusterKeys:
    """How a cluster's keys are made in a store, for a reader.

    Args:
        store: the one that is read.
        cluster: its id.
        entropy_bits: what the reader was told, which asks nothing; None reads the layout, or means 0 without one.

    Raises:
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_layout`.
    """
    keys = ClusterKeys(cluster, entropy_bits or 0)
    if entropy_bits is None and (layout := read_layout(store, keys)) is not None:
        return ClusterKeys(cluster, layout.entropy_bits)
    return keys


def contradiction(layout: Layout, keys: ClusterKeys, option: str, location: str) -> str | None:
    """What somebody is told whose number of entropy bits is not that of the layout; None where it is.

    Args:
        layout: of the cluster.
        keys: with the other number.
        option: how the number is written, for instance `prefixEntropyBits=`.
        location: of the store.
    """
    own, right = max(keys.entropy_bits, 0), layout.entropy_bits
    if own == right:
        return None
    return (
        f"{option}{own}: {location} holds cluster {keys.cluster} with {right} entropy bits, as {keys.layout} says: "
        f"set {option}{right}"
    )


def check_layout(store: ObjectStore, keys: ClusterKeys, option: str) -> None:
    """Refuse a reader's number of entropy bits that is not that of the layout; without a layout any passes.

    Args:
        store: the one that is read.
        keys: with the number that the reader was told.
        option: as `contradiction`.

    Raises:
        QueryError: it is another.
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_layout`.
    """
    layout = read_layout(store, keys)
    if layout is not None and (told := contradiction(layout, keys, option, store.location)) is not None:
        raise QueryError(told)
