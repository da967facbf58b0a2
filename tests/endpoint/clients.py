"""A client of the endpoint's handlers without a socket; it judges transactions as Java's consumer does."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from ts_common.archive.object_keys import ClusterKeys
from ts_common.log_format.framing import HEADER_SIZE, BatchHeader, parse_header
from ts_common.log_format.markers import ABORT, read_markers
from ts_common.store.contract import ObjectStore
from ts_endpoint.contract import EveryonePermitted, Handler, Permissions, Session
from ts_endpoint.data.feeds import ChunkCache, Feeds
from ts_endpoint.data.reads import Reads
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api
from ts_endpoint.requests.configs import DescribeConfigsHandler
from ts_endpoint.requests.context import Context
from ts_endpoint.requests.fetch import FetchHandler
from ts_endpoint.requests.metadata import MetadataHandler
from ts_endpoint.requests.offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from ts_endpoint.topics.archive import ServedArchive
from ts_endpoint.topics.catalog import Catalog, Location
from ts_endpoint.topics.cluster_configs import ClusterConfigs
from ts_reader.decode.arrow import to_arrow
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.decode.columns import Projection
from ts_reader.decode.segment_decoder import SegmentDecoder


def module_of(api: Api, version: int | None = None) -> Any:
    """Return kio's module of a version of a request, by default of the newest served one."""
    return import_module(f"kio.schema.{api.name.lower()}.v{SERVED[api][1] if version is None else version}.request")


BY_NAME = 12  # the last version of Fetch that names topics; later ones have their ids
FETCH, LIST = module_of(Api.FETCH, BY_NAME), module_of(Api.LIST_OFFSETS)
MOST_FETCHES = 10_000


class OneNode:
    """A single process that owns every partition."""

    self_id = 1

    def brokers(self) -> Sequence[tuple[int, str, int]]:
        return [(1, "localhost", 9092)]

    def leader_of(self, topic: str, partition: int) -> int:
        del topic, partition
        return 1


@dataclass(frozen=True)
class Served:
    """The handlers of an endpoint, and the rooms below them."""

    handlers: dict[Api, Handler]
    reads: Reads
    feeds: Feeds
    archive: ServedArchive


class Answer(NamedTuple):
    """What a Fetch returned of one partition."""

    error: ErrorCode
    records: bytes
    aborted: list[tuple[int, int]]
    values: dict[str, Any]


