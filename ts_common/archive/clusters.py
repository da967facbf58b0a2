"""The clusters that a store has, by the names of directories alone: for a user whose cluster id is wrong.

An agent writes objects of the whole cluster below `ts-uploader~cluster~<cluster>/`. A Java uploader does not. So other
directories count too, if they contain directories of partitions; of entropy directories only a few of each width.
"""

import re
from collections import Counter
from typing import Final

from ts_common.archive.object_keys import CLUSTER_DIRECTORY, ClusterKeys
from ts_common.model import TopicPartition, is_cluster_id
from ts_common.store.contract import ObjectStore

_ENTROPY: Final = re.compile(r"[01]+")
_ENTROPY_DIRECTORIES: Final = 4  # of each width; a cluster with as many partitions as directories is in nearly all
_MOST: Final = 100  # directories that are read; a bucket that other programs use too can have millions
_NAMED: Final = 10  # in a sentence


def list_clusters(store: ObjectStore) -> tuple[str, ...]:
    """Return the ids of the clusters in a store, sorted; with at most a hundred small requests.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    own: list[str] = []
    places: list[str] = []  # directories that can contain directories of clusters
    widths: Counter[int] = Counter()
    for directory in store.list_directories(""):
        name = directory.rstrip("/")
        if name.startswith(CLUSTER_DIRECTORY):
            own.append(name.removeprefix(CLUSTER_DIRECTORY))
        elif _ENTROPY.fullmatch(name):
            widths[len(name)] += 1
            if widths[len(name)] <= _ENTROPY_DIRECTORIES:
                places.append(directory)
        elif len(places) < _MOST:
            places.append(directory)
    # A hold of a mistyped cluster is there too; an agent writes the layout before anything else.
    found = {cluster for cluster in own[:_MOST] if is_cluster_id(cluster) and _has_layout(store, cluster)}
    for place in places[:_MOST]:
        names = [each.rstrip("/") for each in store.list_directories(place)]
        if _ENTROPY.fullmatch(place.rstrip("/")):
            found |= {each for each in names if is_cluster_id(each)}
        elif is_cluster_id(place.rstrip("/")) and any(TopicPartition.parse(each) is not None for each in names):
            found.add(place.rstrip("/"))
    return tuple(sorted(found))


def _has_layout(store: ObjectStore, cluster: str) -> bool:
    key = ClusterKeys(cluster).layout
    return next((True for info in store.list(key) if info.key == key), False)


def known_clusters(store: ObjectStore) -> str:
    """Return a clause for a message about a wrong cluster: the clusters that the store has.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    clusters = list_clusters(store)
    if not clusters:
        return "it has no cluster at all"
    more = f" and {len(clusters) - _NAMED} more" if len(clusters) > _NAMED else ""
    return f"it has {', '.join(clusters[:_NAMED])}{more}"
