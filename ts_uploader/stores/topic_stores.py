"""The stores of a cluster's topics, behind one rate of requests and one of bytes."""

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
from ts_common.store.wrappers.request_rate import Pace, PacedStore
from ts_uploader.findings import Finding, error, unanswered
from ts_uploader.progress import beat
from ts_uploader.stores.layout_check import settle_layout
from ts_uploader.stores.store_check import problems_of
from ts_uploader.stores.store_findings import deep_check

_Answer = TypeVar("_Answer")

_CREATE = "create it, or name another in storage.service.endpoint.url: the agent creates none"
COMMIT_THREADS = 2  # of the agent, which write beside its upload threads


class _BeatingPace(Pace):
    """Each request is a sign that its thread comes on."""

    def request(self, call: Callable[[], _Answer]) -> _Answer:
        beat()
        return super().request(call)


class Stores:
    """The stores of a cluster's topics, opened at first use and shared.

    Attributes:
        pace: the one rate of requests to all of them.
        allowance: the one rate of bytes to all of them.

    Args:
        endpoints: where each topic's objects go.
        config: time-outs and threads.
    """

    def __init__(self, endpoints: EndpointProvider, config: ClusterConfig) -> None:
        self._endpoints = endpoints
        self._config = config
        self._lock = threading.Lock()
        self._opened: dict[Endpoint, ObjectStore] = {}
        self.pace: Pace = _BeatingPace()
        self.allowance = Allowance(config.upload_max_bytes_per_second)

    def of(self, topic: str) -> ObjectStore:
        """The store that holds a topic's objects."""
        return self._open(self._endpoints.endpoint(topic))

    def check(self, keys: ClusterKeys) -> None:
        """Refuse to start where a store does not do as configured, or holds this cluster under another entropy width.

        The cluster's layout is written to each store that has none.

        Raises:
            ConfigurationError: all problems at once, refusals of the identity among them.
            AccessDenied, WrongClock: nothing but refusals of the identity or of this host's time, which may pass: all
                of them at once.
            StoreUnavailable: a store does not answer at this moment.
        """
        problems: list[str] = []
        refusals: list[AccessDenied | WrongClock] = []
        for endpoint in self._all():
            try:
                problems += self._problems(endpoint, keys)
            except (AccessDenied, WrongClock) as refused:
                refusals.append(type(refused)(_placed(endpoint, refused)))
        texts = list(dict.fromkeys(map(str, refusals)))
        if problems:
            raise ConfigurationError("the object store", list(dict.fromkeys(problems + texts)))
        if refusals:
            raise type(refusals[0])("; ".join(texts))
        # Behind all else: where one store is refused, no other gets a layout.
        others = [settle_layout(self._open(endpoint), keys) for endpoint in self._all()]
        if any(others):
            raise ConfigurationError("the object store", list(dict.fromkeys(other for other in others if other)))

    def reopen(self) -> None:
        """Close every store, so that the next use finds the credentials of then. No other thread may use one now."""
        with self._lock:
            self.close()
            self._opened.clear()

    def findings(self, keys: ClusterKeys) -> list[Finding]:
        """What `check` would refuse of each store, and all that is worth knowing of the others."""
        findings: list[Finding] = []
        for endpoint in self._all():
            try:
                problems = self._problems(endpoint, keys)
                findings += [error(endpoint.location, _without(endpoint, problem)) for problem in problems]
                if not problems:
                    findings += deep_check(self._open(endpoint), keys, endpoint)
            except WrongClock as refused:  # it passes only when somebody sets the clock
                findings.append(error(endpoint.location, _without(endpoint, str(refused))))
            except TransientError as away:
                findings.append(unanswered(endpoint.location, _without(endpoint, str(away))))
            except TieredStorageError as refused:
                findings.append(error(endpoint.location, _without(endpoint, str(refused))))
        return list(dict.fromkeys(findings))

    def _all(self) -> list[Endpoint]:
        return sorted(self._endpoints.endpoints(), key=repr)

    def _problems(self, endpoint: Endpoint, keys: ClusterKeys) -> list[str]:
        """What has to be mended before anything is shipped to an endpoint.

        Raises:
            StoreUnavailable, AccessDenied: no matter of configuration alone: it may answer, or admit the agent, later.
        """

        def open_with(options: StorageOptions) -> ObjectStore:
            return self._new(Endpoint(endpoint.location, options))

        try:
            conditional = self._config.conditional_writes
            return problems_of(self._open(endpoint), keys, endpoint, open_with, conditional=conditional)
        except (TransientError, AccessDenied):
            raise
        except ConfigurationError as refused:
            return list(refused.problems)
        except TieredStorageError as refused:
            return [_placed(endpoint, refused)]

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
        return PacedStore(store, self.pace, threads=threads)


def _placed(endpoint: Endpoint, refused: TieredStorageError) -> str:
    """An error with the place that it is of, and with what an agent's operator does about it."""
    way = f"; {_CREATE}" if isinstance(refused, BucketMissing) else ""
    return f"{refused}{way}" if endpoint.location in str(refused) else f"{endpoint.location}: {refused}{way}"


def _without(endpoint: Endpoint, text: str) -> str:
    """A problem without the place that a finding names already."""
    return text.removeprefix(f"{endpoint.location}: ")
