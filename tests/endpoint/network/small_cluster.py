"""A server with the handlers of one broker and one topic, as far as the clients of tests need them."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kio.schema.types import BrokerId

from ts_endpoint.contract import Handler, Session
from ts_endpoint.network.server import Server
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

LOOPBACK = "127.0.0.1"
TOPIC = "orders"
T = TypeVar("T")


class SmallCluster:
    """The handlers, and the server once it listens."""

    def __init__(self) -> None:
        self.handlers: dict[Api, Handler] = {Api.METADATA: self._metadata}
        self.server: Server | None = None
        self.users: list[str | None] = []

    @property
    def bootstrap(self) -> str:
        assert self.server is not None
        host, port = self.server.address
        return f"{host}:{port}"

    async def _metadata(self, request: Request, session: Session) -> Values:
        self.users.append(session.user)
        assert self.server is not None
        host, port = self.server.address
        partition = {"partition_index": 0, "leader_id": BrokerId(0), "replica_nodes": [BrokerId(0)]}
        topic = {"name": TOPIC, "topic_id": uuid.uuid5(uuid.NAMESPACE_URL, TOPIC), "partitions": [partition]}
        return {
            "brokers": [{"node_id": BrokerId(0), "host": host, "port": port}],
            "controller_id": BrokerId(0),
            "topics": [topic],
        }


def advance(seconds: float) -> None:
    """Advance the time of the running event loop, so that its timers and deadlines are due earlier."""
    loop = asyncio.get_running_loop()
    former = loop.time
    loop.time = lambda: former() + seconds  # type: ignore[method-assign]


def serve(cluster: SmallCluster, client: Callable[[], Awaitable[T]], **options: Any) -> T:
    """Return the result of a client, which runs while the cluster is served."""

    async def run() -> T:
        cluster.server = Server(cluster.handlers, host=LOOPBACK, port=0, **options)
        await cluster.server.start()
        try:
            return await client()
        finally:
            await cluster.server.close(5)

    return asyncio.run(run())
