"""Stores that connect to S3 in the same way share the SDK's clients."""

import logging
import os
import signal
import warnings
from contextlib import ExitStack

import botocore.client
import pytest
from botocore.loaders import JSONFileLoader

from tests.common.store.servers import FakeServer, answer
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Connection, StorageOptions, Storing
from ts_common.store.s3.shared_clients import _OPENED
from ts_common.store.wrappers.bandwidth import Allowance

OK = answer("200 OK", etag='"e"', last_modified="Sat, 21 Nov 2026 04:00:00 GMT")


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> list[str]:
    """Record the service of each client that the SDK creates."""
    fake.answers = [OK]
    made: list[str] = []
    create = botocore.client.ClientCreator.create_client

    def counted(self: botocore.client.ClientCreator, service_name: str, *arguments: object, **named: object) -> object:
        made.append(service_name)
        return create(self, service_name, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(botocore.client.ClientCreator, "create_client", counted)
    return made


def tagged(number: int, connection: Connection | None = None, allowance: Allowance | None = None) -> ObjectStore:
    """Return one of many stores with different options of storing."""
    options = StorageOptions(connection or Connection(), Storing(tags=(("team", f"t{number}"),)))
    return open_store(f"s3://bucket-{number}", options, allowance=allowance or ALLOWANCE)


ALLOWANCE = Allowance()


def test_however_objects_are_stored_their_stores_share_two_clients(clients: list[str], fake: FakeServer) -> None:
    """Each store keeps its own options; a store with another connection has other clients."""
    with ExitStack() as opened:
        stores = [opened.enter_context(tagged(number)) for number in range(20)]
        assert clients == ["s3", "s3"]
        for number, store in enumerate(stores):
            store.put("a", b"x")
            assert fake.headers[-1]["x-amz-tagging"] == f"team=t{number}"
        opened.enter_context(tagged(20, Connection(region="eu-west-9")))
        assert len(clients) == 4
        opened.enter_context(tagged(21, allowance=Allowance(1 << 20)))
        assert len(clients) == 6


def test_the_last_store_closes_what_all_shared(clients: list[str]) -> None:
    """Closing a store, even twice, does not affect the others; after the last one the clients are opened again."""
    first, second = tagged(1), tagged(2)
    first.close()
    first.close()
    second.put("a", b"x")
    with tagged(3) as third:
        second.close()
        third.put("a", b"x")
    assert len(clients) == 2
    with tagged(4) as fourth:
        fourth.put("a", b"x")
    assert len(clients) == 4


def test_a_forked_process_shares_no_client_with_its_parent(clients: list[str]) -> None:
    """Two processes on one connection would read each other's answers; a lock of the parent is not waited for."""
    with tagged(1) as mine:
        mine.put("a", b"x")
        with _OPENED.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process may hold locks
            child = os.fork()
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own handler would run in this process
                signal.alarm(60)
                theirs = tagged(2)
                theirs.put("a", b"x")
                theirs.close()
                mine.close()
                os._exit(0 if len(clients) == 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        mine.put("a", b"x")
    assert len(clients) == 2


def test_the_environment_is_read_each_time_a_store_is_opened(
    clients: list[str], fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is read as without sharing."""
    with tagged(1):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
        with tagged(2) as second:
            second.put("a", b"x")
    assert "Credential=another/" in fake.headers[-1]["authorization"]
    assert len(clients) == 4


def test_the_sdks_description_of_s3_is_read_once(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each session reads ten megabytes, half of the cost of opening one."""
    fake.answers = [OK]
    with tagged(1, Connection(region="eu-west-1")):
        read: list[str] = []
        load = JSONFileLoader.load_file

        def counted(self: JSONFileLoader, path: str) -> object:
            found = load(self, path)
            if found is not None:
                read.append(path)
            return found

        monkeypatch.setattr(JSONFileLoader, "load_file", counted)
        for number in range(2, 5):
            tagged(number, Connection(region=f"eu-west-{number}")).close()
    assert [path for path in read if "/s3/" in path or "endpoints" in path] == []


def test_more_requests_than_kept_connections_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A planner sends more at once; other warnings of the library stay."""
    library = logging.getLogger("urllib3.connectionpool")
    library.warning("Connection pool is full, discarding connection: %s. Connection pool size: %s", "host", 32)
    library.warning("Retrying (%r) after connection broken", "once")
    assert [record.getMessage() for record in caplog.records] == ["Retrying ('once') after connection broken"]
