"""Which processes count as up, by checks of real ports."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from tests.endpoint.peers.made_peers import HOST, WHOLE_TEST, Member, members
from ts_endpoint.peers.addresses import Address, Peer
from ts_endpoint.peers.cluster import STOPPING, Peers
from ts_endpoint.peers.health import HealthClient, HealthUnknown


def run(number: int, scenario: Callable[[list[Member], list[Peer]], Awaitable[None]]) -> None:
    """Run a scenario with processes, and end them."""

    async def whole() -> None:
        found, listed = await members(number)
        try:
            async with asyncio.timeout(WHOLE_TEST):
                await scenario(found, listed)
        finally:
            for member in found:
                if hasattr(member, "peers"):
                    await member.peers.close()
                await member.port.close()

    asyncio.run(whole())


def test_partitions_of_a_process_that_ends_move_to_the_next_and_return_with_it() -> None:
    """All others agree who serves them meanwhile, and nothing else moves."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        for member in found:
            member.join(listed)
        first, second, third = found
        before = [first.peers.leader_of("t", number) for number in range(100)]
        await third.peers.close()
        await third.port.close()
        await first.sees({0, 1})
        await second.sees({0, 1})
        during = [first.peers.leader_of("t", number) for number in range(100)]
        assert during == [second.peers.leader_of("t", number) for number in range(100)]
        assert [leader for leader in before if leader != 2] == [
            leader for leader, former in zip(during, before, strict=True) if former != 2
        ]
        assert 2 not in during
        assert 2 in before
        await third.port.open(third.port.port)
        await first.sees({0, 1, 2})
        assert [first.peers.leader_of("t", number) for number in range(100)] == before

    run(3, scenario)


def test_two_failures_move_nothing_and_the_third_does() -> None:
    """A success between them starts the count again; the failure is named at once."""
    answers: list[str] = []

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second = found
        living: list[tuple[str, int]] = []

        def next_status() -> dict[str, str]:
            living.append((answers[-1] if answers else "", len(first.peers.brokers())))
            answers.append("ok" if len(answers) % 6 in {2, 5} and len(answers) < 12 else "failing")
            return {"address": str(listed[1].address), "peers": first.peers.digest, "status": answers[-1]}

        second.port._fields = next_status
        first.join(listed)
        await first.sees({0})
        # Two failures and a success, four times; then three failures.
        assert len(answers) == 15
        assert [count for _, count in living] == [2] * 15
        (other,) = first.peers.others()
        assert (other.is_up, other.reason) == (False, "its status is failing")

    run(2, scenario)


def test_a_process_that_reports_that_it_stops_is_down_at_once() -> None:
    """One answer suffices; the process that stops owns nothing from the first moment."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second = found
        for member in found:
            member.join(listed)
        await first.checked(second, 2)
        second.status = STOPPING
        assert second.peers.leave() > 0
        assert not any(second.peers.leader_of("t", number) == second.peers.self_id for number in range(50))
        asked = second.port.asked
        await first.sees({0})
        assert second.port.asked <= asked + 1
        assert all(first.peers.leader_of("t", number) == first.peers.self_id for number in range(50))

    run(2, scenario)


def test_the_last_process_keeps_everything_while_it_stops() -> None:
    """No other process could answer."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second = found
        first.join(listed)
        await second.port.close()
        await first.sees({0})
        assert first.peers.leave() == 0
        assert first.peers.owns_group("g")

    run(2, scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: None, "did not answer within 0.05 s"),
        (lambda: b"not JSON", "is no health of an endpoint: b'HTTP/1.0 200 OK"),
        (lambda: b"[1]", "is no health of an endpoint"),
        (lambda: b"x" * 100_000, "sent more than 65536 bytes"),
        (lambda: b"[" * 60_000, "is no health of an endpoint"),
        (lambda: b'{"status": ' + b"[" * 40 + b"]" * 40 + b"}", "is no health of an endpoint"),
        (lambda: b'{"loop_age": 1e999}', "is no health of an endpoint"),
        (lambda: b'{"connections": ' + b"9" * 60_000 + b"}", "is no health of an endpoint"),
        (lambda: {"status": ["ok"], "address": f"{HOST}:20001"}, "is no health of an endpoint"),
        (lambda: {"status": "ok", "address": "a" * 10_000}, "is no health of an endpoint"),
        (lambda: b'{"status": "\\ud800"}', "is no health of an endpoint"),
        (lambda: {"status": "ok", "address": "other:1"}, "answers for other:1, not for 127.0.0.1:20001"),
        (lambda: {"address": f"{HOST}:20001"}, "its status is None"),
    ],
    ids=[
        *("silence", "text", "a list", "a flood", "open brackets", "deep nesting", "no finite number", "many digits"),
        *("a status of another type", "a long address", "half of a surrogate pair", "another process", "no status"),
    ],
)
def test_a_port_that_does_not_answer_as_the_process_is_down(answer: Callable[[], object], reason: str) -> None:
    """With the reason, for the pages."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second = found
        second.port._fields = answer  # type: ignore[assignment]
        first.join(listed, deadline=0.05 if "within" in reason else 30.0)
        await first.sees({0})
        found_reason = first.peers.others()[0].reason
        assert reason in found_reason
        assert len(found_reason) < 500

    run(2, scenario)


def test_a_silent_process_does_not_delay_the_checks_of_others() -> None:
    """All are checked at the same time."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second, third = found
        second.port._fields = lambda: None
        first.peers = Peers("prod", listed, listed[0], check_seconds=0.005, deadline_seconds=WHOLE_TEST * 10)
        first.peers.start()
        await first.checked(third, 1)
        assert second.port.asked == 1

    run(3, scenario)


def test_another_list_is_logged_once_and_the_process_stays_up() -> None:
    """During a change of the list on one host after another all must serve."""

    async def scenario(found: list[Member], listed: list[Peer]) -> None:
        first, second = found
        second.join(listed)
        second.other_fields["peers"] = "0123456789abcdef"
        with capture_logs() as logged:
            first.join(listed)
            await first.checked(second, 3)
        assert [each["event"] for each in logged] == ["peers_differ"]
        assert (logged[0]["peer"], logged[0]["other"]) == ("127.0.0.1:20001", "0123456789abcdef")
        (other,) = first.peers.others()
        assert (other.is_up, other.differs) == (True, True)
        second.other_fields.clear()
        await first.checked(second, 2)
        assert not first.peers.others()[0].differs

    run(2, scenario)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "empty..label"])
def test_a_name_that_does_not_resolve_is_a_failure(host: str) -> None:
    """`invalid` never resolves (RFC 2606), and a label is not empty."""

    async def ask() -> None:
        client = HealthClient(30.0)
        try:
            await client.ask(Address(host, 1))
        finally:
            client.close()

    with pytest.raises(HealthUnknown, match=f"{re.escape(host)}:1: "):
        asyncio.run(ask())
