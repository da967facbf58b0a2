"""The processes of one cluster: which are up, and which of them a partition or a group belongs to.

Each process decides alone, from the same list and from its own checks of `/healthz`:

- A partition, and a group, belongs to one process by rendezvous hash of addresses; to the next while that one is down.
  If a process leaves, only its keys move, and they spread over all others. If it returns, the same keys return
  (D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", 1998).
- A process is down after three failed checks in a row. One late answer moves nothing: a move costs a cache and
  rebalances groups. A process that ends by a signal answers `stopping` and is down at once.
- A process is up after one answer. Until all have noticed, two processes claim a partition, so the sooner the better.
- At the start all are up. Otherwise a process that starts would claim partitions and groups that others serve.

A process that claims a partition which another one serves too is no danger: both read the same archive. Clients of a
process that does not own a partition get NOT_LEADER_OR_FOLLOWER and request Metadata again.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from ts_endpoint.peers.addresses import Peer, digest_of
from ts_endpoint.peers.health import HealthClient, HealthUnknown

log = structlog.get_logger()

T = TypeVar("T")

CHECK_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 1.0
FAILURES: Final = 3  # in a row, until a process is down
STOPPING: Final = "stopping"  # the status of a process that ends


@dataclass(slots=True)
class _State:
    """The state of another process, as this one sees it; only the event loop changes it."""

    peer: Peer
    failures: int = 0
    is_up: bool = True
    reason: str = ""
    differs: bool = False


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Another process, for pages and metrics.

    Attributes:
        address: `host:port`, as clients connect to it.
        is_up: whether partitions and groups may belong to it.
        reason: of the last failed check; empty after an answer.
        differs: whether it has another list of peers, or another cluster.
    """

    address: str
    is_up: bool
    reason: str
    differs: bool


