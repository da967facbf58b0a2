"""One number of entropy bits for a cluster's archive: each agent compares its own with the layout, or writes that.

Where no layout stands (an empty prefix, or an archive of an earlier release) the agent looks which widths are in use,
and refuses to start where only another is. Else it writes the layout, on condition that none stands, before it ships
anything: of two agents that start at once with different numbers one is refused.
"""

import time

from ts_common.archive.directories import entropy_widths
from ts_common.archive.layout import Layout, contradiction, read_layout
from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import ENTROPY_BITS_KEY
from ts_common.errors import OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import IfAbsent, ObjectStore

_OPTION = f"{ENTROPY_BITS_KEY}="
_MILLISECONDS = 1000
_ATTEMPTS = 5


def other_width(store: ObjectStore, keys: ClusterKeys) -> str | None:
    """Why nothing may be shipped with these keys: the store holds the cluster under another width; None where it may.

    Raises:
        CorruptData, NewerFormat: of the layout.
        StoreUnavailable, AccessDenied, BucketMissing: the store's.
    """
    if (layout := read_layout(store, keys)) is not None:
        return contradiction(layout, keys, _OPTION, store.location)
    own = max(keys.entropy_bits, 0)
    widths = entropy_widths(store, keys.cluster)
    if not widths or own in widths:
        return None
    held = ", ".join(str(width) for width in sorted(widths))
    return (
        f"{_OPTION}{own}: {store.location} holds cluster {keys.cluster} with {held} bits (0: none); with "
        "another width readers would not find both"
    )


def settle_layout(store: ObjectStore, keys: ClusterKeys) -> str | None:
    """Write the layout where none stands; what `other_width` would say of the one that stands then.

    It is read after it was written, so that a store without conditional writes shows at least a layout that another
    agent wrote a moment earlier.

    Raises:
        CorruptData, NewerFormat: of the layout.
        StoreUnavailable: no answer, several times.
        AccessDenied, BucketMissing: the store's.
    """
    last: OutcomeUnknown | PreconditionFailed | None = None
    for _ in range(_ATTEMPTS):
        if (layout := read_layout(store, keys)) is not None:
            return contradiction(layout, keys, _OPTION, store.location)
        layout = Layout(max(keys.entropy_bits, 0), keys.cluster, int(time.time() * _MILLISECONDS))
        try:
            store.put(keys.layout, layout.encode(), condition=IfAbsent())
        except (PreconditionFailed, OutcomeUnknown) as error:
            last = error
    raise StoreUnavailable(f"{store.location}/{keys.layout} cannot be written: {last}") from last
