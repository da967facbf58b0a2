"""`tsctl status` of servers that are no agents, or of other releases: a row, within limits of bytes and time."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.tsctl.commands.agents import WELL, answering
from tests.tsctl.running import Run

STRANGE: dict[str, dict[str, object]] = {
    "counts that are words": {"partitions": [{"lag_offsets": "many", "unshipped_bytes": "x", "hole": []}]},
    "counts that are lists": {"partitions": [{"oldest_unshipped_age_seconds": [], "retention_left_ratio": {}}]},
    "no list of partitions": {"partitions": 5},
    "partitions that are none": {"partitions": [1, None, "t-0"]},
    "errors that are none": {"last_errors": "boom"},
    "an error that is a word": {"last_errors": ["boom"]},
    "a queue of queues": {"queue_length": {"a": 1}, "broker": [1]},
    "a number of 400 digits": {"partitions": [{"unshipped_bytes": 10**400, "lag_offsets": 1}]},
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_status_of_other_types_is_a_row_all_the_same(run: Run, name: str) -> None:
    """A later agent or another program may use other types. Without a list of partitions an agent is not well."""
    code = 1 if name in {"no list of partitions", "partitions that are none"} else 0
    with answering(200, json.dumps({**WELL, **STRANGE[name]}).encode()) as address:
        for more in ([], ["--partitions"], ["--json"]):
            ended = run("status", address, *more)
            assert (ended.code, ended.err) == (code, "")


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"healthy": NaN}', b'{"healthy": true, "stuck": 1e999}', b"\xff\xfe", b"", b"[]"],
    ids=["deep", "nan", "infinity", "bytes", "none", "list"],
)
def test_what_is_no_json_is_no_status(run: Run, body: bytes) -> None:
    """The JSON of `tsctl` itself stays valid."""
    with answering(200, body) as address:
        ended = run("status", address, "--json")
    assert ended.code == 75
    assert "does not serve an agent's status" in ended.document["agents"][0]["problem"]


def test_an_answer_that_leads_elsewhere_is_a_row_and_no_other_agent_loses_its_own(run: Run) -> None:
    """Only the given address receives a request, and a redirect does not end the command."""
    with answering(200, json.dumps(WELL).encode()) as other, answering(302, b"", Location="http://[::1") as address:
        ended = run("status", address, other, "--json")
    assert ended.code == 75
    assert [each["answered"] for each in ended.document["agents"]] == [False, True]
    assert "returned 302" in ended.document["agents"][0]["problem"]


@contextmanager
def pouring(head: bytes, piece: bytes, *, until: threading.Event) -> Iterator[str]:
    """Serve pieces without an end, slowly for pieces of one byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                try:
                    taken.recv(4096)
                    taken.sendall(head)
                    while not until.wait(0.0 if len(piece) > 1 else 0.3):
                        taken.sendall(piece)
                except OSError:
                    pass  # the client has closed the connection

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            until.set()
            thread.join()


@pytest.mark.parametrize(("piece", "told"), [(b" ", "no answer within 1 s"), (b" " * 100_000, "returned more than")])
def test_an_answer_without_an_end_is_cut(run: Run, piece: bytes, told: str) -> None:
    """The limits are the timeout of an agent, and a number of bytes."""
    with pouring(b"HTTP/1.1 200 OK\r\n\r\n", piece, until=threading.Event()) as address:
        timeout = "1" if len(piece) == 1 else "300"
        ended = run("status", address, "--timeout", timeout, "--json")
    assert ended.code == 75
    assert told in ended.document["agents"][0]["problem"]
