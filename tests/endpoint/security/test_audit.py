"""The audit log has who read what, and bounded memory."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.endpoint.network.raw_client import RawClient
from tests.endpoint.network.small_cluster import SmallCluster, advance, serve
from ts_endpoint.contract import Session
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security import audit as audit_module
from ts_endpoint.security.audit import Audit
from ts_endpoint.security.login import MECHANISMS, Sasl
from ts_endpoint.security.users import Users


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Written:
    """An audit log with a clock of the test."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "audit.log"
        self.clock = Clock()
        self.audit = Audit(self.file, self.clock)

    def lines(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        for each in found:
            assert each.pop("timestamp")
        return found


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    found = Written(tmp_path)
    yield found
    found.audit.close()


ALICE = {"user": "alice", "client": "10.0.0.1", "connection": 1}


def alice() -> Session:
    return Session(host="10.0.0.1", user="alice")


def test_a_connection_has_a_line_at_its_first_read_and_at_its_end(written: Written) -> None:
    """The last line has the offsets of each partition, and the bytes of batches."""
    session = alice()
    written.audit.read(session, "orders", 0, 0, 10, 100)
    assert written.lines() == [{"event": "topic_read_began", **ALICE, "topic": "orders"}]
    written.audit.read(session, "orders", 0, 10, 25, 100)
    written.audit.read(session, "orders", 3, 7, 8, 5)
    written.audit.read(session, "orders", 0, 100, 101, 1)
    written.clock.now += 2.5

    written.audit.ended(session)
    written.audit.ended(session)

    assert written.lines()[1:] == [
        {
            "event": "topic_read",
            **ALICE,
            "topic": "orders",
            "seconds": 2.5,
            "bytes": 206,
            "ranges": {"0": ["0-25", "100-101"], "3": ["7-8"]},
        }
    ]


def test_a_connection_that_reads_has_a_line_every_five_minutes(written: Written) -> None:
    """A line has what was read since the last one; a connection that read nothing since has no line."""
    session, other = alice(), Session(host="10.0.0.2")
    written.audit.read(session, "orders", 0, 0, 10, 100)
    written.clock.now += 200
    written.audit.read(other, "clicks", 0, 0, 1, 1)
    written.audit.write_due()
    assert len(written.lines()) == 2
    written.clock.now += 100
    written.audit.write_due()
    written.audit.read(session, "orders", 0, 10, 20, 50)
    written.clock.now += 301
    written.audit.write_due()
    written.clock.now += 301
    written.audit.write_due()

    read = [line for line in written.lines() if line["event"] == "topic_read"]
    assert [(line["topic"], line["bytes"], line["ranges"]) for line in read] == [
        ("orders", 100, {"0": ["0-10"]}),
        ("clicks", 1, {"0": ["0-1"]}),
        ("orders", 50, {"0": ["10-20"]}),
    ]
    assert [line["event"] for line in written.lines()].count("topic_read_began") == 2


def test_a_server_writes_the_lines_that_are_due(written: Written) -> None:
    """The connection that reads need not end."""
    cluster = SmallCluster()
    sessions: list[Session] = []
    reported = cluster.handlers[Api.METADATA]

    async def metadata(request: Any, session: Session) -> Any:
        sessions.append(session)
        written.audit.read(session, "orders", 0, 0, 5, 50)
        return await reported(request, session)

    cluster.handlers[Api.METADATA] = metadata

    async def client() -> None:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.ask(Api.METADATA, 1, topics=None)
        written.clock.now += 301
        advance(1)
        async with asyncio.timeout(60):
            while len(written.lines()) < 2:
                await asyncio.sleep(0)
        await raw.close()

    serve(cluster, client, audit=written.audit)

    assert [line["event"] for line in written.lines()] == ["topic_read_began", "topic_read"]


def test_offsets_that_are_read_twice_are_one_range(written: Written) -> None:
    """A consumer that repeats a fetch, or a part of it, does not lengthen the line."""
    session = alice()
    for start, end in [(0, 10), (0, 10), (3, 7), (10, 12)]:
        written.audit.read(session, "orders", 0, start, end, 1)
    written.audit.ended(session)

    assert written.lines()[-1]["ranges"] == {"0": ["0-12"]}


def test_offsets_that_are_read_again_do_not_lengthen_a_line(written: Written) -> None:
    """The ranges of a partition are few, whatever a client seeks; all offsets that were read are inside."""
    session = alice()
    for number in range(1000):
        start = number * 7919 % 10_000
        written.audit.read(session, "orders", 0, start, start + 10, 1)
    written.audit.ended(session)

    ranges = written.lines()[-1]["ranges"]["0"]
    assert len(ranges) == 8
    bounds = [tuple(map(int, each.split("-"))) for each in ranges]
    assert all(any(low <= number * 7919 % 10_000 < high for low, high in bounds) for number in range(1000))
    assert written.lines()[-1]["bytes"] == 1000


def test_many_partitions_are_written_early(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: beyond a number of partitions the oldest line is written, in parts that are not too long."""
    monkeypatch.setattr(audit_module, "_MOST_PARTITIONS", 1000)
    session = alice()
    for partition in range(2500):
        written.audit.read(session, "orders", partition, 0, 1, 1)
    written.audit.ended(session)

    read = written.lines()[1:]
    assert sum(line["bytes"] for line in read) == 2500
    assert sorted(int(partition) for line in read for partition in line["ranges"]) == [*range(2500)]
    assert max(len(line["ranges"]) for line in read) == 500
    assert len(read) == 7


def test_closing_writes_what_was_read(written: Written) -> None:
    """The endpoint's end loses no line."""
    written.audit.read(alice(), "orders", 0, 0, 1, 1)
    written.audit.close()

    assert [line["event"] for line in written.lines()] == ["topic_read_began", "topic_read"]


def test_a_refused_topic_has_one_line_for_a_connection(written: Written) -> None:
    """A client that names many topics cannot fill the log."""
    session = alice()
    for number in [*range(3), *range(3), *range(1000)]:
        written.audit.refused_topic(session, f"t{number}")

    refused = written.lines()
    assert len(refused) == 100
    assert refused[0] == {"event": "topic_refused", **ALICE, "topic": "t0"}


def test_text_of_clients_stays_in_its_line(written: Written) -> None:
    """Line ends and control characters are escaped, and long names cut."""
    session = Session(host="10.0.0.1")
    written.audit.refused_login(session, 'x\n{"event": "forged"}\x1b[31m' + "y" * 1000, "PLAIN", "invalid credentials")

    (line,) = written.lines()
    assert line["event"] == "login_refused"
    assert line["user"].startswith('x\\n{"event": "forged"}')
    assert len(line["user"]) < 400
    assert "\x1b" not in written.file.read_text()


def test_a_long_name_of_a_refused_topic_is_cut(written: Written) -> None:
    """A request can have a megabyte of it, and each connection has 100 such lines."""
    session = alice()
    for number in range(3):
        written.audit.refused_topic(session, "t" * 1000 + str(number))

    (line,) = written.lines()
    assert line["topic"] == "t" * 300


def test_a_renamed_file_is_created_again(written: Written) -> None:
    """logrotate renames it; no signal is needed. Others cannot read the new file either."""
    written.audit.refused_topic(alice(), "a")
    former = written.file.rename(written.file.with_suffix(".1"))
    written.audit.refused_topic(alice(), "b")

    assert [line["topic"] for line in written.lines()] == ["b"]
    assert written.file.stat().st_mode & 0o007 == former.stat().st_mode & 0o007 == 0


def test_a_file_that_cannot_be_written_stops_no_client(written: Written) -> None:
    """The lines are lost, and the log has one error until a line is written again."""
    directory = written.file.parent
    with structlog.testing.capture_logs() as logs:
        directory.rename(directory.with_name("away"))
        for topic in "abc":
            written.audit.refused_topic(alice(), topic)
        directory.with_name("away").rename(directory)
        written.audit.refused_topic(alice(), "d")

    assert [each["event"] for each in logs] == ["audit_not_written"]
    assert written.lines()[-1]["topic"] == "d"


def test_without_a_file_the_lines_are_in_the_log() -> None:
    """The events are the same."""
    with structlog.testing.capture_logs() as logs:
        Audit().read(alice(), "orders", 0, 0, 1, 1)

    assert logs == [{"event": "topic_read_began", "log_level": "info", **ALICE, "topic": "orders"}]


def test_a_server_records_refused_logins_and_the_end_of_connections(written: Written, users_file: Path) -> None:
    """The reads of a connection are written when the client closes it."""
    users = Users(users_file)
    cluster = SmallCluster()
    reported = cluster.handlers[Api.METADATA]

    async def metadata(request: Any, session: Session) -> Any:
        written.audit.read(session, "orders", 0, 0, 5, 50)
        return await reported(request, session)

    cluster.handlers[Api.METADATA] = metadata

    async def client() -> None:
        for password in ("wrong horse", "correct horse"):
            raw = await RawClient.open(cluster.bootstrap)
            await raw.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            reply = await raw.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0alice\0{password}".encode())
            if not reply.error_code:
                await raw.ask(Api.METADATA, 1, topics=None)
            await raw.close()

    serve(cluster, client, sasl=Sasl(MECHANISMS, users.keys, users.usual, 0.0), audit=written.audit)

    refused, began, read = written.lines()
    expected = {"user": "alice", "client": "127.0.0.1", "mechanism": "PLAIN", "reason": "invalid credentials"}
    assert refused == {"event": "login_refused", **expected}
    assert (began["event"], began["user"]) == ("topic_read_began", "alice")
    assert (read["event"], read["ranges"], read["bytes"]) == ("topic_read", {"0": ["0-5"]}, 50)
    assert "horse" not in written.file.read_text()
