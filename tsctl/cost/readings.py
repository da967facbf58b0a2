"""Reads the counters of requests from `/metrics` of agents and endpoints."""

import time
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from ts_common.errors import StoreUnavailable
from ts_common.json_objects import MAX_INT64
from ts_reader.reading.parallel import in_threads
from tsctl.agents import NoPage, get_page
from tsctl.cost.requests import COUNTERS, OPERATIONS, START, Reading, Requests, between, since_start

_LONGEST_LINE: Final = 16 << 10  # characters
_LONGEST_REASON: Final = 500
_NO_METRICS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of text of another server


def read_requests(urls: Mapping[str, str], over_seconds: float | None, timeout: float) -> Requests:
    """Return the requests a month of all processes.

    Args:
        urls: of `/metrics`, by the address as it was given.
        over_seconds: the time between two readings; None for the rate since each process began.
        timeout: seconds of one request.

    Raises:
        StoreUnavailable: a process did not answer, serves no such counters, or was restarted between the readings; the
            message has each of them.
    """
    with urllib3.PoolManager(timeout=timeout, retries=False, num_pools=len(urls)) as pool:
        first = _read_all(pool, urls, timeout)
        if over_seconds is None:
            return since_start(first)
        time.sleep(over_seconds)
        second = _read_all(pool, urls, timeout)
    restarted = [each.address for old, each in zip(first, second, strict=True) if old.started != each.started]
    if restarted:
        raise StoreUnavailable(f"{', '.join(restarted)}: restarted between the two readings; run the command again")
    return between(first, second)


def _read_all(pool: urllib3.PoolManager, urls: Mapping[str, str], timeout: float) -> Sequence[Reading]:
    def read(one: tuple[str, str]) -> Reading | str:
        address, url = one
        body = get_page(pool, url, timeout)
        if isinstance(body, NoPage):
            return f"{address}: {body.problem}"
        try:
            return parse_reading(body.decode(), address, time.time())
        except _NO_METRICS as error:  # a UnicodeDecodeError too
            return f"{address}: {url} does not serve metrics of requests: {str(error)[:_LONGEST_REASON]}"

    found = in_threads(read, urls.items())
    problems = [each for each in found if isinstance(each, str)]
    if problems:
        raise StoreUnavailable("; ".join(problems))
    return [each for each in found if isinstance(each, Reading)]


def parse_reading(text: str, address: str, at: float) -> Reading:
    """Return the counters in a page of metrics.

    Args:
        text: in Prometheus' format.
        address: of the process.
        at: seconds since the epoch.

    Raises:
        ValueError: the page has another format, or lacks a counter.
    """
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:  # the parser's time grows with the square of it
        raise ValueError(f"it has a line of more than {_LONGEST_LINE} characters")
    counts: dict[str, float] = {}
    started = None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            operation = sample.labels.get("operation")
            if not isfinite(sample.value):
                continue
            if sample.name in COUNTERS and operation in OPERATIONS and 0 <= sample.value <= MAX_INT64:
                counts[operation] = counts.get(operation, 0.0) + sample.value
            elif sample.name == START:
                started = sample.value
    if not counts:
        raise ValueError(f"it has no {COUNTERS[0]}; agents of an earlier release count no requests")
    if started is None:
        raise ValueError(f"it has no {START}")
    return Reading(address, at, started, counts)
