"""Members join, leave, die, sync and commit in any order, and processes end."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from tests.endpoint.groups.client import Client, clock, directory_store, offsets_store
from tests.endpoint.groups.virtual_time import VirtualLoop
from tests.matrix import examples
from ts_endpoint.contract import EveryonePermitted
from ts_endpoint.groups.groups import Groups

members = st.integers(0, 4)
SESSION, REBALANCE = 10, 20


class Consumer:
    """A client that does what a Kafka consumer does after each reply.

    Attributes:
        member_id: empty until the coordinator gave it one.
        joined: the JoinGroup reply of its generation.
        generation: the life of the group, and its generation.
        assignment: what it got in this generation.
        request: what waits for a reply.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = f"i{number}" if number == 4 else None
        self.member_id = ""
        self.joined: Any = None
        self.generation = (0, 0)
        self.assignment: bytes | None = None
        self.request: asyncio.Task[Any] | None = None

    def forget(self) -> None:
        """Restart, as another process of the same consumer."""
        if self.request is not None:
            self.request.cancel()
        self.__init__(self.number)  # type: ignore[misc]


class AnyOrder(RuleBasedStateMachine):
    """Five consumers of one group, and one process after another with one store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.directory = tempfile.TemporaryDirectory()
        self.store = directory_store(Path(self.directory.name))
        self.consumers = [Consumer(number) for number in range(5)]
        self.committed: dict[str, int] = {}
        # By life of the group and generation: its leaders, and what they assigned. A restart or a deletion ends a life.
        self.life = 0
        self.leaders: dict[tuple[int, int], set[str]] = {}
        self.assigned: dict[tuple[int, int], dict[str, bytes]] = {}
        self.run(self.start())

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def start(self) -> None:
        self.life += 1
        self.groups = Groups(offsets_store(self.store), EveryonePermitted(), clock=clock)
        self.client = Client(self.groups)

    def teardown(self) -> None:
        self.run(self.end())
        self.loop.close()
        self.store.close()
        self.directory.cleanup()

    async def end(self) -> None:
        await self.groups.close()
        for consumer in self.consumers:
            if consumer.request is not None:
                consumer.request.cancel()
        await asyncio.sleep(0)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    async def wait(self, seconds: float) -> None:
        """Let time pass; consumers handle the replies that have arrived."""
        await asyncio.sleep(seconds)
        for consumer in self.consumers:
            if consumer.request is not None and consumer.request.done():
                reply, consumer.request = consumer.request.result(), None
                if hasattr(reply, "generation_id"):
                    self.has_joined(consumer, reply)
                else:
                    self.has_synced(consumer, reply)

    def has_joined(self, consumer: Consumer, reply: Any) -> None:
        if reply.error_code is not ErrorCode.none:
            assert reply.error_code in {
                ErrorCode.member_id_required,
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_instance_id,
                ErrorCode.rebalance_in_progress,
                ErrorCode.coordinator_not_available,
            }
            consumer.member_id = reply.member_id if reply.error_code is ErrorCode.member_id_required else ""
            consumer.joined = consumer.assignment = None
            return
        consumer.member_id, consumer.joined, consumer.assignment = reply.member_id, reply, None
        consumer.generation = generation = self.life, reply.generation_id
        if reply.leader == reply.member_id and not reply.skip_assignment:
            self.leaders.setdefault(generation, set()).add(reply.member_id)
            assert reply.member_id in {each.member_id for each in reply.members}

    def has_synced(self, consumer: Consumer, reply: Any) -> None:
        if reply.error_code is ErrorCode.none:
            generation = consumer.generation
            # A static member that restarted has what its former id got.
            expected = {consumer.member_id: reply.assignment, **self.assigned[generation]}[consumer.member_id]
            assert reply.assignment == expected
            assert reply.assignment.startswith(b"%d/" % generation[1])
            consumer.assignment = reply.assignment

    @rule(number=members)
    def join(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.request is None:

            async def join() -> None:
                consumer.request = asyncio.ensure_future(
                    self.client.join(
                        consumer.member_id, session=SESSION, rebalance=REBALANCE, instance=consumer.instance
                    )
                )
                await self.wait(0.01)

            self.run(join())

    @rule(number=members)
    def sync(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.request is None and consumer.joined is not None:
            joined = consumer.joined
            assignments = {
                each.member_id: b"%d/%d" % (joined.generation_id, place) for place, each in enumerate(joined.members)
            }
            if assignments:
                self.assigned.setdefault(consumer.generation, assignments)

            async def sync() -> None:
                consumer.request = asyncio.ensure_future(self.client.sync(joined, assignments))
                await self.wait(0.01)

            self.run(sync())

    @rule(numbers=st.sets(members, min_size=2))
    def meet(self, numbers: set[int]) -> None:
        """Let several join and sync, as most consumers do."""
        for step in (self.join, self.sync):
            for number in sorted(numbers):
                step(number)
            self.run(self.wait(0.5))

    @rule(number=members)
    def heartbeat(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.request is None and consumer.joined is not None:

            async def heartbeat() -> None:
                error = await self.client.heartbeat(consumer.joined, group_instance_id=consumer.instance)
                if error is ErrorCode.unknown_member_id:
                    consumer.forget()

            self.run(heartbeat())

    @rule(number=members, partition=st.integers(0, 3), offset=st.integers(0, 1000))
    def commit(self, number: int, partition: int, offset: int) -> None:
        consumer = self.consumers[number]
        name = f"orders-{partition}"
        errors = self.run(
            self.client.commit(
                {name: offset}, consumer.joined, group_instance_id=consumer.instance if consumer.joined else None
            )
        )
        if errors == [ErrorCode.none]:
            self.committed[name] = offset

    @rule(number=members)
    def leave(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.member_id:
            self.run(self.client.leave({"member_id": consumer.member_id, "group_instance_id": consumer.instance}))
            consumer.forget()

    @rule(number=members)
    def die(self, number: int) -> None:
        self.consumers[number].forget()

    @rule(seconds=st.sampled_from([0.3, 5, 11, 21, 31]))
    def pass_time(self, seconds: float) -> None:
        self.run(self.wait(seconds))

    @rule()
    def flush(self) -> None:
        self.run(self.groups.flush())

    @precondition(lambda self: self.run(self.client.describe()).group_state in {"Empty", "Dead"})
    @rule()
    def delete(self) -> None:
        (error,) = self.run(self.client.delete("g")).values()
        assert error in {ErrorCode.none, ErrorCode.group_id_not_found}
        self.committed.clear()
        self.life += 1

    @rule()
    def restart(self) -> None:
        self.run(self.groups.close())
        self.run(self.wait(0.01))
        for consumer in self.consumers:
            assert consumer.request is None
        self.run(self.start())

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        assert all(len(leaders) == 1 for leaders in self.leaders.values())

    @invariant()
    def members_of_one_generation_share_no_assignment(self) -> None:
        current: dict[bytes, int] = {}
        described = self.run(self.client.describe())
        if described.group_state == "Stable":
            for member in described.members:
                assert member.member_assignment
                current[member.member_assignment] = current.get(member.member_assignment, 0) + 1
        assert all(count == 1 for count in current.values())

    @invariant()
    def every_committed_offset_is_fetched(self) -> None:
        assert self.run(self.client.fetched()) == self.committed

    @invariant()
    def numbers_fit(self) -> None:
        numbers = self.groups.numbers()
        assert sum(numbers.groups.values()) <= 1
        assert numbers.members <= 10


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(25, quick=10), stateful_step_count=40)
