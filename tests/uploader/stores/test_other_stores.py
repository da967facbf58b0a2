"""An agent with a store of Azure, Google or HDFS: the same protocol, the same objects."""

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.conftest import OTHER_STORES, empty_place
from tests.uploader.conftest import ArchiveOf
from tests.uploader.produced import records
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint
from ts_uploader.stores.store_check import problems_of
from ts_uploader.stores.store_findings import deep_check

URL = "storage.service.endpoint.url"


@pytest.fixture(params=OTHER_STORES)
def location(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty location in each store."""
    return empty_place(request.param, request, monkeypatch)


def test_the_check_at_the_start_finds_nothing_to_repair(location: str) -> None:
    """Each start finds that the store accepts the probe and keeps conditions; only HDFS is reported as experimental."""
    for _ in range(2):
        with open_store(location) as store:
            found = problems_of(store, ClusterKeys("prod", 5), Endpoint(location), lambda _: store, conditional=True)
            assert found == []
            assert [info.key for info in store.list()] == [PROBE_NAME]
            hints = [each.found for each in deep_check(store, ClusterKeys("prod", 5), Endpoint(location))]
            assert any("experimental" in hint for hint in hints) == location.startswith("webhdfs://")


@pytest.mark.full
def test_every_record_is_read_back_once_after_a_kill(
    cluster: LocalCluster, archive_of: ArchiveOf, location: str
) -> None:
    """Shipped objects stay after a kill and a restart, the rest follows, and all records equal the broker's."""
    topic = f"beside-{location.partition(':')[0]}"
    cluster.create_topic(topic, assignment=[[1]])
    cluster.produce(topic, records(1000), partition=0)
    archive = archive_of(topic, properties={URL: location})
    archive.location = location
    agent = archive.agent()
    archive.wait_until_shipped()
    agent.kill()
    before = {key: etag for key, etag in archive.objects().items() if not key.endswith("offset.wm")}
    cluster.produce(topic, records(1000, start=1000), partition=0)
    archive.agent()
    end = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=end)
    after = archive.objects()
    assert {key: after[key] for key in before} == before
