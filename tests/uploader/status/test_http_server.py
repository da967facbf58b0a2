"""What the agent serves over HTTP: the page of metrics, whole or not at all, and without a copy of it in memory."""

import http.client
import json
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tests.hostile_text import ESCAPES, raw_in
from tests.uploader.status.statuses import status_of, waiting
from ts_common.http_server.answers import metrics_page
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Listing
from ts_uploader.metrics.backlog_metrics import BacklogCollector
from ts_uploader.metrics.counters import Metrics
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.status.http_server import HealthServer
from ts_uploader.status.snapshot import AgentStatus
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason


def backlog(partitions: int) -> dict[TopicPartition, Backlog]:
    """Nothing waits but an answer."""
    waiting = {}
    for number in range(partitions):
        partition = TopicPartition("topic", number)
        listing = Listing(partition, (1, number), Path("/log"), (0,), (), False, None, 0)
        waiting[partition] = Backlog(listing, None, 0, 5, 10, hole=False, wait=Wait(WaitReason.STORE, "an answer"))
    return waiting


def registry_of(backlog: Callable[[], Mapping[TopicPartition, Backlog]]) -> CollectorRegistry:
    registry = Metrics().registry
    registry.register(BacklogCollector(backlog, lambda _: TopicRetention(), lambda: True))
    return registry


@contextmanager
def served(registry: CollectorRegistry, status: AgentStatus | None = None) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server of this page."""
    server = HealthServer("127.0.0.1:0", registry, status or status_of(lambda: backlog(3))[0])
    server.start()
    try:
        with closing(http.client.HTTPConnection(server.address, timeout=10)) as connection:
            yield connection
    finally:
        server.stop()


def without_the_process(page: bytes) -> list[str]:
    """Its lines but for those that are others at each snapshot."""
    return [line for line in page.decode().splitlines() if "process_" not in line]


@pytest.mark.parametrize("version", [11, 10], ids=["HTTP/1.1", "HTTP/1.0"])
def test_the_page_is_sent_in_pieces_and_equals_the_one_of_the_prometheus_client(version: int) -> None:
    """To clients that support chunks, and to those that do not."""
    registry = registry_of(lambda: backlog(3))
    with served(registry) as connection:
        connection._http_vsn = version  # type: ignore[attr-defined]  # it has no setting for that
        connection._http_vsn_str = f"HTTP/1.{version - 10}"  # type: ignore[attr-defined]
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read()
    assert answer.status == http.client.OK
    assert (answer.headers["Transfer-Encoding"] == "chunked") == (version == 11)
    assert without_the_process(page) == without_the_process(generate_latest(registry))
    assert 'ts_uploader_partition_waiting{partition="2",topic="topic"} 1.0' in page.decode().splitlines()


def test_a_page_that_breaks_off_is_not_accepted_as_a_whole_one() -> None:
    """The tracker does not answer: what was sent by then is no page."""

    def fail() -> Mapping[TopicPartition, Backlog]:
        raise TimeoutError("the tracker does not answer")

    with served(registry_of(fail)) as connection:
        connection.request("GET", "/metrics")
        with pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()


def test_the_page_needs_less_memory_than_its_length() -> None:
    """Neither all of its samples nor all of its text are ever in memory at once."""
    waiting = backlog(2000)
    registry = registry_of(lambda: waiting)
    size = sum(len(piece) for piece in metrics_page(registry))
    tracemalloc.start()
    try:
        for _ in metrics_page(registry):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 1_000_000
    assert peak < size


def asked(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Status and body of a page; a connection is for one answer."""
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.headers["Connection"] == "close"
    return answer.status, body


def test_health_is_reported_with_its_facts() -> None:
    """As JSON, and the connection ends with it."""
    with served(registry_of(dict)) as connection:
        code, body = asked(connection, "/healthz")
    facts = json.loads(body)
    assert (code, facts["status"], facts["partitions_led"], facts["leadership"]) == (200, "ok", 3, "watched")


def test_health_does_not_wait_for_an_agent_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first scan of ten thousand partitions needs time, and a probe that times out after a second ends nothing."""

    def wait() -> Mapping[TopicPartition, Backlog]:
        raise AssertionError("nobody asks for health by way of the tracker")

    status, *_ = status_of(wait)
    with served(registry_of(dict), status) as connection:
        assert [asked(connection, path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
    bound = status.sources.progress.bound_seconds
    late = time.monotonic() + bound
    monkeypatch.setattr("ts_uploader.status.snapshot.time.monotonic", lambda: late)
    assert not status.snapshot().healthy
    status.note_round(1)
    assert status.snapshot().healthy


def test_an_agent_whose_main_thread_does_not_respond_is_not_healthy_and_every_page_reports_it() -> None:
    """The other pages are served all the same: the operator needs them then."""

    def fail() -> Mapping[TopicPartition, Backlog]:
        raise TimeoutError

    status, *_ = status_of(fail)
    status.sources.progress.bound_seconds = 0.0
    with served(registry_of(dict), status) as connection:
        code, body = asked(connection, "/healthz")
        told = json.loads(asked(connection, "/status.json")[1])
        page = asked(connection, "/")[1].decode()
    assert (code, json.loads(body)["status"], told["healthy"]) == (503, "failing", False)
    assert told["partitions"] == []
    assert "main thread does not answer" in page


def test_readiness_waits_for_store_log_dirs_and_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named. Once all have answered the agent is ready, until one of them is away for longer than a restart."""
    status, source, _ = status_of(looked_at=None)
    status.store_answered = source.up = False
    with served(registry_of(dict), status) as connection:
        code, body = asked(connection, "/readyz")
        missing = {"configuration": True, "store": False, "log_dirs": False, "leadership": False}
        facts = json.loads(body)
        assert facts.pop("state")["condition"] == "starting"
        assert (code, facts) == (503, {"status": "waiting", **missing})
    status, source, _ = status_of()
    with served(registry_of(dict), status) as connection:
        assert asked(connection, "/readyz")[0] == 200
        source.up = False
        assert asked(connection, "/readyz")[0] == 200
        late = time.monotonic() + 40
        monkeypatch.setattr("ts_uploader.status.snapshot.time.monotonic", lambda: late)
        code, body = asked(connection, "/readyz")
        assert (code, json.loads(body)["state"]["condition"]) == (503, "leadership_unknown")
        assert b"Leadership is unknown for 40 s" in asked(connection, "/")[1]


