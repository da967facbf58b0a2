r"""A proxy in front of the S3 server that injects the faults of a test's script.

    with S3FaultProxy(cluster.s3) as proxy:
        lost = SwallowAnswer()
        proxy.script(Rule(lost, methods={"PUT"}, target=r"\.log$"))
        agent = AgentProcess(..., environment=proxy.environment())
        wait_for(lambda: lost.fired == 1, "an answer to be lost")
        proxy.wait_for_request(lambda r: r.method == "PUT" and r.status == 412)

S3FaultProxy
    endpoint, environment(identity)   as of an S3Server. Clients sign the proxy's host; the Host header is forwarded
                                      unchanged, so the server accepts the signature
    script(rule, ...)                 see `dev.local.proxy.rules` and `dev.local.proxy.actions`
    throttle(rate, burst)             a storm of 503 SlowDown
    before(hook), after(hook)         called with each Request before it is forwarded, and before its response is
                                      relayed; the exchange waits for them, so a hook may kill the client
    clear()                           removes rules, throttle and hooks
    requests()                        a snapshot of all
    wait_for_request(predicate)       the first match
    close()                           ends all connections, and raises the exception of a hook

One thread accepts connections, and one serves each of them, at most 256.
"""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from dev.local.ports import LOOPBACK, listen
from dev.local.proxy.actions import Answer
from dev.local.proxy.exchange import DropRequest, Exchange, Hook, Surroundings
from dev.local.proxy.journal import Request
from dev.local.proxy.rules import Rule, Script
from dev.local.proxy.wire import Peer, PeerGoneError
from dev.local.stores.s3 import Identity, S3Server
from dev.local.waiting import wait_for

__all__ = ["DropRequest", "Request", "Rule", "S3FaultProxy"]

_CONNECTIONS = 256


class S3FaultProxy:
    """HTTP/1.1 on a free loopback port, open from its construction to `close()`.

    Args:
        s3: the server; it may be stopped, killed and restarted. While it is down, clients are reset.
    """

    def __init__(self, s3: S3Server) -> None:
        self._s3 = s3
        self._script = Script()
        self._around = Surroundings((LOOPBACK, s3.port))
        self._listener = listen(_CONNECTIONS)
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"
        self._threads = ThreadPoolExecutor(_CONNECTIONS + 1, thread_name_prefix=f"s3-proxy-{self.port}")
        self._served: list[Future[None]] = []  # owned by the accepting thread until it ends
        self._accepting = self._threads.submit(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def environment(self, identity: Identity | None = None) -> dict[str, str]:
        """Return environment variables that make any AWS client use this proxy."""
        ours = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ENDPOINT_URL_S3": self.endpoint}
        return {**self._s3.environment(identity), **ours}

    def script(self, *rules: Rule) -> None:
        """Add rules after the existing ones; see `dev.local.proxy.rules`."""
        self._script.add(*rules)

    def throttle(self, requests_per_second: float, burst: int = 1) -> Answer:
        """Answer 503 SlowDown above a rate, before any rule applies; until `clear()` or another throttle.

        Args:
            requests_per_second: the rate; 0 rejects every request beyond the burst.
            burst: number of requests that may arrive at once; below 1 none passes.

        Returns:
            The action, whose `fired` counts the rejections.
        """
        return self._script.throttle(requests_per_second, burst, time.monotonic())

    def before(self, hook: Hook) -> None:
        """Call a hook with each request before it is forwarded, in the thread of its connection.

        A hook that kills the client must also raise DropRequest: the sockets' buffers contain all of a small request,
        which would still reach the server. Any other exception resets the connection, and `close()` raises it.
        """
        self._around.before.append(hook)

    def after(self, hook: Hook) -> None:
        """Call a hook with each request after the server's response, before it is relayed; else as `before`."""
        self._around.after.append(hook)

    def clear(self) -> None:
        """Pass all later requests. Held requests stay held, and the journal is kept."""
        self._script.clear()
        self._around.before.clear()
        self._around.after.clear()

    def requests(self) -> list[Request]:
        """Return all requests so far, in order of arrival."""
        return self._around.journal.snapshot()

    def wait_for_request(
        self, predicate: Callable[[Request], bool], what: str = "a matching request", seconds: float = 30.0
    ) -> Request:
        """Wait for a request that fulfills `predicate`, and return the first one.

        Raises:
            WaitTimedOutError: no request does within `seconds`; the message has the last ten requests.
        """
        found = wait_for(
            lambda: [request for request in self.requests() if predicate(request)],
            what,
            seconds,
            state=lambda: self.requests()[-10:],
        )
        return found[0]

    def close(self) -> None:
        """End all connections and drop held requests; repeated calls have no effect.

        Raises:
            Exception: the first exception of a hook.
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
            pass  # a client may disconnect between two requests
        finally:
            self._around.peers.discard(client)
            client.reset()
