"""Metrics that are sent to Graphite, to StatsD, and by a class of one's own."""

import gc
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from dev.local.ports import LOOPBACK, free_port
from dev.local.waiting import wait_for
from tests.monitoring.receivers import datagrams, graphite, hanging_up, statsd
from ts_common.config.cluster_config import parse_config
from ts_common.errors import ConfigurationError
from ts_uploader.environment import Environment
from ts_uploader.reporters.built_in import GraphiteReporter, StatsdReporter, open_reporter
from ts_uploader.reporters.contract import MetricsReporter, ReporterConfig, Reporting

SECONDS = 60.0


class Told:
    """A few metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sent = Counter("sent", "Sent.", ["outcome"], registry=self.registry)
        self.left = Gauge("left_seconds", "Left.", registry=self.registry)
        self.limit = Gauge("limit", "Limit.", registry=self.registry)
        self.took = Histogram("took_seconds", "Took.", buckets=(1, 2), registry=self.registry)
        self.sent.labels("it went.up").inc(3)
        self.left.set(2.5)
        self.limit.set(math.inf)
        self.took.observe(1.5)


@contextmanager
def reporting(reporter: MetricsReporter, metrics: Collector) -> Iterator[threading.Thread]:
    """A reporter on a thread, in turns of a hundredth of a second."""
    turns = Reporting(reporter, metrics, 0.01)
    thread = threading.Thread(target=turns.run)
    thread.start()
    try:
        yield thread
    finally:
        turns.stop()
        thread.join(SECONDS)


def config(port: int, *, prefix: str = "prod.1", tags: bool = False) -> ReporterConfig:
    return ReporterConfig(LOOPBACK, port, prefix, tags)


@pytest.mark.parametrize(
    ("tags", "sent"),
    [(False, "prod.1.sent_total.outcome.it_went_up 3.0"), (True, "prod.1.sent_total;outcome=it_went_up 3.0")],
    ids=["names", "tags"],
)
def test_graphite_is_sent_a_line_for_each_number(tags: bool, sent: str) -> None:
    """With the time in seconds, and nothing that is infinite."""
    began = int(time.time())
    with graphite() as (port, lines), reporting(GraphiteReporter(config(port, tags=tags)), Told().registry):
        wait_for(lambda: len(lines) >= 10, "lines to come", SECONDS)
    numbers = {line.rpartition(" ")[0] for line in lines}
    assert {sent, "prod.1.left_seconds 2.5", "prod.1.took_seconds_count 1.0"} <= numbers
    assert not [line for line in lines if "limit" in line or "inf" in line.split(" ")[1]]
    assert all(int(line.rpartition(" ")[2]) >= began for line in lines)


@pytest.mark.parametrize(
    ("tags", "sent"),
    [(False, "prod.1.sent_total.outcome.it_went_up:{}|c"), (True, "prod.1.sent_total:{}|c|#outcome:it_went_up")],
    ids=["names", "tags"],
)
def test_statsd_is_sent_gauges_and_what_counters_rose_by(tags: bool, sent: str) -> None:
    """A counter's whole value first, then its increase; of a histogram the sum and the count."""
    told = Told()
    with statsd() as (port, taken):
        reporter = StatsdReporter(config(port, tags=tags))
        reporter.report(told.registry)
        lines = b"\n".join(datagrams(taken, "prod.1.took_seconds_sum")).decode().splitlines()
        assert {sent.format(3), "prod.1.left_seconds:2.5|g", "prod.1.took_seconds_sum:1.5|c"} <= set(lines)
        assert not [line for line in lines if "bucket" in line]
        told.sent.labels("it went.up").inc(4)
        reporter.report(told.registry)
        lines = b"\n".join(datagrams(taken, "prod.1.took_seconds_sum")).decode().splitlines()
        assert {sent.format(4), "prod.1.took_seconds_sum:0|c"} <= set(lines)
        reporter.close()


def test_no_datagram_is_too_long_for_a_frame() -> None:
    """Many metrics are many datagrams, each of whole lines."""
    registry = CollectorRegistry()
    gauge = Gauge("gauge", "Gauge.", ["number"], registry=registry)
    for number in range(500):
        gauge.labels(f"{number:030d}").set(number)
    with statsd() as (port, taken):
        reporter = StatsdReporter(config(port))
        reporter.report(registry)
        found = datagrams(taken, f"prod.1.gauge.number.{499:030d}")
        reporter.close()
    assert all(len(datagram) <= 1432 for datagram in found)
    lines = b"\n".join(found).decode().splitlines()
    assert lines == [f"prod.1.gauge.number.{number:030d}:{number}|g" for number in range(500)]


