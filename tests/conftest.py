"""Shared by every folder: server logs in reports of failed tests, hypothesis profiles, distribution over processes."""

import gc
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from dev.local.environment import isolate
from dev.local.kafka.cluster import LocalCluster
from dev.local.process import Server
from dev.local.pytest_logs import pytest_runtest_makereport
from dev.local.sdk_memory import remember
from dev.local.stores.azurite import AzuriteServer
from dev.local.stores.fake_gcs import GcsServer
from dev.local.stores.hdfs import HdfsServer
from dev.local.stores.moto import MotoServer
from dev.local.stores.s3 import S3Server
from tests.oracle_topics.shipped import Shipped, selected_topics, ship
from tests.uploader.beside import BUCKET, ROLLS, SMALL_FETCHES

__all__ = ["pytest_runtest_makereport"]

isolate()
remember()
# SeaweedFS and Prometheus need a sixth more CPU on two processors than on one.
os.environ.setdefault("GOMAXPROCS", "1")

# Modules and items of all tests are millions of objects that stay. While they grow, passes of the garbage collector
# would be a fifth of the CPU of each process's collection. The process that distributes the tests needs no passes.
gc.disable()


def _keep_temporary_files_in_memory() -> None:
    """Set TMPDIR to a file system in memory if it is large: thousands of tests would wait for fsync on a disk."""
    with suppress(OSError):
        if "TMPDIR" not in os.environ and shutil.disk_usage(_IN_MEMORY).free >= _IN_MEMORY_FROM_BYTES:
            os.environ["TMPDIR"], tempfile.tempdir = _IN_MEMORY, None


_IN_MEMORY, _IN_MEMORY_FROM_BYTES = "/dev/shm", 8 << 30
_keep_temporary_files_in_memory()

GCS_BUCKET = "tests"
AZURE_CONTAINER = "tests"
# Stores other than S3 and a directory. HDFS starts and writes slowest.
OTHER_STORES = ["gs", "az", pytest.param("webhdfs", marks=pytest.mark.full)]

# `make test` draws the same 30 examples each time, so that only a change of the code can fail it. `make test-full`
# draws 100 new ones. Hypothesis has no deadline: a machine may be ten times slower than this one.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
settings.register_profile("repeatable", parent=settings(), derandomize=True, max_examples=30)

