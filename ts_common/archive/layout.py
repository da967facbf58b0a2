"""The layout of a cluster's keys, `layout.json`: the number of entropy bits.

::

    <base prefix>/ts-uploader~cluster~<cluster>/layout.json
    {"version":1,"entropyBits":5,"cluster":"prod","time":1700000000000}

The first agent writes the object, and it never changes. Each agent compares it with its own number before it ships, so
that no archive gets two widths. Readers and tools read the number there. An archive of an earlier release has no such
object until its next agent starts.
"""

from dataclasses import dataclass
from typing import Annotated

from ts_common.archive.object_keys import MAX_ENTROPY_BITS, ClusterKeys
from ts_common.archive.stored_object import StoredObject, between
from ts_common.errors import QueryError
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted


@dataclass(frozen=True, slots=True)
class Layout(StoredObject, expected="a cluster's layout", most=64 << 10):
    """The form of a cluster's keys.

    Attributes:
        entropy_bits: number of leading MD5 bits in each key; 0 for keys without them.
        time: milliseconds since the epoch, by the clock of the agent that wrote it.
    """

    entropy_bits: Annotated[int, between(0, MAX_ENTROPY_BITS)]
    cluster: str
    time: int


def read_layout(store: ObjectStore, keys: ClusterKeys) -> Layout | None:
    """Read a cluster's layout in one request; None if the store has no such object.

    Raises:
        CorruptData: the object is damaged, or belongs to another cluster.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Layout.read(store, keys.layout, cluster=keys.cluster)


def keys_of(store: ObjectStore, cluster: str, entropy_bits: int | None) -> ClusterKeys:
    """Return the form of a cluster's keys for a reader.

    Args:
        store: the store to read.
        entropy_bits: number of entropy bits, used without a request; None for the layout's, or 0 without a layout.

    Raises:
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_layout`.
    """
    keys = ClusterKeys(cluster, entropy_bits or 0)
    if entropy_bits is None and (layout := read_layout(store, keys)) is not None:
        return ClusterKeys(cluster, layout.entropy_bits)
    return keys


def contradiction(layout: Layout, keys: ClusterKeys, option: str, location: str) -> str | None:
    """Return an error message if a number of entropy bits differs from the layout's; None if they are equal.

    Args:
        keys: keys with the number to compare.
        option: the option of that number, with its sign, for instance `prefixEntropyBits=`.
    """
    own, right = max(keys.entropy_bits, 0), layout.entropy_bits
    if own == right:
        return None
    return (
        f"{option}{own}: {location} contains cluster {keys.cluster} with {counted(right, 'entropy bit')} "
        f"({keys.layout}); set {option}{right}"
    )


def check_layout(store: ObjectStore, keys: ClusterKeys, option: str) -> None:
    """Reject a reader's number of entropy bits if it differs from the layout's; without a layout accept any.

    Args:
        store: the store to read.
        keys: keys with the reader's number.
        option: as in `contradiction`.

    Raises:
        QueryError: the numbers differ.
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `read_layout`.
    """
    layout = read_layout(store, keys)
    if layout is not None and (message := contradiction(layout, keys, option, store.location)) is not None:
        raise QueryError(message)