@pytest.mark.parametrize("kind", [GraphiteReporter, StatsdReporter])
def test_an_unreachable_server_is_reported_once_and_found_when_it_returns(kind: type[MetricsReporter]) -> None:
    """One line however often the receiver is missing, and one when it is back."""
    port, told, tries = free_port(), Told(), 0

    class Counting(Collector):
        def collect(self) -> Any:
            nonlocal tries
            tries += 1
            return told.registry.collect()

    with capture_logs() as log, reporting(kind(config(port)), Counting()):
        wait_for(lambda: tries >= 5, "several tries", SECONDS)
        with (graphite if kind is GraphiteReporter else statsd)(port):
            wait_for(lambda: len(log) >= 2, "it to be reached", SECONDS)
    assert [line["event"] for line in log[:2]] == [
        "metrics_report_failed",
        "metrics_report_recovered",
    ]
    assert log[0]["port"] == port
    assert "ConnectionRefusedError" in log[0]["error"]


def test_no_socket_stays_open_where_graphite_cuts_the_connection() -> None:
    """Not even as long as the error is at hand: the report is longer than what both kernels hold for a peer."""
    registry = CollectorRegistry()
    gauge = Gauge("gauge", "Gauge.", ["name"], registry=registry)
    for number in range(16):
        gauge.labels(f"{number}{'n' * 1_000_000}").set(number)
    before = open_sockets()  # the kernel can give one port to connections with different servers
    with pytest.raises(ConnectionError) as cut, hanging_up() as (port, clients):
        GraphiteReporter(config(port)).report(registry)
    assert clients
    assert cut.value is not None
    assert not [each for each in open_sockets() if each not in before and each.getsockname() in clients]


def open_sockets() -> list[socket.socket]:
    """Return the open sockets of this process."""
    # By type: isinstance() reads the object of a weak proxy, which may not exist any more.
    return [each for each in gc.get_objects() if issubclass(type(each), socket.socket) and each.fileno() >= 0]


class Own(MetricsReporter):
    """A class of one's own, which fails at everything."""

    made: list["Own"] = []  # noqa: RUF012  (for the test)
    closed = False

    def __init__(self, config: ReporterConfig) -> None:
        super().__init__(config)
        Own.made.append(self)
        self.reports = 0

    def report(self, metrics: Collector) -> None:
        self.reports += 1
        raise LookupError("my own defect")

    def close(self) -> None:
        self.closed = True


def environment() -> Environment:
    return Environment(
        broker_id=7,
        log_dirs=(Path("/log"),),
        cluster_id="prod.eu",
        zookeeper_connect="",
        kraft=False,
    )


def test_a_class_of_ones_own_is_handed_its_options_and_may_fail() -> None:
    """Shipping continues whatever the reporter raises, and the reporter is closed at the end."""
    own = {"metrics.reporter.class": f"{__name__}:Own", "metrics.reporter.token": "t", "metrics.reporter.tags": "true"}
    parsed, _ = parse_config(own, "f")
    reporter = open_reporter(parsed, environment())
    assert isinstance(reporter, Own)
    assert reporter.config == ReporterConfig("127.0.0.1", None, "prod_eu.7", True, {"token": "t"})
    with capture_logs() as log, reporting(reporter, Told().registry) as thread:
        wait_for(lambda: reporter.reports >= 5, "several reports", SECONDS)
        assert thread.is_alive()
    assert [line["error"] for line in log] == ["LookupError: my own defect"]
    assert reporter.closed


def test_a_class_that_is_no_reporter_is_refused() -> None:
    """With the key that names it; without one there is no reporter."""
    for name, said in (
        (f"{__name__}:Told", "is not a subclass of ts_uploader.reporters.contract.MetricsReporter"),
        ("no:X", "cannot load"),
    ):
        parsed, _ = parse_config({"metrics.reporter.class": name}, "f")
        with pytest.raises(ConfigurationError, match=said) as refused:
            open_reporter(parsed, environment())
        assert refused.value.source == "metrics.reporter.class"
    assert open_reporter(parse_config({}, "f")[0], environment()) is None
