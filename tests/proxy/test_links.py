"""Links that are cut, stalled and delayed, between real clients and real servers."""

import io
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import EndpointConnectionError, HTTPClientError, ReadTimeoutError
from kazoo.client import KazooClient

from dev.local.kafka.cluster import LocalCluster
from dev.local.ports import free_port
from dev.local.proxy.link import LinkProxy
from dev.local.stores.s3 import S3Server
from dev.local.waiting import wait_for
from tests.proxy.conftest import ClientOf
from tests.proxy.objects import BUCKET, stored

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def link(s3: S3Server) -> Iterator[LinkProxy]:
    """Open a link to the S3 server."""
    with LinkProxy("s3", s3.port) as link:
        yield link


@pytest.fixture
def through(client_of: ClientOf, link: LinkProxy) -> "S3Client":
    """Return a client of the link."""
    return client_of(f"http://{link.address}")


@contextmanager
def zookeeper_client(address: str) -> Iterator[KazooClient]:
    """Start a client with a session of two seconds."""
    client = KazooClient(hosts=address, timeout=2.0)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def connect(link: LinkProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=10)


def test_a_link_passes_all_bytes_and_counts_them(link: LinkProxy, through: "S3Client") -> None:
    """A large object is unchanged, over one reused connection."""
    content = bytes(range(256)) * 40_000
    through.put_object(Bucket=BUCKET, Key="link", Body=io.BytesIO(content))
    with through.get_object(Bucket=BUCKET, Key="link")["Body"] as body:
        assert body.read() == content
    seen = link.counters()
    assert seen.moved > 2 * len(content)
    assert (seen.accepted, seen.open, seen.cuts, seen.reset, seen.refused) == (1, 1, 0, 0, 0)


def test_a_cut_resets_existing_and_new_connections(link: LinkProxy, through: "S3Client") -> None:
    """Existing and new connections are reset until `heal`; then the same client works again."""
    through.list_buckets()
    link.cut()
    assert (link.counters().open, link.counters().reset, link.counters().cuts) == (0, 1, 1)
    # The reset may arrive while a client connects or reads.
    with pytest.raises((HTTPClientError, EndpointConnectionError)):
        through.list_buckets()
    with pytest.raises(ConnectionResetError), connect(link) as refused:
        refused.recv(1)
    assert link.counters().refused >= 1
    link.heal()
    through.list_buckets()
    assert link.counters().open == 1


def test_a_stalled_link_is_a_black_hole(link: LinkProxy, client_of: ClientOf) -> None:
    """Connections are kept and accepted, but no byte and no end passes; sent bytes arrive after `heal`."""
    impatient, patient = client_of(f"http://{link.address}", 0.2), client_of(f"http://{link.address}")
    patient.list_buckets()
    link.stall()
    before = link.counters()
    with pytest.raises(ReadTimeoutError):
        impatient.put_object(Bucket=BUCKET, Key="stalled", Body=b"x")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.list_buckets)
        wait_for(lambda: link.counters().accepted == before.accepted + 1, "the impatient client's connection")
        now = link.counters()
        assert (now.moved, now.open, now.reset) == (before.moved, 2, 0)
        assert not waiting.done()
        link.heal()
        waiting.result()
    # On the other connection, which no client reads any more.
    assert wait_for(lambda: stored(patient, "stalled"), "the stalled object to be there") == b"x"


def test_a_servers_end_does_not_pass_a_stalled_link() -> None:
    """A server that stops behind a stalled link looks alive until the link heals."""
    with socket.create_server(("127.0.0.1", free_port())) as server, ExitStack() as ends:
        link = ends.enter_context(LinkProxy("stalled", server.getsockname()[1]))
        client = ends.enter_context(connect(link))
        behind, _ = server.accept()
        behind.sendall(b"a")
        assert client.recv(1) == b"a"
        link.stall()
        behind.close()
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        link.heal()
        client.settimeout(10)
        assert client.recv(1) == b""


def test_a_delayed_link_holds_each_block(link: LinkProxy, through: "S3Client") -> None:
    """A request on a slow link succeeds; on a far too slow one it waits until the link heals."""
    link.delay(0.01)
    through.list_buckets()
    link.delay(3600)
    before = link.counters().moved
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(through.list_buckets)
        with connect(link) as beside:
            beside.settimeout(0.1)
            beside.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(TimeoutError):
                beside.recv(1)
        assert (waiting.done(), link.counters().moved) == (False, before)
        link.heal()
        waiting.result()


def test_connections_cost_no_thread(link: LinkProxy) -> None:
    """One thread carries a hundred connections."""
    before = threading.active_count()
    with ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(connect(link))
        wait_for(lambda: link.counters().open == 100, "a hundred connections")
        assert threading.active_count() == before
    wait_for(lambda: link.counters().open == 0, "all of them to end")


def test_a_link_without_a_server_resets_its_clients_and_waits_for_the_server() -> None:
    """The server may start after the link."""
    port = free_port()
    with LinkProxy("nobody", port) as link:
        with pytest.raises(ConnectionResetError), connect(link) as client:
            client.recv(1)
        with socket.create_server(("127.0.0.1", port)) as server, connect(link) as client:
            behind, _ = server.accept()
            client.sendall(b"late")
            assert behind.recv(4) == b"late"
            behind.close()
            assert client.recv(1) == b""


@pytest.mark.full  # a cluster with links
def test_a_zookeeper_session_outlives_a_short_cut_and_ends_in_a_long_stall(linked: LocalCluster) -> None:
    """After a cut the client keeps its session; after a stall beyond its timeout it has another one."""
    assert linked.zookeeper is not None
    with LinkProxy("client:zookeeper", linked.zookeeper.port) as link, zookeeper_client(link.address) as client:
        session = client.client_id[0]
        client.create("/mine", b"", ephemeral=True)
        link.cut()
        wait_for(lambda: not client.connected, "the client to notice")
        link.heal()
        wait_for(lambda: client.connected, "the client to come back")
        assert client.client_id[0] == session
        link.stall()
        with linked.zookeeper.client() as other:
            wait_for(lambda: other.exists("/mine") is None, "the session to end")
        link.heal()
        wait_for(lambda: client.connected and client.client_id[0] != session, "another session")