class FetchError(Exception):
    """A Fetch returned an error of its partition."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


@contextmanager
def serving(
    store: ObjectStore,
    keys: ClusterKeys,
    *,
    passes_holes: bool = False,
    cache_bytes: int = 64 << 20,
    refresh_seconds: float = 0.0,
    with_incarnations: bool = False,
    most_batch_bytes: int = 32 << 20,
    permissions: Permissions | None = None,
    room: int = 1 << 40,
    tail: bool = True,
) -> Iterator[Served]:
    """Serve one location; must be used inside of a running loop."""
    location = Location(store, keys)
    catalog = Catalog(
        [location], lambda _: location, refresh_seconds=refresh_seconds, with_incarnations=with_incarnations
    )
    archive = ServedArchive(catalog, refresh_seconds, tail=tail)
    with ThreadPoolExecutor(4) as executor:
        feeds = Feeds(ChunkCache(cache_bytes), executor, most_batch_bytes)
        reads = Reads(feeds, executor, passes_holes=passes_holes)
        configs = ClusterConfigs([location], refresh_seconds)
        context = Context(archive, OneNode(), permissions or EveryonePermitted(), keys.cluster, configs.of)
        handlers: dict[Api, Handler] = {
            Api.METADATA: MetadataHandler(context),
            Api.FETCH: FetchHandler(context, reads, lambda _: room),
            Api.LIST_OFFSETS: ListOffsetsHandler(context),
            Api.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(context),
            Api.DESCRIBE_CONFIGS: DescribeConfigsHandler(context),
        }
        try:
            yield Served(handlers, reads, feeds, archive)
        finally:
            feeds.close()
            archive.close()


async def call(served: Served, api: Api, body: Any, session: Session | None = None) -> Any:
    """Return the values of a reply to a request."""
    request = Request(api, int(body.__version__), 1, "test", body)
    return await served.handlers[api](request, session or Session("test"))


def fetch_body(
    topic: str,
    offsets: dict[int, int],
    *,
    committed: bool = False,
    most_bytes: int = 1 << 20,
    epoch: int = -1,
    fetched: int = -1,
    max_wait: float = 5.0,
    min_bytes: int = 1,
) -> Any:
    """Return the body of a Fetch."""
    partitions = tuple(
        FETCH.FetchPartition(
            partition=number,
            fetch_offset=offset,
            partition_max_bytes=most_bytes,
            current_leader_epoch=epoch,
            last_fetched_epoch=fetched,
        )
        for number, offset in offsets.items()
    )
    return FETCH.FetchRequest(
        max_wait=timedelta(seconds=max_wait),
        min_bytes=min_bytes,
        max_bytes=most_bytes * max(1, len(offsets)),
        isolation_level=int(committed),
        topics=(FETCH.FetchTopic(topic=topic, partitions=partitions),),
        forgotten_topics_data=(),
    )


async def fetch(served: Served, topic: str, offset: int, *, partition: int = 0, **options: Any) -> Answer:
    """Fetch from one partition."""
    values = await call(served, Api.FETCH, fetch_body(topic, {partition: offset}, **options))
    (found,) = values["responses"][0]["partitions"]
    aborted = [(each["producer_id"], each["first_offset"]) for each in found["aborted_transactions"] or ()]
    return Answer(found["error_code"], b"".join(found["records"].views), aborted, found)


async def read_all(
    served: Served,
    topic: str,
    *,
    partition: int = 0,
    start: int | None = None,
    committed: bool = False,
    most_bytes: int = 1 << 20,
) -> list[dict[str, Any]]:
    """Return the rows that a consumer gets from an offset to the end.

    Raises:
        FetchError: a Fetch returned an error.
    """
    if start is None:
        start = (await list_offset(served, topic, -2, partition=partition))["offset"]
    position, rows = start, list[dict[str, Any]]()
    end = (await list_offset(served, topic, -1, partition=partition, committed=committed))["offset"]
    for _ in range(MOST_FETCHES):
        if position >= end:
            return rows
        answer = await fetch(
            served, topic, position, partition=partition, committed=committed, most_bytes=most_bytes, max_wait=30.0
        )
        if answer.error is not ErrorCode.none:
            raise FetchError(answer.error)
        found, position_after = consumed(answer, position, committed=committed)
        if position_after <= position:
            raise AssertionError(f"a Fetch at {position} led nowhere; the end is {end}")
        rows += found
        position = position_after
    raise AssertionError(f"{MOST_FETCHES} fetches were not enough")


async def list_offset(
    served: Served, topic: str, timestamp: int, *, partition: int = 0, committed: bool = False, epoch: int = -1
) -> dict[str, Any]:
    """Return what ListOffsets answers for one partition."""
    asked = LIST.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    body = LIST.ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=(LIST.ListOffsetsTopic(name=topic, partitions=(asked,)),)
    )
    values = await call(served, Api.LIST_OFFSETS, body)
    found: dict[str, Any] = values["topics"][0]["partitions"][0]
    return found


def consumed(answer: Answer, position: int, *, committed: bool) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of an answer at or after a position, and the next position (Java's `CompletedFetch`)."""
    rows: list[dict[str, Any]] = []
    waiting = sorted(answer.aborted, key=lambda each: each[1])
    hiding: set[int] = set()
    for header, batch in batches_of(answer.records):
        if committed:
            while waiting and waiting[0][1] <= header.last_offset:
                hiding.add(waiting.pop(0)[0])
            if header.is_control:
                if any(kind == ABORT for _, kind in read_markers(header, batch[HEADER_SIZE:])):
                    hiding.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in hiding:
                position = max(position, header.last_offset + 1)
                continue
        rows += [row for row in rows_of(batch) if row["offset"] >= position]
        position = max(position, header.last_offset + 1)
    return rows, position


def batches_of(records: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield each batch with its header."""
    position = 0
    while position < len(records):
        header = parse_header(records, position, len(records) - position)
        assert isinstance(header, BatchHeader)
        yield header, records[position : position + header.size_in_bytes]
        position += header.size_in_bytes


def rows_of(batch: bytes) -> list[dict[str, Any]]:
    """Return the decoded rows of a batch."""
    decoder = SegmentDecoder(Projection(), size=len(batch))
    names = [*COLUMNS_WITH_HEADERS]
    return [row for columns in decoder.decode([batch]) for row in to_arrow(columns, "t", 0, names).to_pylist()]


def run(work: Callable[[], Any]) -> Any:
    """Run a coroutine function on a new loop."""
    return asyncio.run(work())
