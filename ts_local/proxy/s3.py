r"""A proxy before the S3 server that does to requests what a test scripts.

    with S3FaultProxy(cluster.s3) as proxy:
        lost = SwallowAnswer()
        proxy.script(Rule(lost, methods={"PUT"}, target=r"\.log$"))
        agent = AgentProcess(..., environment=proxy.environment())
        wait_for(lambda: lost.fired == 1, "an answer to be lost")
        proxy.wait_for_request(lambda r: r.method == "PUT" and r.status == 412)

S3FaultProxy
    endpoint, environment(identity)   as an S3Server's; its clients sign the proxy's host, and the Host header goes on
                                      unchanged, by which the server checks the signature
    script(rule, ...)                 see `ts_local.proxy.rules` and `ts_local.proxy.actions`
    throttle(rate, burst)             a storm of 503 SlowDown
    before(hook), after(hook)         called with each Request before it is forwarded, and between the server's answer
                                      and the client's; everything waits for them, so a hook may kill the client
    clear()                           no rules, no throttle, no hooks
    requests()                        a snapshot of all
    wait_for_request(predicate)       the first that fits
    close()                           ends all connections, and raises what a hook raised

A thread waits on the listening socket, and one on each client's connection, at most 256.
"""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from ts_local.ports import LOOPBACK, listen
from ts_local.proxy.actions import Answer
from ts_local.proxy.exchange import DropRequest, Exchange, Hook, Surroundings
from ts_local.proxy.journal import Request
from ts_local.proxy.rules import Rule, Script
from ts_local.proxy.wire import Peer, PeerGoneError
from ts_local.s3 import Identity, S3Server
from ts_local.waiting import wait_for

__all__ = ["DropRequest", "Request", "Rule", "S3FaultProxy"]

_CONNECTIONS = 256


class S3FaultProxy:
    """HTTP/1.1 on a free loopback port, open from its construction to `close()`.

    Args:
        s3: the server; it may be stopped, killed and restarted meanwhile. While it is down, clients are reset.
    """

    def __init__(self, s3: S3Server) -> None:
        self._s3 = s3
        self._script = Script()
        self._around = Surroundings((LOOPBACK, s3.port))
        self._listener = listen(_CONNECTIONS)
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"
        self._threads = ThreadPoolExecutor(_CONNECTIONS + 1, thread_name_prefix=f"s3-proxy-{self.port}")
        self._served: list[Future[None]] = []  # owned by the accepting thread, until it has ended
        self._accepting = self._threads.submit(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def environment(self, identity: Identity | None = None) -> dict[str, str]:
        """What makes any AWS client use this proxy, as environment variables."""
        ours = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ENDPOINT_URL_S3": self.endpoint}
        return {**self._s3.environment(identity), **ours}

    def script(self, *rules: Rule) -> None:
        """Ask these rules after those that are there; see `ts_local.proxy.rules`."""
        self._script.add(*rules)

    def throttle(self, requests_per_second: float, burst: int = 1) -> Answer:
        """Answer 503 SlowDown to what comes faster, before any rule is asked; until `clear()` or another throttle.

        Args:
            requests_per_second: the rate; 0 refuses everything beyond the burst.
            burst: how many may come at once; below 1 nothing passes.

        Returns:
            The answer: its `fired` counts the refusals.
        """
        return self._script.throttle(requests_per_second, burst, time.monotonic())

    def before(self, hook: Hook) -> None:
        """Call this with each request that is about to be forwarded, in its connection's thread.

        A hook that kills the client raises DropRequest, too: a small request lies whole in the sockets' buffers by then
        and would land all the same. What else it raises resets the connection and comes out of `close()`.
        """
        self._around.before.append(hook)

    def after(self, hook: Hook) -> None:
        """Call this with each request that the server has answered, before the client is answered; as `before`."""
        self._around.after.append(hook)

    def clear(self) -> None:
        """Pass on every request to come. What is held stays held; the record stays."""
        self._script.clear()
        self._around.before.clear()
        self._around.after.clear()

    def requests(self) -> list[Request]:
        """Every request so far, in the order in which they came."""
        return self._around.journal.snapshot()

    def wait_for_request(
        self, predicate: Callable[[Request], bool], what: str = "a request that fits", seconds: float = 30.0
    ) -> Request:
        """The first request of which `predicate` is true, now or once it comes.

        Raises:
            WaitTimedOutError: none within `seconds`; the last ten requests are in the message.
        """
        found = wait_for(
            lambda: [request for request in self.requests() if predicate(request)],
            what,
            seconds,
            state=lambda: self.requests()[-10:],
        )
        return found[0]

    def close(self) -> None:
        """End all connections; requests that are held are given up. Nothing where it was called before.

        Raises:
            Exception: what a hook raised, the first of several.
        """
        if self._around.closing.is_set():
            return
        self._around.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.result()
        self._listener.close()
        for peer in list(self._around.peers):
            peer.interrupt()
        self._threads.shutdown()
        for served in self._served:
            served.result()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._around.closing.is_set():
                    return
                raise
            client = Peer(connection, "client")
            self._around.peers.add(client)
            self._served = [one for one in self._served if not one.done() or one.exception() is not None]
            self._served.append(self._threads.submit(self._serve, client))

    def _serve(self, client: Peer) -> None:
        try:
            while not client.closed and not self._around.closing.is_set():
                head = client.read_head()
                if head is None:
                    return
                exchange = Exchange(head, client, self._around)
                action = self._script.action_for(exchange.request, time.monotonic())
                exchange.run(action.perform)
        except PeerGoneError:
            pass  # between two requests a client may leave as it likes
        finally:
            self._around.peers.discard(client)
            client.reset()
