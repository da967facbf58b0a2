"""One process of the endpoint: it builds all rooms, serves until a signal stops it, and stops in order."""

import asyncio
import errno
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from ts_common.archive.clusters import known_clusters
from ts_common.errors import AccessDenied, AddressInUse, ConfigurationError, QueryError, StaleStateError, TransientError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_endpoint.contract import EveryonePermitted, Handlers, Permissions
from ts_endpoint.data.feeds import ChunkCache, Feeds
from ts_endpoint.data.reads import Reads
from ts_endpoint.groups.groups import Groups
from ts_endpoint.groups.offsets_store import OffsetsStore
from ts_endpoint.network.flow import BytesInFlight, Quotas
from ts_endpoint.network.server import Server
from ts_endpoint.peers.cluster import STOPPING, Peers, PeerStatus
from ts_endpoint.peers.handlers import describe_cluster, find_coordinator
from ts_endpoint.protocol.versions import Api
from ts_endpoint.requests.configs import DescribeConfigsHandler
from ts_endpoint.requests.context import Context
from ts_endpoint.requests.fetch import FetchHandler
from ts_endpoint.requests.metadata import MetadataHandler
from ts_endpoint.requests.offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from ts_endpoint.security.audit import Audit
from ts_endpoint.security.login import Sasl
from ts_endpoint.security.tls import Tls
from ts_endpoint.security.users import Users
from ts_endpoint.serving.options import EndpointSettings, GroupOffsets
from ts_endpoint.serving.readings import readings
from ts_endpoint.serving.stores import Stores, open_stores
from ts_endpoint.status.metric_families import make_registry
from ts_endpoint.status.pages import Pages, Pulse, Verdict
from ts_endpoint.status.request_counts import RequestCounts
from ts_endpoint.topics.archive import ServedArchive
from ts_endpoint.topics.catalog import Catalog
from ts_endpoint.topics.cluster_configs import ClusterConfigs
from ts_reader.reading.topics import other_width

log = structlog.get_logger("ts_endpoint")

_MIB: Final = 1 << 20
_SMALL_REQUESTS: Final = 16  # threads for lists, commits and offsets
_SEGMENT_READS: Final = 32  # threads for bytes of segments
_REWRITES: Final = 1  # threads that decode batches: a small batch can need much memory
GRACE_SECONDS: Final = 10.0  # for requests in progress at a stop
WAITING: Final = "waiting"  # the status of a process that serves no client yet
_LONGEST_PAUSE: Final = 10.0  # seconds between two looks for the first topic
_HUNG_SECONDS: Final = 20.0  # since the event loop last ran; then only a restart helps


@dataclass(frozen=True, slots=True)
class Security:
    """What protects a listener.

    Attributes:
        tls: None for plain TCP.
        sasl: None if clients need not authenticate by SASL.
        quotas: of users; None without users.
        audit: of logins and reads; None if clients do not log in and no file was named: its lines would name no user.
    """

    permissions: Permissions
    tls: Tls | None
    sasl: Sasl | None
    quotas: Quotas | None
    audit: Audit | None


def secured(settings: EndpointSettings) -> Security:
    """Return what the options describe. Without a file of users everyone may read everything.

    Raises:
        ConfigurationError: a file is missing or wrong.
    """
    options = settings.options
    users = None if options.users is None else Users(options.users)
    try:
        is_audited = settings.has_logins or options.audit_log is not None
        audit = Audit(options.audit_log) if is_audited else None
    except OSError as error:
        raise ConfigurationError("--audit-log", [f"{options.audit_log}: cannot write: {error.strerror}"]) from error
    return Security(
        permissions=EveryonePermitted() if users is None else users,
        tls=None if settings.tls is None else Tls(settings.tls),
        sasl=None if users is None or not settings.mechanisms else Sasl(settings.mechanisms, users.keys, users.usual),
        quotas=None if users is None else Quotas(users.bytes_per_second),
        audit=audit,
    )


