"""`tsctl status` of what is no agent, or another one than expected: a row, bounded in bytes and time, no traceback."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.tsctl.commands.agents import WELL, answering
from tests.tsctl.running import Run

STRANGE = {
    "counts that are words": {"partitions": [{"lag_offsets": "many", "unshipped_bytes": "x", "hole": []}]},
    "counts that are lists": {"partitions": [{"oldest_unshipped_age_seconds": [], "retention_left_ratio": {}}]},
    "no list of partitions": {"partitions": 5},
    "partitions that are none": {"partitions": [1, None, "t-0"]},
    "errors that are none": {"last_errors": "boom"},
    "an error that is a word": {"last_errors": ["boom"]},
    "a queue of queues": {"queue_length": {"a": 1}, "broker": [1]},
    "a number of 400 digits": {"partitions": [{"unshipped_bytes": 10**400, "lag_offsets": 1}]},
}


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_a_status_of_other_types_is_a_row_all_the_same(run: Run, fields: dict[str, object]) -> None:
    """A later agent, or another program."""
    with answering(200, json.dumps({**WELL, **fields}).encode()) as address:
        for more in ([], ["--partitions"], ["--json"]):
            ended = run("status", address, *more)
            assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"healthy": NaN}', b'{"healthy": true, "stuck": 1e999}', b"\xff\xfe", b"", b"[]"],
    ids=["deep", "nan", "infinity", "bytes", "none", "list"],
)
def test_what_is_no_json_is_no_status(run: Run, body: bytes) -> None:
    """And what is written of it with --json is."""
    with answering(200, body) as address:
        ended = run("status", address, "--json")
    assert ended.code == 75
    assert "does not serve an agent's status" in ended.document["agents"][0]["problem"]


def test_an_answer_that_leads_elsewhere_is_a_row_and_no_other_agent_loses_its_own(run: Run) -> None:
    """No address but the given one is asked, and one that is no address ends nothing."""
    with answering(200, json.dumps(WELL).encode()) as other, answering(302, b"", Location="http://[::1") as address:
        ended = run("status", address, other, "--json")
    assert ended.code == 75
    assert [each["answered"] for each in ended.document["agents"]] == [False, True]
    assert "returned 302" in ended.document["agents"][0]["problem"]


@contextmanager
def pouring(head: bytes, piece: bytes, *, until: threading.Event) -> Iterator[str]:
    """What answers with pieces that never end, a second apart unless it is told to hurry."""
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
                    pass  # whoever asked has gone

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            until.set()
            thread.join()


@pytest.mark.parametrize(("piece", "told"), [(b" ", "no answer within 1 s"), (b" " * 100_000, "returned more than")])
def test_an_answer_without_an_end_is_cut(run: Run, piece: bytes, told: str) -> None:
    """By the time that an agent may take, and by bytes."""
    with pouring(b"HTTP/1.1 200 OK\r\n\r\n", piece, until=threading.Event()) as address:
        timeout = "1" if len(piece) == 1 else "300"
        ended = run("status", address, "--timeout", timeout, "--json")
    assert ended.code == 75
    assert told in ended.document["agents"][0]["problem"]
