"""Metrics of runs of `tsctl gc`: in a file of several clusters, and at a server that answers as a Pushgateway."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http_servers import Handler, serving
from tests.made_archive import MadeArchive
from tests.tsctl.gc.archives import GRACE, FixedRetention, keep_last, run, ship
from ts_common.errors import OperatorError, StoreUnavailable
from tsctl.gc.archive_run import LocationResult
from tsctl.gc.due import Rule
from tsctl.gc.metrics import GAUGES, values_of
from tsctl.gc.policy import Fuse
from tsctl.gc.retention import NeededFrom
from tsctl.run_metrics import Recording

WRITTEN: dict[str, float] = {
    "last_run_timestamp_seconds": 1060.5,
    "last_success_timestamp_seconds": 1060.5,
    "last_run_failed": 0,
    "last_run_duration_seconds": 60.5,
    "interval_seconds": 3600,
    "hidden_objects": 1,
    "hidden_bytes": 2,
    "deleted_objects": 3,
    "deleted_bytes": 4,
    "kept_objects": 5,
    "locked_objects": 6,
    "failed_objects": 7,
    "held_partitions": 8,
    "waiting_partitions": 9,
    "overdue_partitions": 10,
    "oldest_due_timestamp_seconds": 900,
    "fuse_blown": 1,
}
SUCCESS = "last_success_timestamp_seconds"
FAILED = {name: 0.0 for name in WRITTEN if name != SUCCESS} | {
    "last_run_timestamp_seconds": 2001,
    "last_run_failed": 1,
}


def values(text: str, cluster: str = "prod") -> dict[str, float]:
    """Return the values of a cluster by name without the prefix."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {each.name.removeprefix("ts_gc_"): each.value for each in samples if each.labels.get("cluster") == cluster}


def write(path: Path, values: Mapping[str, float], cluster: str = "prod") -> list[str]:
    """Write metrics; return the warnings."""
    warnings: list[str] = []
    GAUGES.write(path, cluster, values, warnings.append)
    return warnings


def test_a_failure_keeps_the_time_of_the_last_success_and_other_clusters(tmp_path: Path) -> None:
    """All other values are those of the last run."""
    path = tmp_path / "gc.prom"
    assert write(path, WRITTEN) == write(path, WRITTEN, "test") == []
    assert values(path.read_text()) == WRITTEN
    assert write(path, FAILED) == []
    found = values(path.read_text())
    assert (found[SUCCESS], found["last_run_timestamp_seconds"]) == (1060.5, 2001)
    assert (found["last_run_failed"], found["deleted_objects"], found["oldest_due_timestamp_seconds"]) == (1, 0, 0)
    assert values(path.read_text(), "test") == WRITTEN
    assert found.keys() == WRITTEN.keys()


def test_a_first_run_that_fails_has_no_success(tmp_path: Path) -> None:
    """The time is 0, which is never a recent one."""
    path = tmp_path / "gc.prom"
    write(path, FAILED)
    assert values(path.read_text())[SUCCESS] == 0


