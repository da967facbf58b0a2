"""Requests that no recorded session has: unknown topics and partitions, greatest timestamps, last fetched epochs."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from tests.endpoint.groups.client import frame_of
from tests.endpoint.recorded.frames import Frame, Recording
from tests.endpoint.recorded.topics import OPEN, PARTITIONS, PLAIN, PREFIX, TX
from ts_endpoint.protocol.versions import SERVED, Api
from ts_endpoint.requests.offsets import Special

_NAME: Final = "built"
_UNKNOWN: Final = f"{PREFIX}unknown"
_ABOVE: Final = 1 << 40  # an offset above every end


def built() -> Recording:
    """Return the requests."""
    return Recording(_NAME, {}, tuple(_frames()))


def _frames() -> Iterator[Frame]:
    # Numbers that the topics have, and others.
    named = [(PLAIN, (9, 0)), (_UNKNOWN, (0, 1)), (TX, (1, -1)), (OPEN, (0,))]
    offset = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    group = {"group_id": f"{PREFIX}{_NAME}", "generation_id_or_member_epoch": -1, "member_id": ""}
    least, most = SERVED[Api.OFFSET_COMMIT]
    for version in range(least, most + 1):
        yield _frame(Api.OFFSET_COMMIT, version, topics=_topics(named, **offset), **group)
    yield _frame(Api.OFFSET_DELETE, 0, topics=_topics(named), **group)
    every = [(topic, range(count)) for topic, count in PARTITIONS.items()]
    for isolation in (0, 1):
        yield _frame(
            Api.LIST_OFFSETS,
            SERVED[Api.LIST_OFFSETS][1],
            replica_id=-1,
            isolation_level=isolation,
            topics=_topics(every, timestamp=Special.MAX_TIMESTAMP),
        )
        for start, epoch in ((_ABOVE, 0), (_ABOVE, 99), (0, 0), (0, 99), (-1, 0)):
            wanted = {"fetch_offset": start, "last_fetched_epoch": epoch, "partition_max_bytes": 1 << 20}
            topics = [{"topic": each.pop("name"), **each} for each in _topics([(PLAIN, (0,))], **wanted)]
            yield _frame(
                Api.FETCH,
                12,
                max_wait=timedelta(0),
                min_bytes=1,
                isolation_level=isolation,
                topics=topics,
                forgotten_topics_data=[],
            )


def _frame(api: Api, version: int, **values: Any) -> Frame:
    return Frame(api, version, frame_of(api, version, _NAME, values))


def _topics(named: Sequence[tuple[str, Sequence[int]]], **fields: Any) -> list[dict[str, Any]]:
    """Return topics of a request, with the same fields for each partition; Fetch has another name for the index."""
    index = "partition" if "fetch_offset" in fields else "partition_index"
    return [
        {"name": topic, "partitions": [{index: number, **fields} for number in numbers]} for topic, numbers in named
    ]
