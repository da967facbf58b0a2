"""One broker and one archive for all tests of this folder that need them."""

from collections.abc import Iterator

import pytest

from tests.consumer.archives import Both, in_directory
from ts_local.kafka.cluster import LocalCluster


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A broker in KRaft mode, so that topics have ids and all protocols of groups exist."""
    with LocalCluster(mode="kraft", name="consumer") as cluster:
        yield Both(cluster, in_directory(tmp_path_factory.mktemp("consumer")))
