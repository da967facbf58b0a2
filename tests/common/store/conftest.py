"""Stores of each kind for one contract suite: a directory, and real servers of S3, Azure, Google and HDFS."""

import gc
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.local.stores.azurite import AzuriteServer
from dev.local.stores.fake_gcs import GcsServer
from dev.local.stores.hdfs import HdfsServer
from dev.local.stores.moto import MotoServer
from dev.local.stores.s3 import S3Server
from tests.common.store.servers import FakeServer
from tests.conftest import empty_place
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

BUCKET = "contract"
CLOSED_BUCKET = "closed"
# A directory that no user may write to, root included.
CLOSED_DIRECTORY = "file:///sys/kernel"

KINDS = ("s3", "moto", "gs", "az", "webhdfs", "file")

# moto and the emulator of Google ignore the condition of a copy.
IGNORED_OF_COPIES = {
    "test_a_copy_to_an_existing_name_is_refused",
    "test_copies_of_sixteen_threads_to_one_name_have_one_winner",
}
# The emulator of Google ignores the condition of a delete.
IGNORED_OF_DELETES = {
    "test_a_conditional_delete_keeps_an_object_with_another_etag",
    "test_an_object_that_is_overwritten_at_once_is_not_removed",
}
# Rules of the contract that moto's server breaks; with moto these tests would not test the driver.
MOTO_DOES_NOT = {
    # It compares no checksum with the body.
    "test_bytes_of_another_checksum_are_refused",
    # It checks the condition first and writes after, with other requests in between.
    "test_if_absent_of_sixteen_threads_has_one_winner",
    "test_if_match_of_sixteen_threads_has_one_winner",
    # It writes the object first and its metadata after.
    "test_a_reader_never_meets_a_mix_of_content_and_metadata",
    # It has no permissions.
    "test_a_place_that_is_closed_to_this_identity_is_access_denied",
    "test_an_object_that_is_overwritten_at_once_is_not_removed",
    *IGNORED_OF_COPIES,
}

# The emulator of Google has no permissions. That of Azure has only the account's key, so
# tests/common/store/azure/test_account.py has another test.
OTHERS_DO_NOT = {"test_a_place_that_is_closed_to_this_identity_is_access_denied"}
# Many single puts take seconds there.
SLOW_ELSEWHERE = {
    "test_more_keys_than_a_page_are_listed_and_deleted",
    "test_a_prefix_is_a_prefix_of_the_key",
    "test_start_after_omits_the_keys_up_to_it",
    "test_a_part_of_a_key_may_begin_with_a_dot",
    "test_contents_of_one_size_have_different_etags",
}

# HDFS sends four or five requests where others send one: `make test` runs the tests of what only its driver does.
QUICK_ON_HDFS = {
    "test_what_is_put_is_got",
    "test_if_absent_writes_once",
    "test_if_absent_of_sixteen_threads_has_one_winner",
    "test_if_match_of_sixteen_threads_has_one_winner",
    "test_if_match_over_something_else_is_refused",
    "test_a_conditional_delete_removes_objects_that_have_their_etags",
    "test_a_conditional_delete_keeps_an_object_with_another_etag",
    "test_the_source_of_a_copy_stays",
    "test_a_copy_to_an_existing_name_is_refused",
    "test_a_copy_of_a_missing_source_is_not_found",
    "test_bytes_of_another_checksum_are_refused",
    "test_a_reader_that_ends_early_writes_nothing",
    "test_a_body_is_sent_at_the_rate_of_the_allowance",
    "test_a_missing_bucket_or_directory_is_an_error_and_is_not_created",
    "test_a_place_that_is_closed_to_this_identity_is_access_denied",
}

OpenStore = Callable[[str], ObjectStore]


@dataclass(frozen=True)
class Place:
    """Where a driver under test stores things.

    Attributes:
        location: an empty store.
        missing: a bucket or directory that does not exist.
        closed: one that exists, and that the tests' identity may not write to.
        kind: "s3", "gs", "az", "webhdfs" or "file".
    """

    location: str
    missing: str
    closed: str
    kind: str


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start the S3 server of this session, with a bucket for the tests' identity and one that denies it access."""
    directory = tmp_path_factory.mktemp("s3")
    with S3Server(directory, directory, restricted_buckets=(BUCKET, "missing*")) as server:
        server.create_bucket(BUCKET)
        server.create_bucket(CLOSED_BUCKET)
        yield server


@pytest.fixture(scope="session")
def kept() -> Iterator[dict[str, ObjectStore]]:
    """Return stores by their URL that stay open: others on the same server share the SDK's clients with them.

    To open clients costs more processor time than most tests.
    """
    stores: dict[str, ObjectStore] = {}
    yield stores
    for store in stores.values():
        store.close()


