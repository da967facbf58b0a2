"""What the tests with real agents share; `shown` has the rest."""

import pytest

from dev.local.kafka.cluster import LocalCluster


@pytest.fixture
def credentials(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read the archive, on all of its threads, for the whole test."""
    assert cluster.s3 is not None
    for name, value in cluster.s3.environment().items():
        monkeypatch.setenv(name, value)