class Peers:
    """The processes of a cluster, seen by one of them.

    Every method but `start`, `leave` and `close` may be called on any thread.

    Args:
        listed: all processes in order; only this one for a cluster of one process.
        own: this process, one of them.
        on_change: called on the event loop when the set of living processes changes.
        check_seconds: between two checks of a process.
    """

    def __init__(
        self,
        cluster: str,
        listed: Sequence[Peer],
        own: Peer,
        on_change: Callable[[], None] | None = None,
        *,
        check_seconds: float = CHECK_SECONDS,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.cluster = cluster
        self.own = own
        self.self_id = own.node_id
        self.digest = digest_of(cluster, listed)
        self.is_leaving = False
        self._on_change = on_change
        self._check_seconds = check_seconds
        self._deadline_seconds = deadline_seconds
        self._seeds = {peer: seed_of(str(peer.address)) for peer in listed}
        self._others = [_State(peer) for peer in listed if peer != own]
        self._listed = tuple(listed)
        self._living = self._listed
        self._candidates = self._candidates_now()
        self._checks: asyncio.Task[None] | None = None

    def brokers(self) -> list[tuple[int, str, int]]:
        """Return node id, host and port of each living process, and always of this one."""
        return [(peer.node_id, peer.address.host, peer.address.port) for peer in self._living]

    def controller(self) -> int:
        """Return the node id that Metadata names as controller: the lowest of a living process."""
        return min(peer.node_id for peer in self._living)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of the process that serves a partition.

        Args:
            topic: its name as clients use it.
        """
        return self._owner(f"partition {topic}-{partition}").node_id

    def coordinator_of(self, group: str) -> int:
        """Return the node id of the process that coordinates a group."""
        return self._owner(f"group {group}").node_id

    def broker(self, node_id: int) -> tuple[int, str, int]:
        """Return node id, host and port of a listed process.

        Args:
            node_id: one that a method of this class returned.
        """
        peer = self._listed[node_id]
        return peer.node_id, peer.address.host, peer.address.port

    def owns_group(self, group: str) -> bool:
        """Return whether this process coordinates a group."""
        return self.coordinator_of(group) == self.self_id

    def others(self) -> list[PeerStatus]:
        """Return the state of each other process, in the order of the list."""
        return [PeerStatus(str(each.peer.address), each.is_up, each.reason, each.differs) for each in self._others]

    def health_fields(self) -> Mapping[str, str]:
        """Return what the own health answer must contain, for the checks of the others."""
        return {"address": str(self.own.address), "peers": self.digest}

    def start(self) -> None:
        """Start to check the other processes; needs a running event loop."""
        if self._others:
            self._checks = asyncio.get_running_loop().create_task(self._check_until_closed(), name="peer-checks")

    def leave(self) -> float:
        """Own nothing any more while another process is up; for a graceful stop.

        Returns:
            seconds until all others have noticed, if this process answers `STOPPING` meanwhile.
        """
        self.is_leaving = True
        self._changed()
        return self._check_seconds + self._deadline_seconds if len(self._living) > 1 else 0.0

    async def close(self) -> None:
        """Stop the checks; a second call does nothing."""
        checks, self._checks = self._checks, None
        if checks is not None:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)

    def _owner(self, key: str) -> Peer:
        candidates = self._candidates
        return candidates[0][1] if len(candidates) == 1 else owner(key, candidates)

    def _candidates_now(self) -> list[tuple[bytes, Peer]]:
        remaining = [peer for peer in self._living if peer != self.own or not self.is_leaving]
        return [(self._seeds[peer], peer) for peer in remaining or [self.own]]

    async def _check_until_closed(self) -> None:
        client = HealthClient(self._deadline_seconds)
        loop = asyncio.get_running_loop()
        try:
            while True:
                begun = loop.time()
                answers = await asyncio.gather(*(self._check(client, state) for state in self._others))
                if any(answers):
                    self._changed()
                await asyncio.sleep(max(0.0, begun + self._check_seconds - loop.time()))
        finally:
            client.close()

    async def _check(self, client: HealthClient, state: _State) -> bool:
        """Check a process, and return whether it is now up or down and was not before."""
        try:
            answer = await client.ask(state.peer.health)
            problem = _problem(state.peer, answer)
        except HealthUnknown as error:
            answer, problem = {}, str(error)
        if not problem:
            self._compare(state, answer)
        is_stopping = answer.get("status") == STOPPING
        state.reason = problem
        state.failures = state.failures + 1 if problem else 0
        was_up = state.is_up
        state.is_up = not problem or (was_up and not is_stopping and state.failures < FAILURES)
        if was_up and not state.is_up:
            log.warning("peer_down", peer=str(state.peer.address), reason=problem)
        elif state.is_up and not was_up:
            log.info("peer_up", peer=str(state.peer.address))
        return state.is_up != was_up

    def _compare(self, state: _State, answer: Mapping[str, str]) -> None:
        """Log once if the other process has another list."""
        differs = answer.get("peers") != self.digest
        if differs and not state.differs:
            log.warning("peers_differ", peer=str(state.peer.address), own=self.digest, other=answer.get("peers"))
        elif state.differs and not differs:
            log.info("peers_agree", peer=str(state.peer.address))
        state.differs = differs

    def _changed(self) -> None:
        down = {state.peer for state in self._others if not state.is_up}
        self._living = tuple(peer for peer in self._listed if peer not in down)
        self._candidates = self._candidates_now()
        if self._on_change is not None:
            self._on_change()


def _problem(peer: Peer, answer: Mapping[str, str]) -> str:
    """Return why the process that answered does not count as up; empty if it does."""
    if answer.get("address") != str(peer.address):
        return f"{peer.health} answers for {answer.get('address')}, not for {peer.address}"
    status = answer.get("status")
    return "" if status == "ok" else f"its status is {status}"


def seed_of(candidate: str) -> bytes:
    """Return what `owner` mixes into the hash for a candidate.

    Args:
        candidate: a name that is the same in all processes.
    """
    return hashlib.blake2b(candidate.encode(), digest_size=32).digest()


def owner(key: str, candidates: Sequence[tuple[bytes, T]]) -> T:
    """Return the candidate that owns a key.

    Args:
        candidates: seed and value of each; at least one.
    """
    encoded = key.encode()
    return max(candidates, key=lambda each: hashlib.blake2b(encoded, digest_size=8, key=each[0]).digest())[1]
