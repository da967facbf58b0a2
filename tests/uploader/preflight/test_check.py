"""`ts-uploader check`: everything at once, each with its severity and the way out, before anything is shipped."""

import re
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.uploader.beside import BUCKET, PREFIX
from tests.uploader.checking import URL, Check
from tests.wrong_clock import wrong_clock
from ts_common.archive.object_keys import PROBE_NAME
from ts_common.wording import counted
from ts_uploader.environment import Environment
from ts_uploader.findings import (
    EXIT_ACT,
    EXIT_FINE,
    EXIT_UNANSWERED,
    EXIT_WARNINGS,
    Severity,
    as_text,
    exit_code,
    hint,
    warning,
)
from ts_uploader.leadership.zookeeper import connection_check as zookeeper_check
from ts_uploader.leadership.zookeeper.connection import Connection
from ts_uploader.leadership.zookeeper.security import Security


@pytest.fixture
def check(cluster: LocalCluster, tmp_path: Path) -> Check:
    return Check(cluster, tmp_path)


def test_a_host_that_is_ready_is_reported_as_ready(check: Check) -> None:
    """Every room speaks, nothing has to be done, and nothing is left in the bucket but the probe of each start."""
    of_run = ("--http-address", "127.0.0.1:0", "--log-format", "json", "--log-level=debug")  # the unit's arguments
    code, findings = check.findings({URL: check.location, PREFIX + "kafka.topics.exclude": "__.*"}, *of_run)
    assert code == EXIT_FINE, findings
    assert not [each for each in findings if each["severity"] in {"error", "unanswered", "warning"}], findings
    for about in ("the broker's file", "prod.properties", "log dir", "max_user_watches", "zookeeper", check.location):
        assert any(about in each["about"] and each["severity"] == "ok" for each in findings), about
    listed = check.s3.client().list_objects_v2(Bucket=BUCKET, Prefix=check.directory.name + "/")["Contents"]
    assert [each["Key"] for each in listed] == [f"{check.directory.name}/{PROBE_NAME}"]


def test_errors_in_several_areas_are_reported_in_one_run(check: Check) -> None:
    """A missing log dir, a broker that ZooKeeper does not have, a missing bucket: one run."""
    (check.directory / "new-disk").mkdir()
    file = check.broker_file(broker__id="77", log__dirs=f"{check.directory / 'new-disk'},/nowhere/at/all")
    ended = check.run({URL: "s3://nowhere-at-all/base"}, "--server-properties", str(file))
    assert ended.returncode == EXIT_ACT, ended.stdout + ended.stderr
    for expected in (
        "log dir /nowhere/at/all: cannot be read",
        "broker 77 is not registered there; registered are 1, 2",
        "s3://nowhere-at-all",
        "-> start the broker",
        "3 error",
    ):
        assert expected in ended.stdout


def test_errors_of_the_files_do_not_hide_each_other(check: Check) -> None:
    """The broker's file and the cluster's: all problems of both, with the command line's cluster id."""
    (check.directory / "empty.properties").write_text("listeners=PLAINTEXT://:9092\n")
    arguments = ("--server-properties", str(check.directory / "empty.properties"))
    code, findings = check.findings({URL: check.location, PREFIX + "kafka.topics.includ": "("}, *arguments)
    found = " ".join(each["found"] for each in findings)
    assert code == EXIT_ACT
    for text in ("log.dirs: missing", "zookeeper.connect", "did you mean ts.segment.uploader.kafka.topics.include?"):
        assert text in found


def test_an_unreachable_store_is_worth_a_retry(check: Check) -> None:
    """Exit code 75, and all other findings are reported."""
    ended = check.run({URL: check.location}, environment={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    assert ended.returncode == EXIT_UNANSWERED, ended.stdout
    assert f"UNANSWERED {check.location}" in ended.stdout
    assert "is registered" in ended.stdout


def test_a_wrong_secret_and_a_wrong_clock_must_be_fixed_by_an_operator(check: Check) -> None:
    """The finding names the one or the other and no permission; a retry helps neither, so the code is 2."""
    wrong = check.run({URL: check.location}, environment={"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert wrong.returncode == EXIT_ACT, wrong.stdout
    assert "the secret key does not belong to this access key" in wrong.stdout
    ahead = check.run({URL: check.location}, environment=wrong_clock(check.directory, 1200))
    assert ahead.returncode == EXIT_ACT, ahead.stdout
    assert re.search(r"this host's clock is 1(199|20\d) s ahead of the store's: set the clock", ahead.stdout)
    assert "allow this identity" not in wrong.stdout + ahead.stdout


def test_a_missing_bucket_is_named_once_with_what_an_operator_does(check: Check) -> None:
    """Not the place twice in one line."""
    ended = check.run({URL: "s3://nowhere-at-all/base"})
    (line,) = [line for line in ended.stdout.splitlines() if "s3://nowhere-at-all/base" in line]
    assert line.count("s3://nowhere-at-all/base") == 1
    assert "create it, or name another in storage.service.endpoint.url" in line


def test_an_unreachable_zookeeper_is_worth_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported within a bounded time, although the client would retry forever."""
    monkeypatch.setattr(zookeeper_check, "_CONNECT_SECONDS", 0.2)
    environment = Environment("prod", 1, (), "127.0.0.1:9", kraft=False)
    connection, security = Connection("127.0.0.1:9", Security()), Security()
    (finding,) = zookeeper_check.zookeeper_findings(connection, security, environment, frozenset())
    assert (finding.severity, finding.about) == (Severity.UNANSWERED, "zookeeper 127.0.0.1:9")


def test_warnings_count_only_if_requested() -> None:
    """An error has precedence over a missing answer, that over a warning."""
    found = [hint("a", "b"), warning("c", "d", "e")]
    assert (exit_code(found, strict=False), exit_code(found, strict=True)) == (EXIT_FINE, EXIT_WARNINGS)
    assert exit_code([hint("a", "b")], strict=True) == EXIT_FINE


def test_numbers_agree_with_their_nouns() -> None:
    """One hint, two hints."""
    found = [hint("a", "b"), hint("c", "d"), warning("e", "f", "g")]
    assert as_text(found).splitlines()[-1] == "1 warning, 2 hints"
    assert counted(1, "segment") == "1 segment"
    assert counted(2400, "segment") == "2,400 segments"
