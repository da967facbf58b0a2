"""What every folder of the suite shares: server logs in the report of a test that fails, how examples are drawn, which
tests go to one process.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

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
# None is refused for being slow, in drawing or in running: a machine may be ten times slower than now.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
settings.register_profile("repeatable", parent=settings(), derandomize=True)

# In this order: what takes longest must not come last, when one process works alone.
_FIRST = ("spark", "faults", "uploader", "test_demo.py", "local_cluster", "common", "histories")
# Tests below go to one process: one that came back to it would pay a minute for another session with its broker.
_TOGETHER = "tests/spark/session"
_WORTH_TELLING_SECONDS = 60  # a run of a few tests needs no account


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders in the order of `_FIRST`, then the others."""

    def place(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1].partition("::")[0]
        return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What each file of the suite cost, servers and all, the dearest first: `make test` has a bound."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if sum(seconds.values()) < _WORTH_TELLING_SECONDS:
        return
    terminalreporter.section(f"seconds of {len(seconds)} files, {sum(seconds.values()):.0f} in all")
    for file, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        terminalreporter.line(f"{spent:8.1f}  {file}")


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist carries no types
    """Tests of one file go to one process, and so does all of `_TOGETHER`."""

    def _split_scope(self, nodeid: str) -> str:
        return _TOGETHER if nodeid.startswith(_TOGETHER) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:
    """For `--dist loadfile`."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


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
