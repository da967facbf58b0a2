"""What the bucket does to an archive by itself: lifecycle rules that would harm it, and versions that it keeps."""

from collections.abc import Callable, Iterator
from typing import Final

from ts_common.archive.lifecycle_harm import harmful
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import ObjectStore
from ts_common.store.protection import HiddenBytes
from ts_common.wording import counted
from tsctl.output import size
from tsctl.verify.finding_kinds import LIFECYCLE_HARM
from tsctl.verify.findings import Finding

_MOST_BITS: Final = 10


def rules_findings(
    store: ObjectStore, keys: ClusterKeys, tags: frozenset[tuple[str, str]], warn: Callable[[str], None]
) -> Iterator[Finding]:
    """Yield a finding for each lifecycle rule that would harm the cluster.

    Args:
        tags: of the cluster's objects.
        warn: called with a sentence if this identity may not read the rules.

    Raises:
        StoreUnavailable, BucketMissing: the request failed.
    """
    try:
        rules = store.lifecycle_rules()
    except AccessDenied as denied:
        warn(f"lifecycle rules were not checked, and can remove objects of the archive: {denied}")
        return
    for each in harmful(rules or (), keys, tags):
        yield Finding(LIFECYCLE_HARM, keys.cluster, f"{each.found}; {each.remedy}")


def hidden_bytes(store: ObjectStore, keys: ClusterKeys) -> HiddenBytes | None:
    """Count noncurrent versions and delete markers of a cluster; None if the store does not list versions.

    A directory whose objects are all hidden is in no listing of directories, so every prefix that the entropy bits
    allow is counted. With more than 1,024 prefixes, the whole location is counted, with other clusters in it.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    found = HiddenBytes(0, 0, 0)
    for prefix in _prefixes(keys):
        below = store.hidden_bytes(prefix)
        if below is None:
            return None
        found += below
    return found


def hidden_line(found: HiddenBytes) -> str:
    """Return the counts as one line."""
    return (
        f"noncurrent versions: {counted(found.objects, 'object')}, {size(found.bytes)}, and "
        f"{counted(found.markers, 'delete marker')}; they stay until a lifecycle rule expires them"
    )


def _prefixes(keys: ClusterKeys) -> Iterator[str]:
    bits = keys.entropy_bits
    if bits > _MOST_BITS:
        yield ""
        return
    for number in range(2 ** max(0, bits)):
        yield f"{number:0{bits}b}/{keys.cluster}/" if bits > 0 else f"{keys.cluster}/"
    yield keys.cluster_prefix