@pytest.fixture
def aws(s3_server: S3Server, kept: dict[str, ObjectStore], monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the server that the environment names, with the identity that may not create buckets."""
    _no_configuration_of_this_machine(monkeypatch)
    for name, value in s3_server.environment(s3_server.restricted).items():
        monkeypatch.setenv(name, value)
    if (url := f"s3://{BUCKET}") not in kept:
        kept[url] = open_store(url, timeout_seconds=20)
    return s3_server


@pytest.fixture
def open_s3(aws: S3Server) -> Iterator[OpenStore]:
    """Return a function that opens stores on the server by their URL; they are closed after the test."""
    del aws
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(open_store(url, timeout_seconds=20))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """Start a server with scripted responses, which the environment names."""
    _no_configuration_of_this_machine(monkeypatch)
    with FakeServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield server


@pytest.fixture
def far(fake: FakeServer) -> Iterator[ObjectStore]:
    """Open a store of S3 on the fake server, with a short timeout."""
    del fake
    with open_store("s3://archive/base", timeout_seconds=0.4) as store:
        yield store


@pytest.fixture
def moto(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> MotoServer:
    """Return moto's server, which the environment names."""
    _no_configuration_of_this_machine(monkeypatch)
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return moto_server


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    """Create an empty bucket of moto."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    with closing(moto.client()) as client:
        client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def google(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> GcsServer:
    """Return the emulator of Google, which the environment names."""
    for name, value in gcs_server.environment().items():
        monkeypatch.setenv(name, value)
    return gcs_server


@pytest.fixture
def azure(azurite_server: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> AzuriteServer:
    """Return the emulator of Azure, which the environment names."""
    for name, value in azurite_server.environment().items():
        monkeypatch.setenv(name, value)
    return azurite_server


@pytest.fixture
def hdfs(hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> HdfsServer:
    """Return HDFS, for a user without permissions of its own."""
    for name, value in hdfs_server.environment().items():
        monkeypatch.setenv(name, value)
    return hdfs_server


def kinds_of(test: str) -> list[str]:
    """Return the kinds of stores that a test of the contract runs with."""
    does_not = {
        "moto": MOTO_DOES_NOT,
        "gs": OTHERS_DO_NOT | IGNORED_OF_COPIES | IGNORED_OF_DELETES,
        "az": OTHERS_DO_NOT,
    }
    return [kind for kind in KINDS if test not in does_not.get(kind, ())]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the contract with each driver; in `make test-full` with HDFS and a second server of S3 too."""
    if "place" in metafunc.fixturenames:
        name = metafunc.function.__name__
        slow = {"moto", "gs", "az"} if name in SLOW_ELSEWHERE else {"moto"}
        if name not in QUICK_ON_HDFS:
            slow |= {"webhdfs"}
        marked = [pytest.param(kind, marks=pytest.mark.full) if kind in slow else kind for kind in kinds_of(name)]
        metafunc.parametrize("place", marked, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a place for each driver."""
    if request.param == "moto":
        bucket = request.getfixturevalue("bucket")
        return Place(f"s3://{bucket}/base", "s3://missing-bucket/base", "", "s3")
    if request.param == "s3":
        request.getfixturevalue("aws")
        return Place(
            f"s3://{BUCKET}/base/{uuid.uuid4().hex}",
            f"s3://missing-{uuid.uuid4().hex[:8]}/base",
            f"s3://{CLOSED_BUCKET}/base",
            "s3",
        )
    if request.param in {"gs", "az", "webhdfs"}:
        url = empty_place(request.param, request, monkeypatch)
        outer = url.rpartition("/")[0]
        missing = f"{outer}/missing" if request.param == "webhdfs" else f"{request.param}://missing-bucket/base"
        return Place(url, missing, url.replace("/tests/", "/closed/").rpartition("/")[0], request.param)
    root = tmp_path / "root"
    root.mkdir()
    return Place(f"file://{root}", f"file://{tmp_path}/missing", CLOSED_DIRECTORY, "file")


@pytest.fixture
def store(place: Place) -> Iterator[ObjectStore]:
    """Open an empty store of each driver."""
    with open_store(place.location, timeout_seconds=20, threads=16) as opened:
        yield opened


def _no_configuration_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def dropped_responses() -> Iterator[None]:
    """Free the responses that the SDK of S3 could not parse: it drops their sockets, and Python 3.13 warns of each."""
    yield
    gc.collect()