def test_other_paths_return_the_list_of_served_paths() -> None:
    """And a query behind a path does not matter."""
    with served(registry_of(dict)) as connection:
        code, body = asked(connection, "/nowhere")
        assert asked(connection, "/healthz?verbose")[0] == 200
    assert code == 404
    assert b"/status.json" in body


STATUS_PAGES = ("/", "/status.json")
PUBLIC_PAGES = ("/metrics", "/healthz", "/readyz")


def spoken(address: str, head: str) -> tuple[int, str]:
    """Status and text of the answer to a request that is sent as it is written here."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read().decode()


@pytest.fixture
def address() -> Iterator[str]:
    """Of a server with two further names."""
    configured = lambda: ("pages.example", ".internal.example")  # noqa: E731
    server = HealthServer("127.0.0.1:0", registry_of(dict), status_of(lambda: backlog(3))[0], configured)
    server.start()
    yield server.address
    server.stop()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("10.1.2.3:9464", 200),
        ("[::1]:9464", 200),
        ("[fe80::1]", 200),
        ("localhost:1", 200),
        ("LocalHost.", 200),
        (socket.gethostname(), 200),
        (socket.getfqdn(), 200),
        ("pages.example:443", 200),
        ("a.b.internal.example", 200),
        ("internal.example", 421),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost.attacker.example:9464", 421),
        ("2130706433", 421),
        ("pages.example@attacker.example", 421),
        ("a b", 400),
        ("[::1", 400),
        ("", 400),
    ],
)
def test_status_pages_are_served_under_addresses_and_known_names_only(address: str, host: str, status: int) -> None:
    """A site whose name resolves to the agent gets none of them; metrics and health have no such limit."""
    for path in STATUS_PAGES:
        code, text = spoken(address, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
        assert code == status
        assert status != 421 or ("ts.segment.uploader.http.allowed.hosts" in text and "attacker" not in text)
    for path in PUBLIC_PAGES:
        assert spoken(address, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")[0] == 200


def test_several_hosts_are_refused_and_no_host_only_where_it_is_demanded(address: str) -> None:
    """HTTP/1.0 demands none, and no browser speaks that."""
    twice = "Host: 127.0.0.1\r\nHost: attacker.example\r\n"
    for path in (*STATUS_PAGES, *PUBLIC_PAGES):
        assert spoken(address, f"GET {path} HTTP/1.1\r\n{twice}\r\n")[0] == 400
        assert spoken(address, f"GET {path} HTTP/1.0\r\n\r\n")[0] == 200
        assert spoken(address, f"GET {path} HTTP/1.1\r\n\r\n")[0] == (400 if path in STATUS_PAGES else 200)
    assert spoken(address, "GET / HTTP/1.0\r\nHost: attacker.example\r\n\r\n")[0] == 421


def test_every_answer_forbids_sniffing_keeping_and_framing() -> None:
    """Refusals too, those of the base class among them."""
    with served(registry_of(dict)) as connection:
        for method, path in (("GET", path) for path in (*STATUS_PAGES, *PUBLIC_PAGES, "/no")):
            connection.request(method, path)
            answer = connection.getresponse()
            answer.read()
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        connection.request("POST", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (501, "nosniff")
        answer.read()


@pytest.mark.parametrize("path", [*STATUS_PAGES, *PUBLIC_PAGES, "/no"])
def test_a_head_request_gets_the_head_of_the_page(address: str, path: str) -> None:
    """As load balancers probe: status and headers of GET, and no byte of a body."""
    host, _, port = address.rpartition(":")
    heads = []
    for method in ("GET", "HEAD"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head, _, body = b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\r\n\r\n")
        heads.append([line for line in head.split(b"\r\n") if not line.startswith((b"Date", b"Content-Length"))])
        assert (body == b"") == (method == "HEAD")
    assert heads[0] == heads[1]


def test_pages_show_no_character_that_reorders_a_line_or_commands_a_terminal() -> None:
    """Texts are what a store or a broker answered, and what a partition waits for."""
    status, _, errors = status_of(lambda: dict([waiting("topic", waits_for=ESCAPES)]))
    errors.note("Ship", "topic-0", f"refused: {ESCAPES}")
    with served(registry_of(dict), status) as connection:
        for path in STATUS_PAGES:
            _, body = asked(connection, path)
            assert body.decode().count("pwned") == 2
            assert raw_in(body.decode()) == []
