"""Committed offsets are kept in the store, also while it is away and when the owner of a group changes."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tests.endpoint.groups.client import BEGAN, KEYS, directory_store, offsets_store, room
from tests.endpoint.groups.unsteady_store import UnsteadyStore
from tests.endpoint.groups.virtual_time import current, in_virtual_time
from ts_common.archive.group_offsets import Committed
from ts_common.errors import StoreUnavailable
from ts_common.model import TopicPartition
from ts_endpoint.groups.limits import GroupLimits
from ts_endpoint.groups.offsets import Unwritten
from ts_endpoint.protocol.versions import Api

DAY = 86_400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UnsteadyStore]:
    opened = UnsteadyStore(directory_store(tmp_path))
    yield opened
    opened.close()


@in_virtual_time
async def test_offsets_survive_a_restart(store: UnsteadyStore) -> None:
    """Those of members and of consumers without a group."""
    async with room(store) as client:
        (joined,) = await client.stable()
        await client.commit({"orders-0": 1, "orders-1": 2}, joined)
        await client.commit({"orders-0": 3}, joined)
        await client.commit({"orders-0": 9}, group="simple")
    async with room(store) as client:
        assert await client.fetched() == {"orders-0": 3, "orders-1": 2}
        assert await client.fetched("simple") == {"orders-0": 9}


@in_virtual_time
async def test_only_groups_that_changed_are_written_every_half_minute(store: UnsteadyStore) -> None:
    """One write each, however many commits there were."""
    async with room(store) as client:
        for offset in range(50):
            await client.commit({"orders-0": offset})
            await client.commit({"orders-0": offset}, group="other")
        assert store.calls == []
        await asyncio.sleep(31)
        assert store.calls.count("put") == 2
        assert client.groups.numbers().unwritten_groups == 0
        await client.commit({"orders-0": 100})
        await asyncio.sleep(90)
        assert store.calls.count("put") == 3


@in_virtual_time
async def test_a_commit_during_a_write_is_written_by_the_next(store: UnsteadyStore) -> None:
    """The write has the offsets of its beginning, and the commit stays unwritten."""
    async with room(store) as client:
        await client.commit({"orders-0": 1, "orders-1": 1})
        current().held = []
        flushing = asyncio.create_task(client.groups.flush())
        await asyncio.sleep(0.1)
        await client.commit({"orders-0": 2})
        current().release()
        await flushing
        assert client.groups.numbers().unwritten_groups == 1
        assert await client.fetched() == {"orders-0": 2, "orders-1": 1}
    async with room(store) as client:
        assert await client.fetched() == {"orders-0": 2, "orders-1": 1}


@in_virtual_time
async def test_a_store_that_is_away_blocks_no_client_and_loses_nothing(store: UnsteadyStore) -> None:
    """Members join and commit. The failures are counted and logged, and later everything is written."""
    async with room(store) as client:
        store.is_away = True
        (joined,) = await client.stable()
        assert await client.commit({"orders-0": 1}, joined) == [ErrorCode.none]
        with capture_logs() as logs:
            await asyncio.sleep(95)
        assert [each["groups"] for each in logs if each["event"] == "group_offsets_not_flushed"] == [1, 1, 1]
        numbers = client.groups.numbers()
        assert (numbers.flush_failures, numbers.unwritten_groups) == (3, 1)
        assert numbers.seconds_since_flush > 90
        store.is_away = False
        await asyncio.sleep(31)
        assert client.groups.numbers().seconds_since_flush < 31
        assert client.groups.numbers().unwritten_groups == 0


@in_virtual_time
async def test_offsets_that_cannot_be_read_yet_are_no_missing_offsets(store: UnsteadyStore) -> None:
    """The client gets COORDINATOR_LOAD_IN_PROGRESS and repeats the request. "No offset" would make it begin again."""
    async with room(store) as client:
        await client.commit({"orders-0": 1})
    async with room(store) as client:
        store.is_away = True
        assert (await client.fetch_group()).error_code is ErrorCode.coordinator_load_in_progress
        assert (await client.describe()).error_code is ErrorCode.coordinator_load_in_progress
        assert await client.delete("g") == {"g": ErrorCode.coordinator_load_in_progress}
        found = await client.send(Api.LIST_GROUPS)
        assert found.error_code is ErrorCode.coordinator_load_in_progress
        first = await client.fetch_group(version=1, topics=[{"name": "orders", "partition_indexes": [0]}])
        assert first.topics[0].partitions[0].error_code is ErrorCode.coordinator_load_in_progress
        assert await client.commit({"orders-1": 2}) == [ErrorCode.none]
        assert (await client.fetch_group()).error_code is ErrorCode.coordinator_load_in_progress
        assert store.calls.count("open") == 1 + 1  # of the first process, and one: a failure is not repeated at once
        store.is_away = False
        await asyncio.sleep(2)
        assert await client.fetched() == {"orders-0": 1, "orders-1": 2}


@in_virtual_time
async def test_a_store_that_hangs_holds_a_fetch_for_a_few_seconds_only(store: UnsteadyStore) -> None:
    """Other requests of the group are answered at once."""
    async with room(store) as client:
        current().held = []
        began = current().time()
        assert (await client.fetch_group()).error_code is ErrorCode.coordinator_load_in_progress
        assert current().time() - began == 5
        assert await client.commit({"orders-0": 1}) == [ErrorCode.none]
        assert current().time() - began == 5
        current().release()
        assert await client.fetched() == {"orders-0": 1}


@in_virtual_time
async def test_a_damaged_object_is_an_error_that_no_client_repeats(store: UnsteadyStore, tmp_path: Path) -> None:
    """It is kept, and logged with the way out. Without it the group works again."""
    store.put(KEYS.offsets_of("g"), b"{}")
    async with room(store) as client:
        with capture_logs() as logs:
            assert (await client.fetch_group()).error_code is ErrorCode.unknown_server_error
        assert "delete the object" in logs[0]["error"]
        assert await client.commit({"orders-0": 1}) == [ErrorCode.none]
        await client.groups.flush()
        assert store.get(KEYS.offsets_of("g"))[0] == b"{}"
        store.delete([KEYS.offsets_of("g")])
        await client.groups.flush()
        assert await client.fetched() == {"orders-0": 1}


@in_virtual_time
async def test_offsets_that_are_lost_at_the_end_are_logged(store: UnsteadyStore) -> None:
    """The process ends although the store is away."""
    with capture_logs() as logs:
        async with room(store) as client:
            store.is_away = True
            await client.commit({"orders-0": 1})
    assert [each["groups"] for each in logs if each["event"] == "group_offsets_lost"] == [1]


@in_virtual_time
async def test_a_short_outage_at_the_end_loses_no_offsets(store: UnsteadyStore) -> None:
    """The last flush is tried again, also for the groups that the first failure had stopped."""

    def fail_once() -> None:
        store.before_put = lambda: None
        raise StoreUnavailable("the store is away for a moment")

    async with room(store) as client:
        for number in range(9):
            await client.commit({"orders-0": 1}, group=f"g{number}")
        store.before_put = fail_once
    async with room(store) as client:
        for number in range(9):
            assert await client.fetched(group=f"g{number}") == {"orders-0": 1}


class Owner:
    """One of two processes owns all groups."""

    def __init__(self) -> None:
        self.is_first = True

    def first(self, group: str) -> bool:
        return self.is_first

    def second(self, group: str) -> bool:
        return not self.is_first


@in_virtual_time
async def test_a_process_that_is_not_the_owner_refuses_every_request(store: UnsteadyStore) -> None:
    """With NOT_COORDINATOR; its lists do not have the group."""
    async with room(store, owns=lambda group: group != "g") as client:
        joined = await client.joined(group="other")
        error = ErrorCode.not_coordinator
        assert (await client.join()).error_code is error
        assert (await client.sync(joined)).error_code is error
        assert await client.heartbeat(joined) is error
        assert (await client.leave()).error_code is error
        assert await client.commit({"orders-0": 1}) == [error]
        assert (await client.fetch_group()).error_code is error
        assert (await client.describe()).error_code is error
        assert await client.delete("g") == {"g": error}
        async with room(store) as owner:
            await owner.commit({"orders-0": 1})
        assert await client.listed() == {"other": "CompletingRebalance"}


@in_virtual_time
async def test_a_lost_group_is_written_and_its_members_are_sent_away(store: UnsteadyStore) -> None:
    """Requests that wait get NOT_COORDINATOR, and the next owner has all offsets."""
    owner = Owner()
    async with room(store, owns=owner.first) as first, room(store, owns=owner.second) as second:
        leader, follower = await first.stable(2)
        await first.commit({"orders-0": 1}, leader)
        waiting = first.joining(leader.member_id)
        await asyncio.sleep(1)
        owner.is_first = False
        first.groups.ownership_changed()
        assert (await waiting).error_code is ErrorCode.not_coordinator
        assert await first.heartbeat(follower) is ErrorCode.not_coordinator
        await asyncio.sleep(0)
        assert await second.heartbeat(follower) is ErrorCode.unknown_member_id
        (again,) = await second.stable()
        assert await second.fetched() == {"orders-0": 1}
        assert await second.commit({"orders-0": 2}, again) == [ErrorCode.none]
        numbers = first.groups.numbers()
        assert (numbers.members, numbers.offset_bytes, set(numbers.groups.values())) == (0, 0, {0})


@in_virtual_time
async def test_many_lost_groups_are_written_together(store: UnsteadyStore) -> None:
    """While the store is away, the process does not try once for each of them."""
    owner = Owner()
    async with room(store, owns=owner.first) as client:
        for number in range(50):
            await client.commit({"orders-0": number}, group=f"g{number}")
        store.is_away = True
        owner.is_first = False
        client.groups.ownership_changed()
        await asyncio.sleep(1)
        assert 0 < store.calls.count("put") + store.calls.count("open") <= 8
        store.is_away = False
        await asyncio.sleep(31)
        assert client.groups.numbers().unwritten_groups == 0
    async with room(store) as client:
        assert await client.fetched("g49") == {"orders-0": 49}


@pytest.mark.parametrize("first_flushes", [True, False])
@in_virtual_time
async def test_a_group_that_returns_is_read_again(store: UnsteadyStore, first_flushes: bool) -> None:
    """What the process had in memory is old. Unwritten commits of both are merged by their times."""
    owner = Owner()
    async with room(store, owns=owner.first) as first, room(store, owns=owner.second) as second:
        await first.commit({"orders-0": 1, "orders-1": 1, "orders-2": 1})
        await first.groups.flush()
        await asyncio.sleep(1)
        await first.commit({"orders-0": 2, "orders-1": 2})
        store.is_away = not first_flushes
        owner.is_first = False
        first.groups.ownership_changed()
        await asyncio.sleep(3)
        store.is_away = False
        await second.commit({"orders-1": 3})
        await second.groups.flush()
        await asyncio.sleep(31)  # also the first process flushes what the store did not accept
        await second.commit({"orders-1": 3})
        await second.groups.flush()
        assert await second.fetched() == {"orders-0": 2, "orders-1": 3, "orders-2": 1}
        owner.is_first = True
        second.groups.ownership_changed()
        assert await first.fetched() == {"orders-0": 2, "orders-1": 3, "orders-2": 1}


@in_virtual_time
async def test_commits_of_an_owner_that_this_process_did_not_notice_are_read(store: UnsteadyStore) -> None:
    """Only the other process found this one down. Its clients return, and do not begin at the older offset."""
    async with room(store) as client:
        await client.commit({"orders-0": 50})
        await client.groups.flush()
        assert await client.fetched() == {"orders-0": 50}
        async with room(store) as other:
            assert await other.fetched() == {"orders-0": 50}
            await other.commit({"orders-0": 100})
        await asyncio.sleep(31)
        assert await client.fetched() == {"orders-0": 100}


@in_virtual_time
async def test_offsets_in_memory_serve_while_the_store_is_away(store: UnsteadyStore) -> None:
    """Also when they would be read again."""
    async with room(store) as client:
        await client.commit({"orders-0": 50})
        await client.groups.flush()
        assert await client.fetched() == {"orders-0": 50}
        await asyncio.sleep(60)
        store.is_away = True
        assert await client.fetched() == {"orders-0": 50}
        store.is_away = False


@in_virtual_time
async def test_a_group_that_returns_during_its_last_write_is_read_again(store: UnsteadyStore) -> None:
    """The write of the loss had not ended, and the other owner has committed since then."""
    owner = Owner()
    async with room(store, owns=owner.first) as first, room(store, owns=owner.second) as second:
        await first.commit({"orders-0": 1})
        current().held = []
        flushing = asyncio.create_task(first.groups.flush())
        await asyncio.sleep(0.1)
        await first.commit({"orders-1": 1})
        owner.is_first = False
        first.groups.ownership_changed()
        current().release()
        store.is_away = True
        await flushing
        await asyncio.sleep(2)
        store.is_away = False
        await second.commit({"orders-0": 2})
        await second.groups.flush()
        owner.is_first = True
        second.groups.ownership_changed()
        assert await first.fetched() == {"orders-0": 2, "orders-1": 1}


@in_virtual_time
async def test_a_deletion_during_a_write_deletes_what_was_written(store: UnsteadyStore) -> None:
    """The next flush removes the object."""
    async with room(store) as client:
        await client.fetched()
        await client.commit({"orders-0": 1})
        current().held = []
        flushing = asyncio.create_task(client.groups.flush())
        await asyncio.sleep(0.1)
        assert await client.delete("g") == {"g": ErrorCode.none}
        current().release()
        await flushing
        await client.groups.flush()
        assert list(store.list()) == []
        assert await client.fetched() == {}


@in_virtual_time
async def test_a_commit_replaces_what_its_process_read_although_its_clock_is_slow(store: UnsteadyStore) -> None:
    """A process with a fast clock had committed, and then commits another partition at the same time as this one."""
    orders, payments = TopicPartition("orders", 0), TopicPartition("payments", 0)
    future = BEGAN + 10_000_000
    other = {orders: Committed(1, -1, future, "")}
    base = offsets_store(store).write(Unwritten("g", other, frozenset(other), 0, None, is_read=True))
    async with room(store) as client:
        assert await client.fetched() == {"orders-0": 1}
        await client.commit({"orders-0": 2})
        more = {**other, payments: Committed(7, -1, future, "")}
        offsets_store(store).write(Unwritten("g", more, frozenset({payments}), 0, base.etag, is_read=True))
    async with room(store) as client:
        assert await client.fetched() == {"orders-0": 2, "payments-0": 7}


@in_virtual_time
async def test_a_read_that_ends_after_the_loss_is_not_used(store: UnsteadyStore) -> None:
    """The next owner can commit between the read and the return of the group."""
    owner = Owner()
    async with room(store, owns=owner.first) as first, room(store, owns=owner.second) as second:
        await first.commit({"orders-0": 1})
        await first.groups.flush()
        first.groups._keeper.release("g")
        held: list[Callable[[], None]] = []
        current().held = held
        late = asyncio.create_task(first.fetch_group())
        await asyncio.sleep(1)
        current().held = None
        owner.is_first = False
        first.groups.ownership_changed()
        for call in held:
            call()
        await second.commit({"orders-0": 2})
        await second.groups.flush()
        assert (await late).error_code is ErrorCode.not_coordinator
        owner.is_first = True
        second.groups.ownership_changed()
        assert await first.fetched() == {"orders-0": 2}


@in_virtual_time
async def test_a_group_expires_thirty_days_after_its_last_commit(store: UnsteadyStore) -> None:
    """Its object is deleted. A group with members stays, however old its last commit is."""
    limits = GroupLimits(flush=3600.0)
    async with room(store, limits=limits) as client:
        (joined,) = await client.stable(group="busy", session=1800)
        await client.commit({"orders-0": 1}, joined, group="busy")
        await client.commit({"orders-0": 1})
        for hour in range(24 * 31):
            if hour == 24 * 20:
                await client.commit({"orders-1": 1}, group="later")
            for _ in range(3):
                await asyncio.sleep(1200)
                await client.heartbeat(joined, group="busy")
            if hour == 24 * 29:
                assert set(await client.listed()) == {"busy", "g", "later"}
        assert set(await client.listed()) == {"busy", "later"}
        assert await client.fetched() == {}
        assert sorted(info.key.rpartition("/")[2] for info in store.list()) == ["busy.json", "later.json"]


@in_virtual_time
async def test_groups_expire_in_memory_too() -> None:
    """Without a store."""
    async with room(limits=GroupLimits(flush=3600.0)) as client:
        await client.commit({"orders-0": 1})
        await asyncio.sleep(29 * DAY)
        assert await client.listed() == {"g": "Empty"}
        await asyncio.sleep(2 * DAY)
        assert await client.listed() == {}


@in_virtual_time
async def test_offsets_that_are_not_used_leave_the_memory(store: UnsteadyStore) -> None:
    """They are read again, and groups that were only looked for leave no trace."""
    async with room(store) as client:
        await client.commit({"orders-0": 1})
        await client.fetch_group("unknown")
        await asyncio.sleep(700)
        assert client.groups.numbers().groups["Empty"] == 0
        assert await client.fetched() == {"orders-0": 1}


@in_virtual_time
async def test_memory_that_is_full_makes_room_for_groups_that_the_store_has(store: UnsteadyStore) -> None:
    """The least recently used leave first."""
    async with room(store, limits=GroupLimits(groups=4)) as client:
        for number in range(12):
            assert await client.commit({"orders-0": number}, group=f"g{number}") == [ErrorCode.none]
            await client.groups.flush()
            await asyncio.sleep(1)
        assert client.groups.numbers().groups["Empty"] <= 4
        for number in range(12):
            assert await client.fetched(f"g{number}") == {"orders-0": number}
        assert client.groups.numbers().groups["Empty"] <= 4


@in_virtual_time
async def test_bytes_of_groups_that_the_store_has_make_room_for_commits(store: UnsteadyStore) -> None:
    """Offsets that are read count as those that are committed, until they leave the memory."""
    async with room(store) as client:
        await client.commit({"orders-0": 1, "orders-1": 1}, group="a")
    async with room(store, limits=GroupLimits(offset_bytes=1000)) as client:
        await client.fetched("a")
        assert client.groups.numbers().offset_bytes == 2 * 356
        assert await client.commit({"orders-0": 1, "orders-1": 1}, group="b") == [ErrorCode.none] * 2
        assert client.groups.numbers().offset_bytes == 2 * 356
        assert await client.commit({"orders-2": 1}, group="b") == [ErrorCode.invalid_commit_offset_size]
        await client.groups.flush()
        assert await client.fetched("a") == {"orders-0": 1, "orders-1": 1}
        assert client.groups.numbers().offset_bytes == 2 * 356


@in_virtual_time
async def test_a_deletion_that_the_store_refuses_is_not_listed(store: UnsteadyStore) -> None:
    """The object is there until a later flush removes it."""
    async with room(store) as client:
        await client.commit({"orders-0": 1})
        await client.groups.flush()
        store.is_read_only = True
        assert await client.delete("g") == {"g": ErrorCode.none}
        await asyncio.sleep(31)
        assert await client.listed() == {}
        assert await client.fetched() == {}
        store.is_read_only = False
        await asyncio.sleep(31)
        assert list(store.list()) == []


@pytest.mark.parametrize("is_owner", [True, False])
@in_virtual_time
async def test_a_process_expires_groups_of_the_store_if_it_owns_them(
    store: UnsteadyStore, tmp_path: Path, is_owner: bool
) -> None:
    """They are not in its memory. Another owner may have members of them."""
    async with room(store) as client:
        await client.commit({"orders-0": 1})
    os.utime(tmp_path / KEYS.offsets_of("g"), (BEGAN / 1000, BEGAN / 1000))
    await asyncio.sleep(31 * DAY)
    async with room(store, owns=lambda _: is_owner):
        await asyncio.sleep(1800)
        assert len(list(store.list())) == 1
        await asyncio.sleep(2400)
        assert len(list(store.list())) == (0 if is_owner else 1)


@in_virtual_time
async def test_a_loss_that_no_event_reports_is_noticed_with_the_next_flush(store: UnsteadyStore) -> None:
    """Members that wait get NOT_COORDINATOR."""
    owner = Owner()
    async with room(store, owns=owner.first) as client:
        leader, _ = await client.stable(2)
        waiting = client.joining(leader.member_id)
        await asyncio.sleep(1)
        owner.is_first = False
        await asyncio.sleep(30)
        assert waiting.done()
        assert (await waiting).error_code is ErrorCode.not_coordinator


@in_virtual_time
async def test_a_group_that_is_lost_twice_is_written_each_time(store: UnsteadyStore) -> None:
    """At once, although its object was not read in between."""
    owner = Owner()
    async with room(store, owns=owner.first) as first, room(store, owns=owner.second) as second:
        for offset in range(1, 4):
            store.is_read_only = offset == 1
            owner.is_first = True
            await first.commit({f"orders-{offset}": offset})
            owner.is_first = False
            first.groups.ownership_changed()
            await asyncio.sleep(0.1)
        assert await second.fetched() == {"orders-1": 1, "orders-2": 2, "orders-3": 3}


@in_virtual_time
async def test_groups_in_a_list_are_read_from_the_store_once_in_a_while(store: UnsteadyStore) -> None:
    """A client that lists groups in a loop does not list the bucket in a loop."""
    async with room(store) as client:
        for _ in range(20):
            await client.listed()
        await client.listed(states=["Stable"])
        assert store.calls.count("list") == 1
        await asyncio.sleep(31)
        await client.listed()
        assert store.calls.count("list") == 2


@in_virtual_time
async def test_numbers_count_what_happened(store: UnsteadyStore) -> None:
    """Groups by state, members, rebalances, commits."""
    async with room(store) as client:
        (joined,) = await client.stable()
        await client.commit({"orders-0": 1, "orders-1": 1}, joined)
        await client.commit({"orders-0": 1}, group="simple")
        await client.joined(group="other")
        numbers = client.groups.numbers()
        assert numbers.groups == {"Stable": 1, "CompletingRebalance": 1, "PreparingRebalance": 0, "Empty": 1}
        assert (numbers.members, numbers.rebalances, numbers.commits) == (2, 2, 3)
        assert (numbers.unwritten_groups, numbers.flush_failures, numbers.read_failures) == (2, 0, 0)
