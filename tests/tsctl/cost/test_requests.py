"""Requests a month: the estimate of docs/sizing.md, and rates of counters."""

import re

import pytest

from tests.docs.commands import CHECKOUT
from tests.tsctl.cost.made_usage import part, usage
from ts_common.archive.object_keys import INDEX_SUFFIXES
from ts_common.store.wrappers.counted import OPERATIONS as COUNTED
from ts_endpoint.status import metrics as endpoint
from ts_uploader.metrics.metrics_page import families, shown_name
from tsctl.cost.readings import parse_reading
from tsctl.cost.requests import (
    COUNTERS,
    ENDS_SECONDS,
    OPERATIONS,
    PER_SEGMENT,
    PUTS_BESIDE,
    Reading,
    between,
    estimate,
    scaled,
    since_start,
)
from tsctl.cost.usage import Kind

MONTH = 30 * 86_400


def test_the_estimate_has_the_requests_of_the_page() -> None:
    """A segment of three objects sends what the table of docs/sizing.md has, which a test counts at a real server."""
    text = (CHECKOUT / "docs/sizing.md").read_text().partition("## Requests of a segment")[2].partition("\n## ")[0]
    page: dict[str, float] = {}
    for method, times in re.findall(r"^\| (PUT|GET|HEAD|LIST) \|.*\| ([\d.]+) \|$", text, re.MULTILINE):
        page[method.lower()] = page.get(method.lower(), 0.0) + float(times)
    indexes = len(INDEX_SUFFIXES) - 1  # no transactions
    assert page == {"put": 1 + indexes + PUTS_BESIDE, **PER_SEGMENT}


def test_the_estimate_is_by_new_segments() -> None:
    """100 segments of the last 15 days are 200 a month, older ones none; two agents put their ends every 5 minutes."""
    held = usage(
        part("a", objects=100), part("a", kind=Kind.INDEX, objects=200), part("a", objects=999, days=40), brokers=2
    )
    assert estimate(held).monthly == {
        "put": 300 + 150 + 2 * MONTH / ENDS_SECONDS,
        "head": 200,
        "get": 50,
        "list": 50,
    }
    young = usage(part("a", objects=100), days=15)
    assert estimate(young).monthly == {"put": 500, "head": 400, "get": 100, "list": 100}


def test_rates_of_all_processes_are_projected() -> None:
    """Since the start 10 PUTs in 100 s and 40 in 200; between two readings only what was added."""
    first = [Reading("a", 1100, 1000, {"put": 10.0}), Reading("b", 1200, 1000, {"put": 40.0, "get": 1.0})]
    found = since_start(first)
    assert found.monthly == {"put": pytest.approx(0.3 * MONTH), "get": pytest.approx(MONTH / 200)}
    second = [Reading("a", 1110, 1000, {"put": 15.0}), Reading("b", 1220, 1000, {"put": 40.0, "get": 1.0, "head": 2.0})]
    found = between(first, second)
    assert found.monthly == {"put": pytest.approx(MONTH / 2), "get": 0, "head": pytest.approx(MONTH / 10)}
    assert found.source == "metrics of 2 processes, over 20 s"


def test_only_requests_of_segments_follow_their_number() -> None:
    """Of 1,000 measured GETs 50 are of 100 segments; half as many segments send 25 fewer."""
    held = usage(part("a", objects=100), brokers=1)
    measured = since_start([Reading("a", MONTH, 0, {"get": 1000.0, "head": 10.0})])
    assert scaled(measured, held, 0.5).monthly == {"get": 975, "head": 5}


def test_the_counters_are_those_of_agents_and_endpoints() -> None:
    """Their names and operations are in the registries of both."""
    names = {shown_name(family) for family in families()}
    names |= {f"{endpoint.PREFIX}_{family.name}_total" for family in endpoint.FAMILIES if family.kind == "counter"}
    assert {*COUNTERS} <= names
    assert {*OPERATIONS} == {*COUNTED}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>", "invalid metric name"),
        ("process_start_time_seconds 5\n", "it has no ts_uploader_store_requests_total"),
        ('ts_uploader_store_requests_total{operation="put"} 1\n', "it has no process_start_time_seconds"),
        ('ts_uploader_store_requests_total{operation="put"} nan\n', "it has no ts_uploader_store_requests_total"),
        ('ts_uploader_store_requests_total{operation="put"} 1e308\n', "it has no ts_uploader_store_requests_total"),
        ('a{b="' + '\\"' * 9_000 + '"} 1\n', "a line of more than 16384 characters"),
    ],
)
def test_a_page_without_the_counters_is_rejected(text: str, message: str) -> None:
    """Another server, or an agent of an earlier release."""
    with pytest.raises(ValueError, match=message):
        parse_reading(text, "a", 10)
