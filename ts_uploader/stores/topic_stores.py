"""The stores of a cluster's topics, with one rate of requests and one of bytes for all."""

import threading
from collections.abc import Callable
from typing import TypeVar

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import ClusterConfig
from ts_common.endpoints.provider import EndpointProvider
from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ConfigurationError,
    TieredStorageError,
    TransientError,
    WrongClock,
)
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.store.wrappers.bandwidth import Allowance
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_common.store.wrappers.deletable import DeletesBelow
from ts_common.store.wrappers.request_rate import Pace, PacedStore
from ts_uploader.findings import Finding, error, unanswered
from ts_uploader.health.store_health import StoreHealth, WatchedCounts
from ts_uploader.process.progress import beat
from ts_uploader.stores.layout_check import settle_layout
from ts_uploader.stores.store_check import problems_of
from ts_uploader.stores.store_findings import deep_check

_Answer = TypeVar("_Answer")

_CREATE = "create it, or name another in storage.service.endpoint.url: the agent creates none"
COMMIT_THREADS = 2  # of the agent, which write in addition to its upload threads


class _BeatingPace(Pace):
    """A gate that records the progress of a thread with each request."""

    def request(self, call: Callable[[], _Answer]) -> _Answer:
        beat()
        return super().request(call)


class Stores:
    """The stores of a cluster's topics, opened at first use and shared.

    Attributes:
        pace: the one rate of requests to all of them.
        allowance: the one rate of bytes to all of them.
        counts: the numbers of requests to all of them.
        health: which requests fail.

    Args:
        endpoints: the endpoint of each topic.
        config: timeouts and threads.
        deletes_below: the one prefix of keys that are deleted; None for no limit.
    """

    def __init__(self, endpoints: EndpointProvider, config: ClusterConfig, *, deletes_below: str | None = None) -> None:
        self._endpoints = endpoints
        self._config = config
        self._deletes_below = deletes_below
        self._lock = threading.Lock()
        self._opened: dict[Endpoint, ObjectStore] = {}
        self.pace: Pace = _BeatingPace()
        self.allowance = Allowance(config.upload_max_bytes_per_second)
        self.counts = StoreCounts()
        self.health = StoreHealth()

    def of(self, topic: str) -> ObjectStore:
        """Return the store of a topic's objects."""
        return self._open(self._endpoints.endpoint(topic))

    def each(self) -> list[ObjectStore]:
        """Return a store of each location: two configurations of one location share its objects."""
        return list({endpoint.location: self._open(endpoint) for endpoint in self._all()}.values())

    def check(self, keys: ClusterKeys) -> None:
        """Check each store's configuration and entropy width, and write the cluster's layout if it has none.

        Raises:
            ConfigurationError: all problems at once, denied access included.
            AccessDenied, WrongClock: the only problems are denied access or this host's clock, which may be temporary;
                all of them at once.
            StoreUnavailable: a store does not respond at this moment.
        """
        problems: list[str] = []
        denials: list[AccessDenied | WrongClock] = []
        for endpoint in self._all():
            try:
                problems += self._problems(endpoint, keys)
            except (AccessDenied, WrongClock) as denied:
                denials.append(type(denied)(_placed(endpoint, denied)))
        texts = list(dict.fromkeys(map(str, denials)))
        if problems:
            raise ConfigurationError("the object store", list(dict.fromkeys(problems + texts)))
        if denials:
            raise type(denials[0])("; ".join(texts))
        # Last, so that no store receives a layout if another store has a problem.
        others = [settle_layout(self._open(endpoint), keys) for endpoint in self._all()]
        if any(others):
            raise ConfigurationError("the object store", list(dict.fromkeys(other for other in others if other)))

    def reopen(self) -> None:
        """Close every store, so that the next use reads new credentials. No other thread may use a store now."""
        with self._lock:
            self.close()
            self._opened.clear()

    def findings(self, keys: ClusterKeys) -> list[Finding]:
        """Return the problems that `check` raises for each store, and more findings on the others."""
        findings: list[Finding] = []
        for endpoint in self._all():
            try:
                problems = self._problems(endpoint, keys)
                findings += [error(endpoint.location, _without(endpoint, problem)) for problem in problems]
                if not problems:
                    has_tail = bool(self._config.tail_interval_ms)
                    findings += deep_check(self._open(endpoint), keys, endpoint, has_tail=has_tail)
            except WrongClock as failure:  # an error, because the operator must set the clock
                findings.append(error(endpoint.location, _without(endpoint, str(failure))))
            except TransientError as failure:
                findings.append(unanswered(endpoint.location, _without(endpoint, str(failure))))
            except TieredStorageError as failure:
                findings.append(error(endpoint.location, _without(endpoint, str(failure))))
        return list(dict.fromkeys(findings))

    def _all(self) -> list[Endpoint]:
        return sorted(self._endpoints.endpoints(), key=repr)

    def _problems(self, endpoint: Endpoint, keys: ClusterKeys) -> list[str]:
        """Return the problems that prevent shipping to an endpoint.

        Raises:
            StoreUnavailable, AccessDenied: the store may respond, or allow access, later.
        """

        def open_with(options: StorageOptions) -> ObjectStore:
            return self._new(Endpoint(endpoint.location, options))

        try:
            conditional = self._config.conditional_writes
            return problems_of(self._open(endpoint), keys, endpoint, open_with, conditional=conditional)
        except (TransientError, AccessDenied):
            raise
        except ConfigurationError as failure:
            return list(failure.problems)
        except TieredStorageError as failure:
            return [_placed(endpoint, failure)]

    def close(self) -> None:
        """Close every store."""
        for store in self._opened.values():
            store.close()

    def _open(self, endpoint: Endpoint) -> ObjectStore:
        with self._lock:
            if endpoint not in self._opened:
                self._opened[endpoint] = self._new(endpoint)
            return self._opened[endpoint]

    def _new(self, endpoint: Endpoint) -> ObjectStore:
        threads = self._config.upload_threads + COMMIT_THREADS
        store = open_store(
            endpoint.location,
            endpoint.options,
            timeout_seconds=self._config.upload_timeout_seconds,
            threads=threads,
            conditional_writes=self._config.conditional_writes,
            allowance=self.allowance,
        )
        # Inside the gate: a request that the gate repeats is sent, and counts, again.
        counts = WatchedCounts(self.counts, self.health, store.location)
        paced = PacedStore(CountedStore(store, counts), self.pace, threads=threads)
        return paced if self._deletes_below is None else DeletesBelow(paced, self._deletes_below, threads=threads)


def _placed(endpoint: Endpoint, failure: TieredStorageError) -> str:
    """Return an error's text with its endpoint, and with what the operator must do."""
    way = f"; {_CREATE}" if isinstance(failure, BucketMissing) else ""
    return f"{failure}{way}" if endpoint.location in str(failure) else f"{endpoint.location}: {failure}{way}"


def _without(endpoint: Endpoint, text: str) -> str:
    """Return a problem without the location, which its finding has."""
    return text.removeprefix(f"{endpoint.location}: ")
