"""What the tests with real agents share; `shown` has the rest."""

from collections.abc import Iterator

import pytest

from dev.local.kafka.cluster import LocalCluster


@pytest.fixture
def credentials(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read the archive, on all of its threads, for the whole test."""
    assert cluster.s3 is not None
    for name, value in cluster.s3.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def mended(cluster: LocalCluster) -> Iterator[None]:
    """Run each broker again after the test, and heal each link."""
    yield
    for link in cluster.links.values():
        link.heal()
    for broker in cluster.brokers.values():
        if broker.alive and broker.paused:
            broker.resume()
        elif not broker.alive:
            broker.launch()
    for broker in cluster.brokers.values():
        broker.wait_ready()
