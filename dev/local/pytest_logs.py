"""Adds the ends of all servers' logs to the report of a failed test. A conftest only has to import the hook."""

from collections.abc import Generator

import pytest

from dev.local.kafka.cluster import running_clusters

# For each server: a long report may be cut, and there can be five servers or more.
_LINES = 10


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add one section for each running cluster to the report of a failed test.

    The error is repeated around the logs, so that it is visible if only a part of the report is shown.
    """
    report = yield
    if report.failed:
        failure = f"{report.nodeid}: {_message(report)}"
        for cluster in running_clusters():
            logs = f"{failure}\n{cluster.tail_of_logs(_LINES)}\n--- {failure}"
            section = (f"logs of {cluster.logs.name}", logs)
            if section not in report.sections:
                report.sections.append(section)
    return report


def _message(report: pytest.TestReport) -> str:
    """Return the error of a failed test, as at the end of its traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}")[:2_000]
