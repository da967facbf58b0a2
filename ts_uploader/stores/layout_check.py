"""Keep one number of entropy bits for a cluster's archive: each agent checks the layout, or writes it.

Without a layout (an empty prefix, or an archive of an earlier release) the agent searches for widths that are in use.
It does not start if only another width is. Otherwise it writes the layout, if absent, before it ships anything. If two
agents start at once with different numbers, one of them does not start.
"""

import time
from typing import Final

import structlog

from ts_common.archive.directories import entropy_widths
from ts_common.archive.layout import Layout, contradiction, read_layout
from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.keys import ENTROPY_BITS_KEY
from ts_common.errors import OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.model import is_generated_cluster_id
from ts_common.store.contract import IfAbsent, ObjectStore

_OPTION = f"{ENTROPY_BITS_KEY}="
_MILLISECONDS = 1000
FRIENDLIER_ID: Final = (
    "it is the archive's name on every page and in every key, final from the first object on; for another name set "
    "--cluster-id NAME, and rename the properties file to NAME.properties"
)
_ATTEMPTS = 5

log = structlog.get_logger()


def other_width(store: ObjectStore, keys: ClusterKeys) -> str | None:
    """Return a sentence if the store has the cluster under another width than these keys; None otherwise.

    Raises:
        CorruptData, NewerFormat: of the layout.
        StoreUnavailable, AccessDenied, BucketMissing: of the store.
    """
    if (layout := read_layout(store, keys)) is not None:
        return contradiction(layout, keys, _OPTION, store.location)
    own = max(keys.entropy_bits, 0)
    widths = entropy_widths(store, keys.cluster)
    if not widths or own in widths:
        return None
    found = ", ".join(str(width) for width in sorted(widths))
    return (
        f"{_OPTION}{own}: {store.location} contains cluster {keys.cluster} with {found} bits; readers find only one "
        "width: set this key to that number"
    )


def settle_layout(store: ObjectStore, keys: ClusterKeys) -> str | None:
    """Write the layout if absent, and return the result of `other_width` for the one in the store.

    The agent reads the layout after the write. So even without conditional writes it sees a layout that another agent
    wrote a moment earlier.

    Raises:
        CorruptData, NewerFormat: of the layout.
        StoreUnavailable: no response to any attempt.
        AccessDenied, BucketMissing: of the store.
    """
    last: OutcomeUnknown | PreconditionFailed | None = None
    for _ in range(_ATTEMPTS):
        if (layout := read_layout(store, keys)) is not None:
            return contradiction(layout, keys, _OPTION, store.location)
        if is_generated_cluster_id(keys.cluster) and not last:
            log.warning("cluster_id_is_generated", cluster=keys.cluster, message=FRIENDLIER_ID)
        layout = Layout(max(keys.entropy_bits, 0), keys.cluster, int(time.time() * _MILLISECONDS))
        try:
            store.put(keys.layout, layout.encode(), condition=IfAbsent())
        except (PreconditionFailed, OutcomeUnknown) as error:
            last = error
    raise StoreUnavailable(
        f"{store.location}/{keys.layout}: writing the layout failed {_ATTEMPTS} times: {last}"
    ) from last
