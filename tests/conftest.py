"""What every folder of the suite shares: server logs in the report of a test that fails."""

from ts_local.pytest_logs import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