class Endpoint:
    """Builds all rooms on the running event loop; `run` serves.

    Args:
        stores: of the archive; `run` closes them.

    Raises:
        ConfigurationError: `--http-address` cannot be used.
        AddressInUse: another program listens at `--http-address`.
    """

    def __init__(self, settings: EndpointSettings, stores: Stores, security: Security) -> None:
        options = settings.options
        self._settings = settings
        self._stores = stores
        self._is_serving = False
        self._waits_for: str | None = None  # why nothing can be served yet
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_SMALL_REQUESTS, "small-requests"))
        self._segment_threads = ThreadPoolExecutor(_SEGMENT_READS, "segment-reads")
        self._rewrite_threads = ThreadPoolExecutor(_REWRITES, "rewrites")
        cluster = stores.name.keys.cluster
        self._peers = Peers(cluster, settings.peers, settings.own, self._peers_changed)
        self._catalog = Catalog(
            stores.locations, stores.locate, refresh_seconds=options.refresh, with_incarnations=options.incarnations
        )
        self._archive = ServedArchive(self._catalog, options.refresh, tail=not options.no_tail)
        self._feeds = Feeds(ChunkCache(options.cache_mib * _MIB), self._segment_threads, MAX_BATCH_BYTES)
        self._reads = Reads(self._feeds, self._rewrite_threads, passes_holes=options.on_hole == "skip")
        in_flight = BytesInFlight(options.in_flight_mib * _MIB, security.quotas)
        self._offsets = self._offsets_store()
        self._groups = Groups(
            self._offsets, security.permissions, self._peers.owns_group, lacking=self._catalog.lacking
        )
        self._group_numbers = self._groups.numbers()
        self._lost = 0
        self._pulse = Pulse(on_beat=self._note_numbers)
        self._requests = RequestCounts()
        self._server = Server(
            self._requests.around(self._handlers(security, in_flight)),
            host=settings.listen.host,
            port=settings.listen.port,
            limits=settings.limits,
            tls=security.tls,
            sasl=security.sasl,
            in_flight=in_flight,
            quotas=security.quotas,
            audit=security.audit,
        )
        self._pages = Pages(options.http_address, self._registry(), self._health, self._readiness)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until an event is set, then hand over to other processes, write offsets and end connections.

        Args:
            stop: set by a signal.

        Raises:
            ConfigurationError, AddressInUse: the process cannot listen, or may not write offsets of groups.
            QueryError: the archive has another entropy width.
            StaleStateError: the first objects have another entropy width; a restart reads it.
            StoreUnavailable, AccessDenied, BucketMissing, CorruptData: the archive cannot be listed.
        """
        try:
            if not await self._catalog.topics() and (other := await asyncio.to_thread(self._other_width)) is not None:
                raise QueryError(other)
            await self._check_offsets()
            self._pulse.start()
            self._pages.start()
            if await self._catalog.topics() or await self._first_topics(stop):
                await self._begin()
                await stop.wait()
                await self._hand_over()
        finally:
            await self._close()

    async def _first_topics(self, stop: asyncio.Event) -> bool:
        """Wait until the archive has a topic, with pages but without a listener; return whether it has one now."""
        self._waits_for = await asyncio.to_thread(self._nothing)
        log.warning("archive_empty", reason=self._waits_for, pages=self._pages.address)
        while not await self._catalog.topics():
            with suppress(TransientError):
                if (other := await asyncio.to_thread(self._other_width)) is not None:
                    raise StaleStateError(other)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(self._settings.options.refresh, _LONGEST_PAUSE))
                return False
        self._waits_for = None
        return True

    async def _begin(self) -> None:
        topics = await self._catalog.topics()
        await self._listen()
        self._peers.start()
        self._is_serving = True
        log.info(
            "endpoint_started",
            listen=str(self._settings.listen),
            advertised=str(self._settings.own.address),
            pages=self._pages.address,
            topics=len(topics),
            processes=len(self._settings.peers),
        )
        if self._settings.is_open:
            log.warning("listener_open", remedy="set --users, or --tls-client-ca: everyone who connects reads all")

    async def _check_offsets(self) -> None:
        """Check that offsets of groups can be written; a store that is slow or away does not stop readers."""
        if self._offsets is None:
            return
        try:
            await asyncio.to_thread(self._offsets.check)
        except AccessDenied as error:
            remedy = "or set --groups memory, which loses offsets at a restart"
            raise ConfigurationError("--groups store", [f"{error}, {remedy}"]) from error
        except TransientError as error:
            log.warning("group_offsets_not_checked", error=str(error))

    async def _listen(self) -> None:
        address = self._settings.listen
        try:
            await self._server.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem = f"--listen {address}: another program listens there, perhaps another endpoint"
                raise AddressInUse(f"{problem}; end it, or name another host:port") from error
            reason = error.strerror or str(error)
            raise ConfigurationError(
                "--listen", [f"cannot listen on {address}: {reason}; name another host:port"]
            ) from error

    async def _hand_over(self) -> None:
        """Leave partitions and groups to the other processes, which read `stopping` meanwhile."""
        log.info("endpoint_stopping", connections=self._server.connections)
        await asyncio.sleep(self._peers.leave())

    async def _close(self) -> None:
        """Write offsets, answer what was requested, and close."""
        await self._groups.close()
        await self._server.close(GRACE_SECONDS)
        await self._peers.close()
        self._pulse.stop()
        self._pages.stop()
        self._archive.close()
        for threads in (self._segment_threads, self._rewrite_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self._stores.close()
        if self._peers.is_leaving:
            log.info("endpoint_stopped")

    def _handlers(self, security: Security, in_flight: BytesInFlight) -> Handlers:
        configs = ClusterConfigs(self._stores.locations)
        context = Context(self._archive, self._peers, security.permissions, self._peers.cluster, configs.of)
        return {
            Api.METADATA: MetadataHandler(context),
            Api.DESCRIBE_CONFIGS: DescribeConfigsHandler(context),
            Api.LIST_OFFSETS: ListOffsetsHandler(context),
            Api.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(context),
            Api.FETCH: FetchHandler(context, self._reads, in_flight.room, security.audit),
            Api.FIND_COORDINATOR: find_coordinator(self._peers, security.permissions),
            Api.DESCRIBE_CLUSTER: describe_cluster(self._peers),
            **self._groups.handlers(),
        }

    def _offsets_store(self) -> OffsetsStore | None:
        if self._settings.options.groups is GroupOffsets.MEMORY:
            return None
        location = self._stores.locations[0]
        return OffsetsStore(location.store, location.keys, lambda: time.time_ns() // 1_000_000)

    def _registry(self) -> CollectorRegistry:
        return make_registry(
            readings(
                is_serving=self._serves,
                server=self._server,
                requests=self._requests,
                archive=self._archive,
                feeds=self._feeds,
                reads=self._reads,
                groups=lambda: self._group_numbers,
                lost=lambda: self._lost,
                stores=self._stores,
                peers=self._peers,
                pulse=self._pulse,
            )
        )

    def _serves(self) -> bool:
        """Return whether clients are served; on any thread."""
        return self._is_serving and not self._peers.is_leaving

    def _health(self) -> Verdict:
        """Return the answer of `/healthz`; on a thread of the pages."""
        is_hung = self._pulse.age > _HUNG_SECONDS
        status = "ok" if self._is_serving else WAITING  # other processes do not count this one then
        status = "failing" if is_hung else STOPPING if self._peers.is_leaving else status
        facts = {**self._peers.health_fields(), "connections": self._server.connections, "loop_age": self._pulse.age}
        return Verdict(status, status in {"ok", WAITING}, facts)

    def _readiness(self) -> Verdict:
        """Return the answer of `/readyz`; on a thread of the pages."""
        is_ready = self._serves()
        facts = {
            **({} if self._waits_for is None else {"reason": self._waits_for}),
            "listening": self._is_serving,
            "partitions_in_memory": self._archive.used,
            "lost_partitions": self._lost,
            "peers": {each.address: _described(each) for each in self._peers.others()},
        }
        return Verdict("ready" if is_ready else WAITING, is_ready, facts)

    def _note_numbers(self) -> None:
        """Note the numbers that the thread of the pages reads."""
        self._group_numbers = self._groups.numbers()
        self._lost = self._archive.count_lost()

    def _peers_changed(self) -> None:
        self._groups.ownership_changed()

    def _other_width(self) -> str | None:
        """Return the message about another entropy width; None if no location has objects of the cluster."""
        name = self._stores.name
        found = (other_width(each.store, name.keys, name.option) for each in self._stores.locations)
        return next((message for message in found if message is not None), None)

    def _nothing(self) -> str:
        stores = [each.store for each in self._stores.locations]
        locations = ", ".join(store.location for store in stores)
        known = "; ".join(f"{store.location}: {known_clusters(store)}" for store in stores)
        return (
            f"no segment of cluster {self._stores.name.keys.cluster} is in {locations}; clients are served after the "
            f"first one. If agents ship already, check the location and the cluster: {known}"
        )


def _described(peer: PeerStatus) -> str:
    if not peer.is_up:
        return f"down: {peer.reason}"
    return "up, with another --peers or --cluster" if peer.differs else "up"


async def serve(settings: EndpointSettings, stop_on: Callable[[Callable[[], None]], None]) -> None:
    """Run a process of the endpoint.

    Args:
        stop_on: gets the function that begins the stop, which is called on the event loop.

    Raises:
        OperatorError, TransientError, CorruptData: the process cannot begin to serve.
    """
    stop = asyncio.Event()
    stop_on(stop.set)
    security = secured(settings)
    stores = await asyncio.to_thread(open_stores, settings.archive)
    await Endpoint(settings, stores, security).run(stop)
