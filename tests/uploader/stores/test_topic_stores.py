"""The stores of an agent delete packs of the live tail, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import parse_config
from ts_common.endpoints.provider import open_provider
from ts_common.errors import AccessDenied
from ts_uploader.agent import Agent
from ts_uploader.environment import Environment
from ts_uploader.stores.topic_stores import Stores

KEYS = ClusterKeys("c", 5)
PACK = KEYS.tail("1") + "packs/ffffffffffff"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    config, _ = parse_config({"storage.service.endpoint.url": url}, "a test")
    provider = open_provider(config.endpoint_provider, "c", tmp_path, config.endpoint_properties)
    log_dir = tmp_path / "kafka"
    log_dir.mkdir()
    environment = Environment("c", 1, (log_dir,), "127.0.0.1:1/absent", kraft=False)
    made = Agent(environment, config, provider, "127.0.0.1:0", lambda: (config, provider))
    yield made
    made._shut_down()


def test_an_agent_deletes_below_tail_only(agent: Agent) -> None:
    """Whatever its own code, or an index that others wrote, names."""
    stores: Stores = agent._stores
    for store in (stores.of("t"), *stores.each()):
        for key in (PACK, "10111/c/t-0/0.log"):
            store.put(key, b"x")
        with pytest.raises(AccessDenied, match="only objects below ts-uploader~cluster~c/tail/"):
            store.delete([PACK, "10111/c/t-0/0.log"])
        store.delete([PACK])
        assert [info.key for info in store.list()] == ["10111/c/t-0/0.log"]
