"""The answers of a page: whole, in chunks, and their heads."""

import http.client
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ts_common.http_server.answers import NO_PAGE_POLICY, Answers, metrics_page
from ts_common.http_server.listening import HttpServer


class Pages(Answers):
    """One page for each kind of answer."""

    def page(self, path: str) -> None:
        """Answer."""
        match path:
            case "/whole":
                self.answer(404, "text/plain", b"nothing here")
            case "/pieces":
                self.stream("text/plain", iter([b"first ", b"second"]))
            case "/breaks":
                self.stream("text/plain", self._broken())
            case "/well" | "/ill":
                self.verdict(path[1:], {"peers": 3}, well=path == "/well")

    def _broken(self) -> Iterator[bytes]:
        yield b"first"
        raise ConnectionError("the source of the page is gone")


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1:0", Pages, "test")
    made.start()
    yield made
    made.stop()


def answered(
    server: HttpServer, path: str, method: str = "GET", version: int = 11
) -> tuple[http.client.HTTPMessage, int, bytes]:
    """Return the headers, the status and the body of an answer."""
    with closing(http.client.HTTPConnection(server.address, timeout=30)) as connection:
        connection._http_vsn = version  # type: ignore[attr-defined]  # it has no setting for that
        connection._http_vsn_str = f"HTTP/1.{version - 10}"  # type: ignore[attr-defined]
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.headers, answer.status, answer.read()


@pytest.mark.parametrize("version", [11, 10], ids=["HTTP/1.1", "HTTP/1.0"])
def test_a_page_in_pieces_arrives_whole_in_both_versions(server: HttpServer, version: int) -> None:
    """In chunks if the client supports them."""
    headers, status, body = answered(server, "/pieces?query", version=version)
    assert (status, body) == (200, b"first second")
    assert (headers["Transfer-Encoding"] == "chunked") == (version == 11)


def test_a_client_notices_a_page_that_breaks_off(server: HttpServer) -> None:
    """The last chunk is missing."""
    with pytest.raises(http.client.IncompleteRead):
        answered(server, "/breaks")


@pytest.mark.parametrize(("path", "status"), [("/well", 200), ("/ill", 503)])
def test_a_probe_gets_its_verdict_with_facts(server: HttpServer, path: str, status: int) -> None:
    """As JSON; the status is what load balancers read."""
    _, found, body = answered(server, path)
    assert (found, json.loads(body)) == (status, {"status": path[1:], "peers": 3})


@pytest.mark.parametrize("path", ["/whole", "/pieces", "/well"])
def test_a_head_request_gets_the_head_alone(server: HttpServer, path: str) -> None:
    """Its status and type are those of GET."""
    whole, head = answered(server, path), answered(server, path, "HEAD")
    assert head[2] == b"" != whole[2]
    assert (head[1], head[0]["Content-Type"]) == (whole[1], whole[0]["Content-Type"])


@pytest.mark.parametrize(
    ("path", "method"), [("/whole", "GET"), ("/pieces", "GET"), ("/well", "GET"), ("/well", "POST")]
)
def test_every_answer_protects_a_browser(server: HttpServer, path: str, method: str) -> None:
    """Also an error of the base class: nothing is loaded, framed, guessed or kept."""
    headers, _, _ = answered(server, path, method)
    assert headers["Content-Security-Policy"] == NO_PAGE_POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


_FAMILIES, _SAMPLES = 20, 1000


class Many(Collector):
    """Families with many samples."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: to register reads nothing."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each family when it is wanted."""
        for number in range(_FAMILIES):
            family = GaugeMetricFamily(f"family_{number}", "A family.", labels=["partition"])
            for sample in range(_SAMPLES):
                family.add_metric([f"a-long-name-of-a-topic-{sample}"], sample)
            yield family


def test_the_pieces_are_prometheus_own_text() -> None:
    """One piece for each family."""
    registry = CollectorRegistry()
    registry.register(Many())
    pieces = [*metrics_page(registry)]
    assert len(pieces) == _FAMILIES
    assert b"".join(pieces) == generate_latest(registry)


def test_a_page_needs_less_memory_than_it_is_long() -> None:
    """Neither all of its samples nor all of its text are in memory at once."""
    registry = CollectorRegistry()
    registry.register(Many())
    size = sum(map(len, metrics_page(registry)))
    tracemalloc.start()
    try:
        for _ in metrics_page(registry):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size
