"""What hostile clients can write to the log of a process: a few lines of each event, and no characters of control."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v3.request import JoinGroupRequestProtocol

from tests.endpoint.clients import BY_NAME, fetch_body
from tests.endpoint.network.raw_client import RawClient
from tests.endpoint.running import running
from tests.made_archive import MadeArchive, batches, steps
from ts_endpoint.protocol.versions import Api
from ts_endpoint.serving.line_limit import LimitedLines

HOSTILE_GROUP = 'g\n2026-01-01 [error] forged\x1b[31m" \u202e\x00'


def test_a_line_after_a_pause_has_the_number_of_lines_that_were_left_out() -> None:
    """Each event has its own 20 lines in 10 seconds; lines of the audit have no limit."""
    now = [0.0]
    limit = LimitedLines(lambda: now[0])

    def lines(event: str, count: int) -> int:
        written = 0
        for _ in range(count):
            try:
                limit(None, "warning", {"event": event})
            except structlog.DropEvent:
                continue
            written += 1
        return written

    assert lines("hole_reached", 100) == 20
    assert lines("fetch_failed", 5) == 5
    assert lines("login_refused", 100) == 100
    now[0] += 10
    assert limit(None, "warning", {"event": "hole_reached"}) == {"event": "hole_reached", "left_out": 80}
    assert lines("hole_reached", 100) == 19


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_clients_can_neither_fill_nor_forge_the_log(log_format: str, tmp_path: Path) -> None:
    """A client fetches from a hole 300 times, and others join groups with names that look like lines."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches(*steps(0, 50)))
    archive.put_segment("t", 100, batches(*steps(100, 150)))
    archive.commit("t", 150, highest_base=100)
    body: Any = fetch_body("t", {0: 60})
    fields = {name: getattr(body, name) for name in body.__slots__}

    async def attack(address: str) -> list[ErrorCode]:
        raw = await RawClient.open(address)
        errors = []
        for _ in range(300):
            reply = await raw.ask(Api.FETCH, BY_NAME, **fields)
            errors.append(reply.responses[0].partitions[0].error_code)
        joined = await raw.ask(
            Api.JOIN_GROUP,
            3,
            group_id=HOSTILE_GROUP,
            session_timeout=timedelta(seconds=30),
            rebalance_timeout=timedelta(seconds=30),
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        errors.append(joined.error_code)
        await raw.close()
        return errors

    with running(f"file://{tmp_path}/archive", tmp_path, options=["--log-format", log_format]) as (endpoint,):
        errors = asyncio.run(attack(endpoint.address))
        text = endpoint.log

    assert set(errors[:300]) == {ErrorCode.corrupt_message}
    assert errors[300] is ErrorCode.none
    assert 20 <= text.count("hole_reached") < 100
    assert "group_rebalances" in text
    assert all(line.isprintable() for line in text.splitlines())
    assert not any("forged" in line and "group_" not in line for line in text.splitlines())
