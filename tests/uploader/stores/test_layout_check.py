"""One entropy width for each archive: the first agent writes the layout, every other agent compares it (U41)."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.uploader.beside import PREFIX
from tests.uploader.conftest import ArchiveOf
from ts_common.archive.directories import entropy_widths, list_topics
from ts_common.archive.layout import Layout, read_layout
from ts_common.archive.object_keys import CLUSTER_DIRECTORY, PROBE_NAME, ClusterKeys
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.provider import open_provider
from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_common.store.contract import NO_METADATA, Body, Condition, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.stores.layout_check import settle_layout
from ts_uploader.stores.topic_stores import Stores

BITS = PREFIX + "s3.prefix.entropy.bits"
FIVE, SIX = ClusterKeys("prod", 5), ClusterKeys("prod", 6)


@pytest.fixture
def stores_of(tmp_path: Path) -> Iterator[Callable[..., Stores]]:
    """Return a function that creates the stores of an agent with a number of entropy bits."""
    opened: list[Stores] = []

    def make(bits: int, properties: Mapping[str, str] | None = None) -> Stores:
        said = {"storage.service.endpoint.url": (tmp_path / "store").as_uri(), BITS: str(bits), **(properties or {})}
        path = tmp_path / "prod.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
        config, _ = load_config(path)
        provider = open_provider(config.endpoint_provider, "prod", tmp_path, config.endpoint_properties)
        opened.append(Stores(provider, config))
        return opened[-1]

    yield make
    for stores in opened:
        stores.close()


def layout_of(store: ObjectStore) -> int | None:
    found = read_layout(store, FIVE)
    return None if found is None else found.entropy_bits


def test_u41_of_two_agents_that_start_at_once_one_is_refused(
    cluster: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """On an empty prefix with 5 and with 6 bits: one agent ships, and the other width has no object."""
    cluster.create_topic("widths", assignment=[[1]])
    archive = archive_of("widths")
    agents = {5: archive.agent(1, waits=False)}
    archive.config, archive.properties[BITS] = tmp_path / "other", "6"
    agents[6] = archive.agent(2, waits=False)

    def ended() -> list[int]:
        return [bits for bits, agent in agents.items() if not agent.alive]

    (refused,) = wait_for(ended, "one of the two to end")
    (right,) = agents.keys() - {refused}
    agents[right].wait_ready()
    said = agents[refused].tail()
    assert f"{BITS}={refused}" in said
    assert f"with {right} entropy bits" in said
    assert layout_of(archive.store) == right
    keys = {info.key for info in archive.store.list()}
    assert keys >= {PROBE_NAME, FIVE.layout}
    # The agent that stays may have begun the partition, under names of its own width.
    assert {len(key.partition("/")[0]) for key in keys - {PROBE_NAME, FIVE.layout}} <= {right}


class Meeting(WrappedStore):
    """Puts of a layout wait until several writers have sent theirs."""

    def __init__(self, inner: ObjectStore, writers: int) -> None:
        super().__init__(inner, threads=1)
        self._barrier = threading.Barrier(writers, timeout=30)

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        self._barrier.wait()
        return super().put(
            key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )


def test_u41_a_layout_that_another_agent_wrote_meanwhile_counts(store: ObjectStore) -> None:
    """Both read an empty store and both write: one number is stored, and one agent is rejected."""
    with Meeting(store, 2) as meeting, ThreadPoolExecutor(2) as agents:
        told = list(agents.map(lambda keys: settle_layout(meeting, keys), (FIVE, SIX)))
    right = layout_of(store)
    assert [said is None for said in told] == [right == 5, right == 6]
    (refused,) = [said for said in told if said is not None]
    assert f"with {right} entropy bits" in refused


def test_u41_an_agent_with_another_width_is_refused_ever_after(
    stores_of: Callable[..., Stores], tmp_path: Path
) -> None:
    """Also if the store has objects of its width, which an earlier release could leave."""
    (tmp_path / "store").mkdir()
    stores_of(5).check(FIVE)
    with open_store((tmp_path / "store").as_uri()) as store:
        for keys in (FIVE, SIX):
            store.put(keys.partition(TopicPartition("t", 0)).commit, b"x")
        with pytest.raises(ConfigurationError, match=f"{BITS}=6: .* with 5 entropy bits.*set {BITS}=5"):
            stores_of(6).check(SIX)
        stores_of(5).check(FIVE)
        assert layout_of(store) == 5


def test_an_archive_of_an_earlier_release_gets_a_layout_of_the_width_that_is_in_use(
    stores_of: Callable[..., Stores], tmp_path: Path
) -> None:
    """An agent with another width is rejected, and writes none."""
    (tmp_path / "store").mkdir()
    with open_store((tmp_path / "store").as_uri()) as store:
        store.put(FIVE.partition(TopicPartition("t", 0)).commit, b"x")
        with pytest.raises(ConfigurationError, match=f"{BITS}=6: .* with 5 bits"):
            stores_of(6).check(SIX)
        assert layout_of(store) is None
        stores_of(5).check(FIVE)
        assert layout_of(store) == 5


def test_each_location_of_a_clusters_topics_has_its_layout(stores_of: Callable[..., Stores], tmp_path: Path) -> None:
    """If one location is rejected, the agent writes no layout to any."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    (tmp_path / "places.py").write_text(
        "from ts_common.endpoints.provider import EndpointProvider\n"
        "class Places(EndpointProvider):\n"
        f"    def location(self, topic): return {places[0].as_uri()!r}\n"
        f"    def locations(self): return frozenset({[place.as_uri() for place in places]!r})\n"
    )
    said = {"storage.service.endpoint.provider.class": "places:Places"}
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        with open_store(places[0].as_uri()) as one, open_store(places[1].as_uri()) as two:
            two.put(SIX.layout, Layout(6, "prod", 1).encode())
            with pytest.raises(ConfigurationError, match="with 6 entropy bits"):
                stores_of(5, said).check(FIVE)
            assert (layout_of(one), layout_of(two)) == (None, 6)
            stores_of(6, said).check(SIX)
            assert (layout_of(one), layout_of(two)) == (6, 6)


def test_looking_at_a_store_writes_no_layout(stores_of: Callable[..., Stores], tmp_path: Path) -> None:
    """`ts-uploader check` with a wrong number must not store it as the archive's."""
    (tmp_path / "store").mkdir()
    stores_of(6).findings(SIX)
    with open_store((tmp_path / "store").as_uri()) as store:
        assert layout_of(store) is None


def test_no_listing_of_clusters_or_topics_meets_what_is_of_the_whole_cluster(store: ObjectStore) -> None:
    """Its directory is not the name of a cluster, a topic or a width."""
    plain = ClusterKeys("prod")
    store.put(plain.layout, Layout(0, "prod", 1).encode())
    store.put(plain.ends_of(1), b"x")
    assert (entropy_widths(store, "prod"), list_topics(store, plain)) == (frozenset(), {})
    assert list(store.list_directories("")) == [f"{CLUSTER_DIRECTORY}prod/"]
