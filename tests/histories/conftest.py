"""What all histories share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_ticks() -> Iterator[None]:
    """The model's one thread changes nothing while a directory is listed, so nothing is waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ts_uploader.log_dirs.directory_scan.TICK_SECONDS", 0.0)
        yield
