"""Puts the ends of all servers' logs into a failed test's report. A conftest imports the hook, and that is all."""

from collections.abc import Generator

import pytest

from ts_local.cluster import running_clusters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add one section per running cluster to the report of a test that failed."""
    report = yield
    if report.failed:
        for cluster in running_clusters():
            section = (f"logs of {cluster.logs.name}", cluster.tail_of_logs())
            if section not in report.sections:
                report.sections.append(section)
    return report
