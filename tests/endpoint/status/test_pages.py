"""The endpoint's HTTP server."""

import asyncio
import http.client
import json
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from ts_common.errors import AddressInUse, ConfigurationError
from ts_endpoint.status.metric_families import make_registry
from ts_endpoint.status.pages import Pages, Pulse, Verdict


def asked(pages: Pages, path: str) -> tuple[int, str]:
    """Return the status and the body of a page."""
    with closing(http.client.HTTPConnection(pages.address, timeout=30)) as connection:
        connection.request("GET", path, headers={"Host": "any.example"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_metrics_health_and_readiness_are_served_under_any_name() -> None:
    """Probes get 503 while something is wrong, with the facts."""
    verdicts = [Verdict("ok", True, {"peers": "0123"})]
    pages = Pages("127.0.0.1:0", make_registry({"connections": lambda: 7}), lambda: verdicts[-1], lambda: verdicts[0])
    pages.start()
    try:
        assert "ts_endpoint_connections 7.0" in asked(pages, "/metrics")[1].splitlines()
        assert [json.loads(asked(pages, path)[1]) for path in ("/healthz", "/readyz?verbose")] == [
            {"status": "ok", "peers": "0123"},
            {"status": "ok", "peers": "0123"},
        ]
        verdicts.append(Verdict("stopping", False))
        status, body = asked(pages, "/healthz")
        assert (status, json.loads(body)) == (503, {"status": "stopping"})
        assert asked(pages, "/status.json") == (404, "/metrics, /healthz and /readyz are served here\n")
    finally:
        pages.stop()


def test_an_address_in_use_and_a_wrong_one_are_two_errors() -> None:
    """The first may be free soon; both name the option."""

    def pages(address: str) -> Pages:
        return Pages(address, CollectorRegistry(), lambda: Verdict("ok", True), lambda: Verdict("ok", True))

    first = pages("127.0.0.1:0")
    try:
        with pytest.raises(AddressInUse, match=r"--http-address .* perhaps another endpoint"):
            pages(first.address)
    finally:
        first.stop()
    for wrong in ("9465", "192.0.2.1:0", "127.0.0.1:99999"):
        with pytest.raises(ConfigurationError, match="--http-address"):
            pages(wrong)


def test_the_pulse_beats_while_the_loop_runs_and_ages_while_it_does_not() -> None:
    """By a clock of the test."""
    now = [0.0]
    pulse = Pulse(lambda: now[0], beat_seconds=0.001)

    async def run_until_a_beat() -> None:
        pulse.start()
        now[0] = 5.0
        async with asyncio.timeout(60):
            while pulse.age:
                await asyncio.sleep(0)

    asyncio.run(run_until_a_beat())
    pulse.stop()
    now[0] = 25.0
    assert pulse.age == 20.0
