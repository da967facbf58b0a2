"""Stores of both kinds for one contract suite: a directory, and a real S3 server (SeaweedFS)."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.loaders import create_loader

from tests.store.servers import FakeServer
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_local.s3 import S3Server

BUCKET = "contract"
CLOSED_BUCKET = "closed"
# A directory that nobody may write to, root included.
CLOSED_DIRECTORY = "file:///sys/kernel"

OpenStore = Callable[[str], ObjectStore]


@dataclass(frozen=True)
class Place:
    """Where a driver under test stores things.

    Attributes:
        location: an empty store.
        missing: a bucket or directory that does not exist.
        closed: one that exists, and that the tests' identity may not write to.
        kind: "s3" or "file".
    """

    location: str
    missing: str
    closed: str
    kind: str


@pytest.fixture(scope="session", autouse=True)
def one_loader() -> Iterator[None]:
    """The SDK reads its description of S3 once, and not for each store: half of what these tests took."""
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.session.create_loader", lambda *_: loader)
        yield


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server of this session, with a bucket for the tests' identity and one that it may not use."""
    directory = tmp_path_factory.mktemp("s3")
    server = S3Server(directory, directory, restricted_buckets=(BUCKET, "missing*"))
    server.start()
    try:
        server.create_bucket(BUCKET)
        server.create_bucket(CLOSED_BUCKET)
        yield server
    finally:
        server.kill()


@pytest.fixture
def aws(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, which the environment names, with the identity that may not create buckets."""
    _no_configuration_of_this_machine(monkeypatch)
    for name, value in s3_server.environment(s3_server.restricted).items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def open_s3(aws: S3Server) -> Iterator[OpenStore]:
    """Opens stores on the server by their URL, and closes them."""
    del aws
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(open_store(url, timeout_seconds=20))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server that answers as it is told, which the environment names."""
    _no_configuration_of_this_machine(monkeypatch)
    with FakeServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield server


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for each driver."""
    if request.param == "s3":
        request.getfixturevalue("aws")
        return Place(
            f"s3://{BUCKET}/base/{uuid.uuid4().hex}",
            f"s3://missing-{uuid.uuid4().hex[:8]}/base",
            f"s3://{CLOSED_BUCKET}/base",
            "s3",
        )
    root = tmp_path / "root"
    root.mkdir()
    return Place(f"file://{root}", f"file://{tmp_path}/missing", CLOSED_DIRECTORY, "file")


@pytest.fixture
def store(place: Place) -> Iterator[ObjectStore]:
    """An empty store of each driver."""
    with open_store(place.location, timeout_seconds=20, threads=16) as opened:
        yield opened


def _no_configuration_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
