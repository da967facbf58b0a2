"""`tsctl status`: reads many agents at once, with a row for each."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.local.ports import free_port
from tests.http_servers import Handler, serving
from tests.tsctl.commands.agents import IDLE, WELL, answering
from tests.tsctl.running import Run
from tsctl.agent_status import Answer

PARTITION = {
    "topic": "t",
    "partition": 0,
    "next_offset": 100,
    "lag_offsets": 50,
    "unshipped_segments": 2,
    "unshipped_bytes": 3_000_000,
    "oldest_unshipped_age_seconds": 3700,
    "retention_left_ratio": 0.25,
    "hole": True,
    "waits_for": "the high watermark",
}
ILL: dict[str, Any] = {
    **WELL,
    "broker": 2,
    "healthy": False,
    "partitions": [PARTITION, IDLE],
    "queue_length": 4,
    "last_errors": [
        {"time": "2026-11-22T06:00:00Z", "operation": "put", "partition": "t-0", "message": "AccessDenied: no"}
    ],
}


@pytest.fixture
def well() -> Iterator[str]:
    with answering(200, json.dumps(WELL).encode()) as address:
        yield address


@pytest.fixture
def ill() -> Iterator[str]:
    with answering(503, json.dumps(ILL).encode()) as address:
        yield address


def test_a_healthy_agent_is_a_row_and_status_0(well: str, run: Run, tmp_path: Path) -> None:
    """Addresses may be an argument, have a scheme, or be in a file with comments."""
    ended = run("status", well)
    assert ended.code == 0
    assert ended.out.splitlines()[1].split()[:7] == [well, "1", "prod", "0.1.0", "-", "yes", "yes"]
    (tmp_path / "agents").write_text(f"# our agents\n\n{well}  # the first\nhttp://{well}\n")
    ended = run("status", "--agents", tmp_path / "agents", "--json")
    assert [agent["status"] for agent in ended.document["agents"]] == [WELL, WELL]


def test_an_agent_that_is_not_well_makes_status_1(well: str, ill: str, run: Run) -> None:
    """Its row has its lag, what waits, and its last error; such an agent answers 503."""
    ended = run("status", well, ill)
    assert ended.code == 1
    row = ended.out.splitlines()[2]
    for told in ("no", "50", "3.0 MB", "1h 1m", "25%", "AccessDenied: no"):
        assert told in row
    ended = run("status", well, ill, "--partitions")
    (row,) = ended.out.splitlines()[1:]
    assert row.split()[:4] == [ill, "t-0", "100", "50"]
    assert row.endswith("the high watermark")


def test_the_row_of_an_agent_has_how_late_its_live_tail_is(run: Run, tmp_path: Path) -> None:
    """The latest of its logs counts; an agent without a tail, or of an earlier release, has none."""
    logs = [
        {"log": "1", "lag_seconds": 0.4, "failing": ""},
        {"log": "1.secret", "lag_seconds": 75.2, "failing": "AccessDenied"},
    ]
    for tail, shown in ((logs[:1], "0s behind"), (logs, "1m 15s behind, 1 log failing"), ([], "-"), ([{}], "unknown")):
        with answering(200, json.dumps({**WELL, "tail": tail}).encode()) as address:
            names, row = run("status", address).out.splitlines()
            run("status", address, "--html", tmp_path / "fleet.html")
        assert row[names.index("TAIL") :].startswith(shown)
        page = (tmp_path / "fleet.html").read_text()
        assert (f'<td class="">{shown}</td>' in page) == (shown != "-")


def test_u35_an_agent_with_a_stuck_partition_makes_status_1(run: Run) -> None:
    """It is healthy and ready, because a restart would not help; its row has the number of stuck partitions."""
    with answering(200, json.dumps({**WELL, "stuck": 3}).encode()) as stuck:
        ended = run("status", stuck)
    assert ended.code == 1
    names, row = (line.split() for line in ended.out.splitlines())
    assert (names[-4:], row[-3:]) == (["STUCK", "QUEUE", "LAST", "ERROR"], ["3", "0", "-"])
    with answering(200, json.dumps({**WELL, "stuck": 0}).encode()) as well:
        assert run("status", well).code == 0


def test_an_agent_that_is_not_ready_makes_status_1(run: Run) -> None:
    """It is healthy, but ships nothing yet."""
    with answering(200, json.dumps({**WELL, "ready": False}).encode()) as starting:
        ended = run("status", starting)
    assert ended.code == 1
    assert ended.out.splitlines()[1].split()[5:7] == ["yes", "no"]


def test_an_agent_that_is_not_well_by_its_own_judgement_makes_status_1(run: Run) -> None:
    """Its condition is in the row, and its sentence on standard error."""
    state = {"condition": "store_denied", "text": "The store denies access.", "seconds": 4.0, "well": False}
    with answering(200, json.dumps({**WELL, "state": state}).encode()) as denied:
        ended = run("status", denied)
    assert ended.code == 1
    assert "store_denied" in ended.out
    assert f"{denied}: The store denies access." in ended.err


def test_the_fleet_is_one_page_with_stores_first(ill: str, run: Run, tmp_path: Path) -> None:
    """Failing requests, then the agents, the worst first; text of agents stays text."""
    failing = {"location": "s3://b/p", "operation": "put", "reason": "full", "seconds": 3, "message": "<b>no</b>"}
    shipped = {"last_shipped": "2026-11-28T06:00:00+00:00", "shipped_bytes_per_second": 2_000_000}
    full = {**WELL, **shipped, "failing_requests": [failing], "state": {"condition": "store_full", "well": False}}
    nobody, file = f"127.0.0.1:{free_port()}", tmp_path / "fleet.html"
    with (
        answering(200, json.dumps(full).encode()) as one,
        answering(200, json.dumps({**WELL, **shipped}).encode()) as two,
    ):
        ended = run("status", two, one, ill, nobody, "--html", file)
    assert ended.code == 75
    assert ended.out == ""
    page = file.read_text()
    places = [page.index(text) for text in ("3 of 4 agents need attention", "s3://b/p: put fails: full", f">{two}<")]
    assert places == sorted(places)
    assert max(page.index(f">{agent}<") for agent in (one, ill, nobody)) < places[-1]
    assert "s3://b/p: put fails: full (1 agent). &lt;b&gt;no&lt;/b&gt;" in page
    assert "1 agent did not answer; whether a store fails their requests is unknown." in page
    assert "2.0 MB/s" in page
    assert "no answer" in page
    ended = run("status", ill, "--html", tmp_path / "missing" / "fleet.html")
    assert ended.code == 2
    assert "--html=" in ended.err


def test_the_fleet_page_lists_each_store_once_and_no_store_only_if_none_fails(run: Run, tmp_path: Path) -> None:
    """One entry for the directories of a store, one for a condition of a store; an agent without an answer has none."""
    denied = [
        {"location": "s3://b/p", "operation": "put", "reason": "access_denied", "message": f"PutObject t-{number}: no"}
        for number in range(3)
    ]
    state = {"condition": "store_denied", "text": "The store denies access: PutObject t-2: no", "well": False}
    hangs = {"condition": "store_hangs", "text": "An object store has not answered a request for 40 s.", "well": False}
    file = tmp_path / "fleet.html"
    with (
        answering(200, json.dumps({**WELL, "failing_requests": denied, "state": state}).encode()) as one,
        answering(200, json.dumps({**WELL, "state": hangs}).encode()) as two,
        answering(200, json.dumps({**WELL, "last_shipped": "2026-11-28T06:00:00+00:00"}).encode()) as good,
    ):
        run("status", one, two, good, "--html", file)
        page = file.read_text()
        run("status", good, f"127.0.0.1:{free_port()}", "--html", file)
    assert page.count("<li") == 2
    assert "s3://b/p: put fails: access_denied (1 agent). PutObject t-0: no<" in page
    assert f"store_hangs (1 agent). {hangs['text']}<" in page
    assert "No store fails" not in page
    assert "2026-11-28T06:00:00Z" in page
    page = file.read_text()
    assert "No store fails a request of the 1 agent that answered." in page
    assert "1 of 2 agents needs attention." in page
    run("status", f"127.0.0.1:{free_port()}", "--html", file)
    assert "No store fails" not in file.read_text()


NOON = "2026-11-28T12:00:00Z"


def cells_of(page: str) -> list[str]:
    """Return the texts of the cells of the first agent, after its address."""
    row = page.partition("<tbody>")[2].partition("</tr>")[0]
    return [cell.partition(">")[2] for cell in row.split("</td>")][1:-1]


@pytest.mark.parametrize(
    ("wrong", "waiting", "left", "led"),
    [
        ({"partitions": None}, "unknown", "unknown", "unknown"),
        ({"partitions": {"t-0": PARTITION}}, "unknown", "unknown", "unknown"),
        ({"partitions": [PARTITION, "t-1"]}, "unknown", "unknown", "unknown"),
        ({"partitions": [{**PARTITION, "unshipped_segments": True}]}, "unknown", "25%", "1"),
        ({"partitions": [{**PARTITION, "unshipped_segments": -5}]}, "unknown", "25%", "1"),
        (
            {"partitions": [{**PARTITION, "unshipped_bytes": "9", "oldest_unshipped_age_seconds": 1e300}]},
            "2 segments, size unknown, oldest unknown",
            "25%",
            "1",
        ),
        (
            {"partitions": [PARTITION, {**PARTITION, "unshipped_bytes": -1, "retention_left_ratio": 40}], "stuck": "3"},
            "4 segments, at least 3.0 MB, oldest 1h 1m",
            "at most 25%",
            "2, stuck unknown",
        ),
        ({"partitions": [{"topic": "t", "partition": 0}], "stuck": -1}, "unknown", "unknown", "1, stuck unknown"),
        ({"partitions": []}, "nothing", "", "0"),
    ],
)
def test_a_number_that_no_agent_serves_is_unknown(
    wrong: dict[str, Any], waiting: str, left: str, led: str, run: Run, tmp_path: Path
) -> None:
    """A missing or malformed field, of an agent of another release or of another program, is never counted as 0."""
    file = tmp_path / "fleet.html"
    with answering(200, json.dumps({**WELL, **wrong}).encode()) as foreign:
        run("status", foreign, "--html", file)
        table = run("status", foreign)
    cells = cells_of(file.read_text())
    assert cells[4:7] == [waiting, left, led]
    words = " ".join([*cells, table.out.splitlines()[1]]).split()
    assert not {"-5", "-1", "1e+300", "4000%", "None", "True"}.intersection(words)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "unknown"),
        ({"last_shipped": None}, "nothing since its start, rate unknown"),
        ({"last_shipped": 17}, "unknown"),
        ({"last_shipped": "2026-11-28T06:00:00"}, "unknown"),
        ({"last_shipped": NOON, "shipped_bytes_per_second": -4}, f"{NOON}, rate unknown"),
        ({"last_shipped": NOON, "shipped_bytes_per_second": 0}, NOON),
    ],
)
def test_a_time_or_a_rate_that_no_agent_serves_is_unknown(
    fields: dict[str, Any], shown: str, run: Run, tmp_path: Path
) -> None:
    """A time without a zone has no meaning; an earlier release has neither."""
    file = tmp_path / "fleet.html"
    foreign = {"broker": "x", "cluster": None, "version": 3, "state": {"condition": 1, "text": []}}
    with answering(200, json.dumps({**WELL, **foreign, **fields}).encode()) as address:
        run("status", address, "--html", file)
    cells = cells_of(file.read_text())
    assert (cells[:3], cells[3], cells[-1]) == (["unknown of unknown", "unknown", ""], shown, "unknown")


@pytest.mark.parametrize(
    "wrong",
    [
        {"healthy": "false"},
        {"ready": "no"},
        {"stuck": "3"},
        {"partitions": None},
        {"state": ["bad"]},
        {"state": {"well": "false"}},
        {"state": {"condition": "store_hangs"}},
    ],
    ids=str,
)
def test_a_value_that_no_agent_serves_is_no_sign_of_health(wrong: dict[str, Any]) -> None:
    """An agent is well only if its status has `true`, and no condition of another meaning."""
    assert Answer("a", {**WELL, "state": {"condition": "well", "well": True}}).is_well
    assert not Answer("a", {**WELL, **wrong}).is_well


def test_one_that_does_not_answer_makes_status_75(ill: str, run: Run) -> None:
    """It has a row too, and the other agents have theirs."""
    nobody = f"127.0.0.1:{free_port()}"
    with answering(200, b"<html>") as other, answering(404, b"") as wrong:
        ended = run("status", ill, nobody, other, wrong, "--json")
    assert ended.code == 75
    by_address = {agent["address"]: agent for agent in ended.document["agents"]}
    assert by_address[ill]["status"] == ILL
    assert "refused" in by_address[nobody]["problem"]
    assert "does not serve an agent's status" in by_address[other]["problem"]
    assert "returned 404; is this an agent?" in by_address[wrong]["problem"]
    assert [by_address[address]["answered"] for address in (ill, nobody, other, wrong)] == [True, False, False, False]
    assert len(ended.err.splitlines()) == 3


def test_the_reason_why_an_agent_does_not_answer_is_reported_once(run: Run) -> None:
    """The reason is on standard error, and its row has only "no answer"."""
    nobody = f"127.0.0.1:{free_port()}"
    ended = run("status", nobody)
    assert ended.out.splitlines()[1].endswith("no answer")
    assert "refused" not in ended.out
    assert ended.err.count("refused") == 1
    assert f"{nobody}: no answer: Failed to establish a new connection: Connection refused" in ended.err


def test_an_agent_that_is_addressed_under_another_name_reports_what_to_do(run: Run) -> None:
    """The agent's own message names the option that allows the name."""
    with answering(
        421, b"The request's Host is no name of this host; use one, or add it to http.allowed.hosts\n"
    ) as other:
        ended = run("status", other)
    assert ended.code == 75
    assert "add it to http.allowed.hosts" in ended.err


def test_the_last_error_is_the_newest(run: Run) -> None:
    """Agents list the newest error first."""
    errors = [{"message": "new"}, {"message": "old"}]
    with answering(200, json.dumps({**WELL, "last_errors": errors}).encode()) as address:
        assert run("status", address).out.splitlines()[1].split()[-1] == "new"


def test_requests_to_several_agents_are_sent_at_once(run: Run) -> None:
    """Each of two agents answers only after both have received a request."""
    both = threading.Barrier(2)

    class Waiting(Handler):
        def do_GET(self) -> None:
            both.wait(60)
            self.answer(200, json.dumps(WELL).encode())

    with serving(Waiting) as port:
        assert run("status", f"127.0.0.1:{port}", f"localhost:{port}", "--timeout", "120").code == 0


def test_u21_wrong_addresses_are_reported_at_once(run: Run, tmp_path: Path) -> None:
    """The exit code is 2, before any request."""
    ended = run("status", "ftp://host", "host:99999", "ok:1")
    assert ended.code == 2
    assert "2 problems" in ended.err
    assert "no agent is named" in run("status").err
    assert "cannot be read" in run("status", "--agents", tmp_path / "none").err
