"""The environment that stores read."""

import pytest

from ts_common.store.environment import store_environment


def test_variables_of_stores_are_returned_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is kept is not that of a changed environment."""
    before = store_environment()
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    assert store_environment() == before
    for name in ("AWS_PROFILE", "AZURE_CLIENT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "HADOOP_USER_NAME", "https_proxy"):
        monkeypatch.setenv(name, f"other {name}")
        assert (name, f"other {name}") in store_environment()
