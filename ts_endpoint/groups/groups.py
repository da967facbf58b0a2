"""The room's entry: all groups of one process, as handlers of requests."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Handlers, Permissions
from ts_endpoint.groups.admin_handlers import AdminHandlers
from ts_endpoint.groups.coordinator import Coordinator
from ts_endpoint.groups.gate import Gate, Lacking, lacking_none
from ts_endpoint.groups.group import GroupState
from ts_endpoint.groups.keeper import Keeper, NotReadable
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.membership_handlers import MembershipHandlers
from ts_endpoint.groups.offset_handlers import OffsetHandlers
from ts_endpoint.groups.offsets_store import OffsetsStore

log = structlog.get_logger("ts_endpoint")

_IDLE: Final = 600.0  # seconds: offsets that were not used for this long are read from the store again
_LAST_PAUSES: Final = (0.0, 0.5, 1.5)  # seconds before each attempt to write offsets at a stop
_STANDARD: Final = GroupLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNumbers:
    """Numbers for metrics.

    Attributes:
        groups: number of groups in memory in each state, by the names of Kafka's tools.
        rebalances: generations that began with a member, since the start.
        commits: offsets that were committed, since the start.
        offset_bytes: about how many bytes of memory committed offsets need.
        offset_limit_bytes: limit of these bytes.
        unwritten_groups: groups with commits that the store does not have.
        flush_failures: writes of a group that failed, since the start.
        read_failures: reads of a group, or lists of groups, that failed, since the start.
        seconds_since_flush: seconds since the store had everything that was committed before.
    """

    groups: Mapping[str, int]
    members: int
    rebalances: int
    commits: int
    offset_bytes: int
    offset_limit_bytes: int
    unwritten_groups: int
    flush_failures: int
    read_failures: int
    seconds_since_flush: float


class Groups:
    """Classic consumer groups and their committed offsets. Create it on the running event loop.

    Args:
        offsets: store of committed offsets; None keeps them in memory only.
        owns: returns whether this process is the coordinator of a group. Call `ownership_changed` when its answers
            change.
        lacking: returns the partitions that the archive does not have.
        clock: returns milliseconds since the epoch.
    """

    def __init__(
        self,
        offsets: OffsetsStore | None,
        permissions: Permissions,
        owns: Callable[[str], bool] = lambda _: True,
        *,
        lacking: Lacking = lacking_none,
        limits: GroupLimits = _STANDARD,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._owns = owns
        self._limits = limits
        self._clock = clock
        self._gate = Gate(permissions, owns, lacking, self._lose)
        self._coordinator = Coordinator(self._loop, limits)
        self._keeper = Keeper(self._loop, offsets, limits, clock)
        self._flush_now: asyncio.Task[None] | None = None
        self._flush_again = False
        self._membership = MembershipHandlers(self._loop, self._gate, self._coordinator)
        self._offsets = OffsetHandlers(self._loop, self._gate, self._coordinator, self._keeper, limits)
        self._admin = AdminHandlers(self._loop, self._gate, self._coordinator, self._keeper, limits, self._flush_soon)
        self._housekeeping = self._loop.create_task(self._keep_house())

    def handlers(self) -> Handlers:
        """Return the handlers of all requests of groups but FindCoordinator."""
        return {**self._membership.handlers(), **self._offsets.handlers(), **self._admin.handlers()}

    def numbers(self) -> GroupNumbers:
        """Return numbers for metrics."""
        states = Counter({str(state): 0 for state in GroupState if state is not GroupState.DEAD})
        states.update({str(state): number for state, number in self._coordinator.states().items()})
        states[GroupState.EMPTY] += sum(self._coordinator.get(name) is None for name in self._keeper.names())
        return GroupNumbers(
            groups=states,
            members=self._coordinator.members(),
            rebalances=self._coordinator.rebalances,
            commits=self._keeper.commits,
            offset_bytes=self._keeper.bytes,
            offset_limit_bytes=self._limits.offset_bytes,
            unwritten_groups=self._keeper.unwritten,
            flush_failures=self._keeper.flush_failures,
            read_failures=self._keeper.read_failures,
            seconds_since_flush=self._keeper.seconds_since_flush,
        )

    def ownership_changed(self) -> None:
        """End the groups that this process owns no longer, and write their offsets.

        Members get NOT_COORDINATOR, and find the new coordinator.
        """
        for name in {*self._coordinator.names(), *self._keeper.names()}:
            if not self._owns(name):
                self._lose(name)

    async def flush(self) -> None:
        """Write all offsets that the store does not have; a failure is logged and counted, not raised."""
        await self._keeper.flush()

    async def close(self) -> None:
        """End all groups and write their offsets. Members get COORDINATOR_NOT_AVAILABLE, and look for another one."""
        if self._gate.is_closed:
            return
        self._gate.is_closed = True
        self._housekeeping.cancel()
        await asyncio.wait({self._housekeeping})
        for name in self._coordinator.names():
            self._coordinator.remove(name, ErrorCode.coordinator_not_available)
        if self._flush_now is not None:
            await asyncio.wait({self._flush_now})
        for pause in _LAST_PAUSES:
            await asyncio.sleep(pause)
            await self._keeper.flush()
            if not self._keeper.unwritten:
                break
        else:
            log.error("group_offsets_lost", groups=self._keeper.unwritten)
        await self._keeper.close()

    def _lose(self, name: str) -> None:
        self._coordinator.remove(name, ErrorCode.not_coordinator)
        if self._keeper.release(name):
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Flush without waiting; however many groups request it meanwhile, one more flush follows."""
        if self._flush_now is not None:
            self._flush_again = True
            return
        self._flush_again = False
        self._flush_now = self._loop.create_task(self._keeper.flush())
        self._flush_now.add_done_callback(self._flush_ended)

    def _flush_ended(self, _: asyncio.Task[None]) -> None:
        self._flush_now = None
        if self._flush_again and not self._gate.is_closed:
            self._flush_soon()

    async def _keep_house(self) -> None:
        next_expiry = self._loop.time() + self._limits.expiry
        while True:
            await asyncio.sleep(self._limits.flush)
            try:
                self.ownership_changed()
                await self._keeper.flush()
                if self._loop.time() >= next_expiry:
                    next_expiry = self._loop.time() + self._limits.expiry
                    self._coordinator.forget_empty(self._limits.expiry)
                    await self._expire()
                self._keeper.forget(_IDLE, lambda name: self._coordinator.get(name) is not None)
            except Exception:
                log.exception("groups_housekeeping_failed")  # the next round tries again

    async def _expire(self) -> None:
        """Delete the offsets of groups without members whose last commit is old."""
        oldest = self._clock() - int(self._limits.retention * 1000)
        try:
            stored = await self._keeper.list_stored()
        except NotReadable:
            return
        names = {name for name, modified in stored if modified * 1000 < oldest}
        for name in sorted(names.union(self._keeper.names())):
            if self._coordinator.get(name) is not None or not self._owns(name):
                continue
            try:
                offsets = await self._keeper.read(name, self._loop.time() + self._limits.load)
            except NotReadable:
                continue
            # A member can have joined during the read.
            if offsets.offsets and offsets.last_commit < oldest and self._coordinator.get(name) is None:
                log.info("group_expired", group=name, last_commit=offsets.last_commit)
                self._keeper.delete(name)
        await self._keeper.flush()
