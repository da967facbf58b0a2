"""`tsctl cost`: its tables and JSON, the price file, mistakes on the command line."""

import os
import re
import time
from html import unescape
from pathlib import Path

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.running import Run
from ts_common.archive.object_keys import SegmentName
from tsctl.cost.prices import EXAMPLE, read_prices


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
    """In plain columns; the last lines name the prices and the source of requests."""
    ended = run("cost", *named)
    assert (ended.code, ended.err) == (0, "")
    bill, topics, notes = ended.out.split("\n\n")
    assert [line.split()[0] for line in bill.splitlines()] == [
        "ITEM",
        "storage",
        *("put", "get", "head"),
        "total",
    ]
    assert {line.split()[0] for line in topics.splitlines()} == {"TOPIC", "new", "old"}
    assert [line.partition(":")[0] for line in notes.splitlines()] == ["prices", "requests"]
    assert "Amazon S3, us-east-1, 2025-10-28, in USD" in notes


def test_a_change_has_columns_of_its_own(run: Run, named: tuple[object, ...]) -> None:
    """The month after it, and what the change costs once; JSON has the same."""
    change = ("--retention", "90d", "--class", "GLACIER_IR", "--segment-bytes", "1GiB")
    ended = run("cost", *named, *change)
    assert ended.code == 0, ended.err
    bill, topics, _ = ended.out.split("\n\n")
    for table in (bill, topics):
        assert table.split("\n")[0].split()[-3:] == ["MONTH", "AFTER", "ONCE"]
    assert "transition" in bill
    document = run("cost", *named, *change, "--json").document
    assert document["after"]["total"] == pytest.approx(sum(line["amount"] for line in document["after"]["lines"]))
    assert {line["topic"] for line in document["after"]["once"] if line["item"] == "transition"} == {"new"}
    assert max(part["days"] for part in document["usage"] if part["topic"] == "old") == 90


def test_topics_can_be_chosen(run: Run, named: tuple[object, ...]) -> None:
    """By a regular expression; a topic that does not exist is named, with the nearest one."""
    document = run("cost", "ol.*", *named, "--json").document
    assert {part["topic"] for part in document["usage"]} == {"old"}
    ended = run("cost", "odl", *named)
    assert (ended.code, ended.out) == (2, "")
    assert "topic odl: cluster prod has no such topic; did you mean old?" in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--retention", "90"), "--retention: '90' is no time"),
        (("--segment-bytes", "0"), "--segment-bytes=0: more than 0 is expected"),
        (("--class", "GLACIER_IT"), "classes has no GLACIER_IT; did you mean GLACIER_IR?"),
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
    assert rows == ["storage", "put", "get", "head", "new", "old"]
    (notes,) = re.findall(r"<ul>(.*)</ul>", page)
    ended = run("cost", *named)
    assert [unescape(note) for note in re.findall(r"<li>(.*?)</li>", notes)] == ended.out.split("\n\n")[2].splitlines()