def test_a_file_that_cannot_be_written_is_a_warning_after_a_run_and_an_error_before(tmp_path: Path) -> None:
    """The objects are deleted by then."""
    path = tmp_path / "nowhere" / "gc.prom"
    with pytest.raises(OperatorError, match="no directory that can be written"):
        Recording(GAUGES, values_of, "prod", path, None, None, pytest.fail)
    (warning,) = write(path, WRITTEN)
    assert f"{path}: the metrics of the run were not written" in warning
    path = tmp_path / "gc.prom"
    path.write_text('ts_gc_fuse_blown{wrong="label"} 1\n')
    (warning,) = write(path, WRITTEN)
    assert "the former metrics are replaced" in warning
    assert values(path.read_text()) == WRITTEN


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Start a server that records requests, and answers 202 as a Pushgateway; `/broken` gets 500, `/other` garbage."""
    received: list[tuple[str, str, str]] = []

    class Gateway(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            received.append((self.command, self.path, body))
            if self.path.startswith("/other"):
                self.wfile.write(b"\x1b[2J\r\n")
                return
            self.answer(500 if self.path.startswith("/broken") else 202)

    with serving(Gateway) as port:
        yield f"http://127.0.0.1:{port}", received


def test_metrics_are_added_to_the_group_of_the_cluster(gateway: tuple[str, list[tuple[str, str, str]]]) -> None:
    """POST replaces only the metrics that it has: a failed run has no time of the last success."""
    url, received = gateway
    warnings: list[str] = []
    GAUGES.push(url, "prod", WRITTEN, warnings.append)
    GAUGES.push(url, "prod", FAILED, warnings.append)
    (method, path, first), (_, _, second) = received
    assert (method, path) == ("POST", "/metrics/job/tsctl-gc/cluster/prod")
    assert values(first) == WRITTEN
    assert values(second).keys() == WRITTEN.keys() - {SUCCESS}
    assert warnings == []


def test_a_gateway_that_does_not_accept_them_is_a_warning_without_its_password(
    gateway: tuple[str, list[tuple[str, str, str]]],
) -> None:
    """An error of the server, an answer that is no HTTP, a closed port, and no URL at all."""
    warnings: list[str] = []
    address = gateway[0].removeprefix("http://")
    urls = [f"http://user:geheim@{address}/broken", f"{gateway[0]}/other", "http://user:geheim@127.0.0.1:1", "http://["]
    for url in (*urls, "http://a b"):
        GAUGES.push(url, "prod", WRITTEN, warnings.append)
    assert len(warnings) == 5
    assert all("were not pushed" in warning for warning in warnings)
    assert "geheim" not in "".join(warnings)


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "bucket")


def record(path: Path, *found: LocationResult) -> dict[str, float]:
    """Write the metrics of a run that has these results, and return them; nothing warns."""
    warnings: list[str] = []
    with Recording(GAUGES, values_of, "prod", path, None, 3600, warnings.append).run() as results:
        results.extend(found)
    assert warnings == []
    return values(path.read_text())


def test_what_a_topics_fuse_kept_is_not_counted_as_hidden(archive: MadeArchive, tmp_path: Path) -> None:
    """Other topics were hidden; a later run hides the rest, and deletes what the first one hid."""
    size, path = ship(archive, "t", 0, 100), tmp_path / "gc.prom"
    for partition in range(10):
        ship(archive, "large", 0, 30, partition=partition)
    found = record(path, run(archive, keep_last(1, size), fuse=Fuse.model_validate({"share": "80%"})))
    assert (found["hidden_objects"], found["fuse_blown"], found["last_run_failed"]) == (10 * 2 * 3, 1, 1)
    found = record(path, run(archive, keep_last(1, size), after=GRACE))
    assert (found["hidden_objects"], found["deleted_objects"], found["last_run_failed"]) == (9 * 3, 10 * 2 * 3, 0)


def test_partitions_that_something_keeps_are_counted_in_all_locations(archive: MadeArchive, tmp_path: Path) -> None:
    """A hold and a reader that reads are no failure; an overdue reader is."""
    size, path = ship(archive, "t", 0, 100), tmp_path / "gc.prom"
    held = run(archive, FixedRetention(Rule(size=size), held={"t"}))
    waits = [NeededFrom(20, "group g", is_late) for is_late in (False, True)]
    read = [run(archive, FixedRetention(Rule(size=size), {"t-0": reader})) for reader in waits]
    kept = ("held_partitions", "waiting_partitions", "overdue_partitions", "last_run_failed")
    assert [record(path, held, read[0])[name] for name in kept] == [1, 1, 0, 0]
    assert [record(path, held, *read)[name] for name in kept] == [1, 2, 1, 1]


def test_metrics_have_what_was_done_before_an_error(archive: MadeArchive, tmp_path: Path) -> None:
    """The run has failed, and its deletes are counted by no later run."""
    size, path = ship(archive, "t", 0, 100), tmp_path / "gc.prom"
    run(archive, keep_last(3, size))
    with (
        pytest.raises(StoreUnavailable),
        Recording(GAUGES, values_of, "prod", path, None, None, pytest.fail).run() as results,
    ):
        results.append(run(archive, keep_last(3, size), after=GRACE))
        raise StoreUnavailable("503")
    found = values(path.read_text())
    assert (found["deleted_objects"], found["last_run_failed"], found["interval_seconds"]) == (21, 1, 86_400)