# In this order: the slowest folders start first, so that no process works alone at the end. In `make test-full` the
# histories need the longest time, 40 minutes.
_FIRST = (
    *("tests/histories/", "tests/spark/", "tests/tables/spark/", "tests/common/store/", "tests/faults/"),
    *("tests/consumer/", "tests/uploader/", "tests/endpoint/", "tests/dev/", "tests/reader/", "tests/common/"),
)
# One process runs all tests of these folders and files, by its name: a second one would start their servers again. A
# test is of the first place that its path begins with.
_SERVERS = {
    # The last two read the topics that a test of Spark reads too: filling and shipping them needs 8 s of CPU.
    "session": ("tests/spark/session/", "tests/endpoint/test_clients.py", "tests/reader/test_oracle_topics.py"),
    "session of tables": ("tests/tables/spark/",),
    "stores": (
        "tests/common/store/",
        "tests/uploader/stores/test_store_",
        "tests/tsctl/repair/",
        "tests/tsctl/commands/test_thaw.py",
        "tests/tsctl/verify/test_bucket_check.py",
        "tests/tsctl/verify/test_frozen.py",
        "tests/tsctl/gc/test_checks.py",
        "tests/tsctl/gc/test_object_lock.py",
        "tests/tsctl/cost/test_listing.py",
        "tests/tsctl/test_outside_names.py",
        "tests/reader/query/test_frozen.py",
        "tests/spark/test_config_option.py",
        "tests/operator/test_frozen_segments.py",
        "tests/deploy/test_maintenance_policies.py",
        "tests/uploader/committing/test_locked_gap_records.py",
    ),
    "versions": (
        "tests/erased/test_stored_bytes.py",
        "tests/erased/test_surfaces.py",
        "tests/erased/test_versions.py",
        "tests/reader/test_archive.py",
        "tests/tsctl/commands/test_hold.py",
        "tests/tsctl/seal/test_checking.py",
        "tests/tsctl/test_legal_holds.py",
    ),
    "release": ("tests/deploy/test_dist.py", "tests/deploy/test_image.py"),
    "live broker": ("tests/consumer/", "tests/endpoint/recorded/"),
    "agents": ("tests/uploader/",),
    "two disks": ("tests/faults/test_disks.py", "tests/dev/test_cluster.py", "tests/dev/test_oracle.py"),
    "faults": ("tests/faults/", "tests/operator/test_broken_archives.py"),
    "links": ("tests/proxy/",),
    "one broker": (
        "tests/tsctl/test_cli.py",
        "tests/tsctl/drill/test_drill.py",
        "tests/tsctl/verify/test_audit.py",
        "tests/tsctl/gc/test_with_kafka.py",
        "tests/tsctl/restore/test_exactly_once.py",
        "tests/tsctl/restore/test_mirror.py",
        "tests/tsctl/restore/test_new_cluster.py",
        *(f"tests/tsctl/commands/test_{name}.py" for name in ("cat", "gaps", "get", "ls")),
        *(f"tests/docs/test_{name}.py" for name in ("cost", "runbook", "sizing")),
    ),
}
_TOGETHER = {place: name for name, places in _SERVERS.items() for place in places}
_SUMMARY_FROM_SECONDS = 60  # a run of a few tests has no summary


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the folders in the order of `_FIRST`, then the others."""

    def place(item: pytest.Item) -> int:
        nodeid = item.nodeid  # pytest makes the text each time
        return next((number for number, folder in enumerate(_FIRST) if nodeid.startswith(folder)), len(_FIRST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Let the garbage collector begin with what tests make: it passes over the modules and items never again."""
    gc.freeze()  # a pass before it would need half a second of CPU in each process
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the seconds of each file, its servers included, slowest first: `make test` has a bound."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if sum(seconds.values()) < _SUMMARY_FROM_SECONDS:
        return
    terminalreporter.section(f"seconds of {len(seconds)} files, {sum(seconds.values()):.0f} in all")
    for file, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        terminalreporter.line(f"{spent:8.1f}  {file}")


def _together(nodeid: str) -> str | None:
    return next((name for place, name in _TOGETHER.items() if nodeid.startswith(place)), None)


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist carries no types
    """Send the tests of one file to one process, and those of `_TOGETHER` with the same name."""

    def _split_scope(self, nodeid: str) -> str:
        return _together(nodeid) or super()._split_scope(nodeid)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Forget the files that have ended: xdist looks at each test that a process ever got, after each test."""
        for name in [name for name, tests in workload.items() if all(tests.values())]:
            del workload[name]
        return int(super()._pending_of(workload))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:
    """Return the scheduler for `--dist loadfile`."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


# What ends the servers that all tests of a process share.
_ends: list[Callable[[], None]] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, Any, Any]:
    """Note how a server of the session ends."""
    found = yield
    if fixturedef.scope == "session" and isinstance(found, LocalCluster | Server):
        _ends.append(partial(fixturedef.finish, request))
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """End the servers of a place of `_SERVERS` after its last test: an idle broker needs 1 to 2 % of a processor."""
    result = yield
    place = _together(item.nodeid)
    if place and nextitem is not None and "PYTEST_XDIST_WORKER" in os.environ and _together(nextitem.nodeid) != place:
        while _ends:
            _ends.pop()()
    return result


def _configure_uncached(**options: Any) -> None:
    _configure(**{**options, "cache_logger_on_first_use": False})


# A cached logger would keep what one test or fixture configures for later tests, whichever these are.
_configure = structlog.configure
structlog.configure = _configure_uncached  # type: ignore[assignment]  # with the same arguments, by name


@pytest.fixture(autouse=True, scope="module")
def _logs_of_each_module() -> Iterator[None]:
    """Undo what fixtures configure that outlive a test."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _logs_of_each_test() -> Iterator[None]:
    """Undo what a test configures."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


