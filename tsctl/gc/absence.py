"""Topics that the running cluster does not have: since when, in `gc/absent.json`.

::

    {"version":1,"time":1700000000000,"absent":{"orders":1690000000000}}

Each run with a running cluster writes the object. A topic that exists again loses its entry. So a topic with an entry
was absent in each run since then.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import ObjectNotFound, PreconditionFailed, QueryError
from ts_common.format_version import VERSION
from ts_common.json_objects import decoding, parse_fields, text, whole_number
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.wording import counted

_LARGEST: Final = 32 << 20
_MOST: Final = 0.5


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of the archive.

    Attributes:
        name: its name.
        topic_ids: of its newest incarnation; empty if it has none.
    """

    name: str
    topic_ids: frozenset[str]


def note_absent(
    store: ObjectStore,
    keys: ClusterKeys,
    archived: Iterable[ArchivedTopic],
    cluster: Mapping[str, str | None],
    now: int,
    *,
    writes: bool = True,
) -> dict[str, int]:
    """Return since when each absent topic was absent, ms since the epoch, and write it.

    Args:
        store: of the topics.
        keys: of the cluster.
        archived: the topics of the store.
        cluster: the topic ids of the running cluster by name; None for a topic without an id.
        now: milliseconds since the epoch, by the clock of the store.
        writes: whether to write it.

    Raises:
        QueryError: the cluster has so few of the topics that it is probably another one.
        CorruptData: the object is damaged.
        PreconditionFailed: another run wrote it meanwhile.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    topics = list(archived)
    absent = {topic.name for topic in topics if not _exists(topic, cluster)}
    if len(absent) > _MOST * len(topics):
        raise QueryError(
            f"the running cluster lacks {len(absent)} of {counted(len(topics), 'topic')} of the archive; it is "
            "probably another cluster: check --bootstrap-server, or remove deleted_topics from the policy"
        )
    key = f"{keys.gc_runs}absent.json"
    since, etag = _read(store, key)
    found = {name: min(since.get(name, now), now) for name in sorted(absent)}
    if not writes:
        return found
    fields = {"version": VERSION, "time": now, "absent": found}
    body = (json.dumps(fields, separators=(",", ":")) + "\n").encode()
    try:
        store.put(key, body, condition=IfAbsent() if etag is None else IfMatch(etag))
    except PreconditionFailed as error:
        raise PreconditionFailed(f"{key}: another run of gc wrote it meanwhile; run it again") from error
    return found


def _exists(topic: ArchivedTopic, cluster: Mapping[str, str | None]) -> bool:
    if topic.name not in cluster:
        return False
    topic_id = cluster[topic.name]
    return topic_id is None or not topic.topic_ids or topic_id in topic.topic_ids


def _read(store: ObjectStore, key: str) -> tuple[dict[str, int], str | None]:
    try:
        data, info = get_small(store, key, _LARGEST)
    except ObjectNotFound:
        return {}, None
    fields = parse_fields(data, key, "a list of absent topics", _LARGEST)
    with decoding(key, "a list of absent topics", data):
        return {text(name): whole_number(since) for name, since in fields["absent"].items()}, info.etag
