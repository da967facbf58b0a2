"""`tsctl cost`: its tables and JSON, the price file, agents that answer or do not, mistakes on the command line."""

import os
import re
import time
from html import unescape
from pathlib import Path

import pytest

from dev.local.ports import free_port
from tests.made_archive import MadeArchive, batches
from tests.tsctl.commands.agents import answering
from tests.tsctl.running import Run
from ts_common.archive.object_keys import SegmentName
from tsctl.cost.prices import EXAMPLE, read_prices

METRICS = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
# HELP ts_uploader_store_requests_total Requests to stores.
# TYPE ts_uploader_store_requests_total counter
ts_uploader_store_requests_total{{operation="put"}} 3000.0
ts_uploader_store_requests_total{{operation="delete"}} 0.0
"""


@pytest.fixture
def named(tmp_path: Path) -> tuple[object, ...]:
    """Return the options that name an archive of two topics and a price file; `old` is 100 days old."""
    archive = MadeArchive(tmp_path / "store")
    for topic in ("new", "old"):
        archive.put_segment(topic, 0, batches((0, 10), value=b"v" * 10_000), index=b"12345678")
        archive.commit(topic, 10)
    written = time.time() - 100 * 86_400
    for suffix in (".log", ".index"):
        os.utime(tmp_path / "store" / archive.partition("old").segment(SegmentName(0), suffix), (written, written))
    (tmp_path / "prices.yaml").write_text(EXAMPLE.read_text())
    return ("--url", archive.location, "--cluster", "prod", "--prices", tmp_path / "prices.yaml")


def test_the_tables_have_items_topics_and_what_they_are_based_on(run: Run, named: tuple[object, ...]) -> None:
    """In plain columns; the last lines name the prices, the source of requests and the growth."""
    ended = run("cost", *named)
    assert (ended.code, ended.err) == (0, "")
    bill, topics, notes = ended.out.split("\n\n")
    assert [line.split()[0] for line in bill.splitlines()] == [
        "ITEM",
        "storage",
        *("put", "list", "get", "head"),
        "total",
    ]
    assert {line.split()[0] for line in topics.splitlines()} == {"TOPIC", "new", "old"}
    assert [line.partition(":")[0] for line in notes.splitlines()] == ["prices", "requests", "growth"]
    assert "Amazon S3, us-east-1, 2025-10-28, in USD" in notes


def test_a_change_has_tables_of_its_own(run: Run, named: tuple[object, ...]) -> None:
    """What each item costs before and after, what the change costs once, and its assumptions; JSON has the same."""
    change = ("--retention", "90d", "--class", "GLACIER_IR", "--segment-bytes", "1GiB", "--to-entropy-bits", "4")
    ended = run("cost", *named, *change)
    assert ended.code == 0, ended.err
    _, _, after, once, notes = ended.out.split("\n\n")
    assert after.startswith("ITEM")
    assert "transition" in once
    assert [line.partition(":")[0] for line in notes.splitlines()[3:]] == ["retention", "segments", "class", "entropy"]
    document = run("cost", *named, *change, "--json").document
    assert document["after"]["total"] == pytest.approx(sum(line["amount"] for line in document["after"]["lines"]))
    assert {line["topic"] for line in document["after"]["lines"] if line["item"] == "storage"} == {"new", "old"}
    parts = document["usage"]["parts"]
    old = [document["usage"]["age_edges_days"][part["age"]] for part in parts if part["topic"] == "old"]
    assert max(old) == 90


def test_topics_can_be_chosen(run: Run, named: tuple[object, ...]) -> None:
    """By a regular expression; a topic that does not exist is named, with the nearest one."""
    document = run("cost", "ol.*", *named, "--json").document
    assert {part["topic"] for part in document["usage"]["parts"]} == {"old"}
    ended = run("cost", "odl", *named)
    assert (ended.code, ended.out) == (2, "")
    assert "topic odl: cluster prod has no such topic; did you mean old?" in ended.err


def test_agents_replace_the_estimate(run: Run, named: tuple[object, ...]) -> None:
    """3,000 PUTs in 3,000 seconds are one per second; between two readings that do not differ none."""
    body = METRICS.format(started=time.time() - 3000).encode()
    with answering(200, body, path="/metrics") as agent:
        document = run("cost", *named, "--agent", agent, "--json").document
        assert document["requests"]["estimated"] is False
        assert document["requests"]["monthly"]["put"] == pytest.approx(30 * 86_400, rel=0.05)
        assert sum(line["quantity"] for line in document["lines"] if line["item"] == "put") == pytest.approx(
            document["requests"]["monthly"]["put"]
        )
        document = run("cost", *named, "--agent", agent, "--over", "1s", "--json").document
        assert document["requests"]["monthly"]["put"] == 0
        ended = run("cost", "old", *named, "--agent", agent)
        assert (ended.code, "leave out the topics" in ended.err) == (2, True)


def test_an_agent_with_two_spellings_counts_once(run: Run, named: tuple[object, ...]) -> None:
    """Its requests would be doubled."""
    with answering(200, METRICS.format(started=time.time() - 3000).encode(), path="/metrics") as agent:
        spellings = (agent, f"http://{agent}", f"http://{agent}/")
        options = [text for each in spellings for text in ("--agent", each)]
        requests = run("cost", *named, *options, "--json").document["requests"]
    assert requests["source"].startswith("metrics of 1 process,")
    assert requests["monthly"]["put"] == pytest.approx(30 * 86_400, rel=0.05)


def test_a_file_without_an_agent_is_refused(run: Run, named: tuple[object, ...], tmp_path: Path) -> None:
    """An estimate would look like measured requests."""
    (tmp_path / "agents").write_text("# broker-1:9464\n\n")
    for further in ((), ("--agent", "h:1")):
        ended = run("cost", *named, "--agents", tmp_path / "agents", *further)
        assert (ended.code, ended.out) == (2, "")
        assert "agents: it has no address" in ended.err


def test_an_agent_that_does_not_answer_ends_the_command(run: Run, named: tuple[object, ...]) -> None:
    """A bill without its requests would be too low; the message names each such agent."""
    silent = f"127.0.0.1:{free_port()}"
    with answering(200, b"<html>", path="/metrics") as other:
        ended = run("cost", *named, "--agent", silent, "--agent", other)
    assert (ended.code, ended.out) == (75, "")
    assert f"{silent}: no answer" in ended.err
    assert f"{other}: http://{other}/metrics does not serve metrics of requests" in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--retention", "90"), "--retention: '90' is no time"),
        (("--segment-bytes", "0"), "--segment-bytes=0: more than 0 is expected"),
        (("--class", "GLACIER_IT"), "classes has no GLACIER_IT; did you mean GLACIER_IR?"),
        (("--over", "60s"), "it needs --agent"),
        (("--read-gb", "inf"), "--read-gb"),
        (("--plans", "1e308"), "--plans"),
        (("--agent", "a b"), "a b: not an address"),
        (("--prices", "/nonexistent.yaml"), "there is no such file"),
        (("--cluster", "porod"), "has no objects of cluster porod; it has prod; check the location"),
        (
            ("old", "--cluster", "porod"),
            "has no objects of cluster porod; it has prod; check the location",
        ),
    ],
)
def test_a_mistake_is_one_message(run: Run, named: tuple[object, ...], options: tuple[str, ...], message: str) -> None:
    """Before anything is counted."""
    ended = run("cost", *named, *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_a_store_outside_s3_needs_a_price_file(run: Run, named: tuple[object, ...], tmp_path: Path) -> None:
    """The command writes an example, which is a price file."""
    ended = run("cost", *named[:4])
    assert (ended.code, "--prices is missing" in ended.err) == (2, True)
    (tmp_path / "example.yaml").write_text(run("cost", "--example-prices").out)
    assert read_prices(tmp_path / "example.yaml") == read_prices(None)


def test_the_report_has_the_bill(run: Run, named: tuple[object, ...], tmp_path: Path) -> None:
    """The same rows as the command's; without prices the page has no such section."""
    for options, sections in ((named[:4], 0), (named, 1)):
        assert run("report", *options, "--output", tmp_path / "page.html").code == 0
        page = (tmp_path / "page.html").read_text()
        assert page.count('<h2 id="cost">') == sections
    rows = [unescape(row) for row in re.findall(r"<td>([^<]*)</td><td>STANDARD</td>", page)]
    assert rows == ["storage", "put", "list", "get", "head", "new", "old"]
    (notes,) = re.findall(r"<ul>(.*)</ul>", page)
    ended = run("cost", *named)
    assert [unescape(note) for note in re.findall(r"<li>(.*?)</li>", notes)] == ended.out.split("\n\n")[2].splitlines()
