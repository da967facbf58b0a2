"""Fixtures of all histories."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_ticks() -> Iterator[None]:
    """Do not wait for a directory to settle: the model's one thread changes nothing during a listing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ts_uploader.log_dirs.directory_scan.TICK_SECONDS", 0.0)
        yield