def _noted(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    def noting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        _opened.append(True)
        return connect(*arguments, **options)

    return noting


# Whether the test opened a database: a process has a hundred other files, and few tests open one.
_opened: list[bool] = []
sqlite3.connect = sqlite3.dbapi2.connect = _noted(sqlite3.connect)  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _closed_databases() -> Iterator[None]:
    """Fail a test that leaves the database of a catalog open: Python 3.13 and later warn of it, at some later time."""
    yield
    if not _opened:
        return
    _opened.clear()
    files = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # another thread has closed it
            files.append(os.readlink(f"/proc/self/fd/{each}"))  # noqa: PTH115 - paths need 0.3 ms more, in each test
    assert not [name for name in files if name.removesuffix(" (deleted)").endswith(".db")]


@pytest.fixture(scope="session")
def two_brokers() -> Iterator[LocalCluster]:
    """Two brokers that roll their segments at different sizes, ZooKeeper and an S3 server; see `SMALL_FETCHES`.

    A test that stops, kills or pauses a server restores it before it ends, even if it fails.
    """
    with LocalCluster(
        brokers=2,
        s3=True,
        buckets=[BUCKET],
        properties={
            **SMALL_FETCHES,
            "replica.high.watermark.checkpoint.interval.ms": "500",
            "zookeeper.session.timeout.ms": "2000",
            "log.cleaner.backoff.ms": "500",
            "log.retention.check.interval.ms": "1000",
            # The checkpoint of the log start offset, which DeleteRecords moves; every minute in production.
            "log.flush.start.offset.checkpoint.interval.ms": "1000",
            # Tests stop brokers that have the only copy of these.
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
        },
        broker_properties=ROLLS,
        name="two-brokers",
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def two_disks() -> Iterator[LocalCluster]:
    """Two brokers of two log dirs each, ZooKeeper and an S3 server; else as `two_brokers`."""
    with LocalCluster(
        brokers=2,
        s3=True,
        buckets=[BUCKET],
        log_dirs=2,
        properties={
            **SMALL_FETCHES,
            "replica.high.watermark.checkpoint.interval.ms": "500",
            "zookeeper.session.timeout.ms": "2000",
            "offsets.topic.replication.factor": "2",
            "log.segment.delete.delay.ms": "2000",
        },
        broker_properties=ROLLS,
        name="two-disks",
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def one_broker() -> Iterator[LocalCluster]:
    """A broker, ZooKeeper and an S3 server; each file has topics of its own, and stops no server."""
    with LocalCluster(s3=True, buckets=[BUCKET], name="one-broker") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def oracle_topics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """Ship every kind of topic that the tests that run need; broker and agent have stopped."""
    return ship(selected_topics(request), tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="session")
def live_broker() -> Iterator[LocalCluster]:
    """A broker in KRaft mode, so that topics have ids and all protocols of groups exist."""
    with LocalCluster(mode="kraft", name="live") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start SeaweedFS, for tests that make buckets of their own, with versions or locks."""
    directory = tmp_path_factory.mktemp("s3")
    with S3Server(directory, directory) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """Start moto's server, for features that SeaweedFS lacks."""
    directory = tmp_path_factory.mktemp("moto")
    with MotoServer(directory, directory) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """Start Google's test server with the bucket `GCS_BUCKET`."""
    directory = tmp_path_factory.mktemp("gcs")
    with GcsServer(directory, directory) as server:
        server.create_bucket(GCS_BUCKET)
        yield server


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    """Start Azurite with the container `AZURE_CONTAINER`."""
    directory = tmp_path_factory.mktemp("azurite")
    with AzuriteServer(directory, directory) as server:
        server.create_container(AZURE_CONTAINER)
        yield server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """Start HDFS with a world-writable directory `/tests` and a read-only directory `/closed`."""
    directory = tmp_path_factory.mktemp("hdfs")
    with HdfsServer(directory, directory) as server:
        server.make_directory("/tests", "777")
        server.make_directory("/closed", "755")
        yield server


def empty_place(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty directory in one of the other stores, and set its environment variables."""
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
