"""Finds partitions that an agent recorded and that have no object in the store.

An agent writes `log.start` once it has a partition's high watermark, and it records the latter in `ends/<broker>.json`.
So a partition with a high watermark above 0 has an object. For a deleted topic, retention leaves the list of
incarnations: a list without any partition is a finding in an archive without `ends/` only.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from ts_common.archive.high_watermarks import End, brokers_with_ends, read_ends
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from tsctl.verify.finding_kinds import PARTITION_MISSING
from tsctl.verify.findings import Finding

_STALE_MILLISECONDS = 24 * 3600 * 1000


def read_high_watermarks(store: ObjectStore, keys: ClusterKeys) -> dict[str, dict[int, End]] | None:
    """Return the ends above 0 that agents recorded, by topic and number; None if no agent recorded any.

    Objects that are a day older than the newest one are left out: their broker can have left the cluster, and retention
    can have removed a topic since. Read them before the directories: a new partition can appear in between.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    read = []
    for broker in brokers_with_ends(store, keys):
        with suppress(CorruptData, NewerFormat):
            read.append(read_ends(store, keys, broker))
    ends = [each for each in read if each is not None]
    if not ends:
        return None
    late = max(each.time for each in ends) - _STALE_MILLISECONDS
    known: dict[str, dict[int, End]] = {}
    for each in (each for each in ends if each.time >= late):
        for partition, end in each.partitions.items():
            if end.high_watermark > 0:
                known.setdefault(partition.topic, {})[partition.partition] = end
    return known


def lost_partitions(
    keys: ClusterKeys,
    incarnations: Incarnations,
    listed: Iterable[PartitionKeys],
    recorded: Mapping[int, End] | None,
    old: float,
) -> Iterator[Finding]:
    """Yield the partitions of a topic's newest incarnation that have no object.

    Args:
        listed: the directories of its partitions.
        recorded: ends above 0, by number; None in an archive where agents recorded none.
        old: seconds since the epoch; an incarnation that was opened later may have no object yet.
    """
    topic, directory = incarnations.topic, incarnations.newest_directory
    held = {each.partition.partition for each in listed if each.incarnation == directory}
    opened = [entry.first_seen for entry in incarnations.entries if entry.directory == directory]
    if recorded is None and opened and not held and opened[0] < old * 1000:
        key = keys.incarnations(topic)
        yield Finding(PARTITION_MISSING, topic, f"{key} lists {directory}, and no partition of it has an object", key)
    for number, end in sorted((recorded or {}).items()):
        if number in held:
            continue
        here = keys.partition(TopicPartition(topic, number), directory)
        detail = f"an agent recorded the high watermark {end.high_watermark}; no object is below {here.prefix}"
        yield Finding(PARTITION_MISSING, here.directory, detail, here.prefix)
