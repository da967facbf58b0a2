"""What every folder of the suite shares: server logs in the report of a test that fails, and how examples are drawn."""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ts_local.azurite import AzuriteServer
from ts_local.fake_gcs import GcsServer
from ts_local.hdfs import HdfsServer
from ts_local.moto import MotoServer
from ts_local.pytest_logs import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

GCS_BUCKET = "tests"
AZURE_CONTAINER = "tests"
# Stores other than S3 and a directory. HDFS takes longest to come up and to write.
OTHER_STORES = ["gs", "az", pytest.param("webhdfs", marks=pytest.mark.full)]

# A change is refused for what it does, not for an example that nobody drew before: `make test` draws the same ones each
# time. `make test-full` looks for new ones.
settings.register_profile("repeatable", derandomize=True)


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """moto's server, for what SeaweedFS does not know; started where a test asks for it."""
    directory = tmp_path_factory.mktemp("moto")
    server = MotoServer(directory, directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """Google's server, with the bucket `GCS_BUCKET`; started where a test asks for it."""
    directory = tmp_path_factory.mktemp("gcs")
    server = GcsServer(directory, directory)
    server.start()
    try:
        server.create_bucket(GCS_BUCKET)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    """Azure's server, with the container `AZURE_CONTAINER`; started where a test asks for it."""
    directory = tmp_path_factory.mktemp("azurite")
    server = AzuriteServer(directory, directory)
    server.start()
    try:
        server.create_container(AZURE_CONTAINER)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """HDFS, with a directory `/tests` that everybody may write to, and one `/closed`; started where a test asks."""
    directory = tmp_path_factory.mktemp("hdfs")
    server = HdfsServer(directory, directory)
    server.start()
    try:
        server.make_directory("/tests", "777")
        server.make_directory("/closed", "755")
        yield server
    finally:
        server.kill()


def empty_place(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place in one of the other stores, which the environment names then."""
    name = uuid.uuid4().hex
    match kind:
        case "gs":
            google: GcsServer = request.getfixturevalue("gcs_server")
            environment, url = google.environment(), f"gs://{GCS_BUCKET}/base/{name}"
        case "az":
            azure: AzuriteServer = request.getfixturevalue("azurite_server")
            environment, url = azure.environment(), f"az://{AZURE_CONTAINER}/base/{name}"
        case _:
            hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
            hdfs.make_directory(f"/tests/{name}", "777")
            environment, url = hdfs.environment(), f"webhdfs://{hdfs.address}/tests/{name}"
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    return url
