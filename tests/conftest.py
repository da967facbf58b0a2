"""What every folder of the suite shares: server logs in the report of a test that fails, and how examples are drawn."""

from hypothesis import settings

from ts_local.pytest_logs import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

# A change is refused for what it does, not for an example that nobody drew before: `make test` draws the same ones each
# time. `make test-full` looks for new ones.
settings.register_profile("repeatable", derandomize=True)
