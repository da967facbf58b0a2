"""Puts the ends of all servers' logs into a failed test's report. A conftest imports the hook, and that is all."""

from collections.abc import Generator

import pytest

from ts_local.cluster import running_clusters

# Of each server: a report may be cut off after so many characters, and there are five servers and more.
_LINES = 10


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add one section per running cluster to the report of a test that failed.

    What failed is said again around the logs, as whoever shows a part of a report may show these.
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
    """The error of a failed test, as its traceback ends."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}")[:2_000]
