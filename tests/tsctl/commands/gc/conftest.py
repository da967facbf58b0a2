"""A policy, and archives that are shipped for it: one store, and two of one cluster."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.agent import write_config
from tests.made_archive import MadeArchive
from tests.spark.archives import Archive
from tests.tsctl.gc.archives import ship
from ts_common.endpoints import EndpointProvider
from ts_common.store.contract import ObjectStore

POLICY = """
cluster: prod
grace: 1h
least_time: 0s
fuse: {{share: 90%}}
rules:
  - topics: kept
    keep: true
  - topics: .*
    max_size: 1KiB
    confirm_small: true
    {more}
"""
DAY = 86_400_000
ALL = list(range(0, 100, 10))
OLD, NEW = "A" * 22, "B" * 22


class TwoStores(EndpointProvider):
    """Two directories next to that of the configuration: topics `b` and `moved` are in `b`, all others in `a`."""

    def location(self, topic: str) -> str:
        """Return the directory of a topic."""
        return (self.config_dir.parent / ("b" if topic in {"b", "moved"} else "a")).as_uri()

    def locations(self) -> frozenset[str]:
        """Return both."""
        return frozenset(map(self.location, "ab"))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path)


def write_policy(directory: Path, more: str = "", **replaced: str) -> Path:
    """Write the policy with more keys of its last rule; `replaced` are whole values of its own keys."""
    text = POLICY.format(more=more)
    for name, value in replaced.items():
        text, count = re.subn(rf"^{name}: .*$", f"{name}: {value}", text, flags=re.MULTILINE)
        assert count == 1
    path = directory / "retention.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def shipped(hand_made: Archive) -> Archive:
    for topic in ("t", "kept"):
        ship(hand_made, topic, 0, 100)
    return hand_made


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[MadeArchive, MadeArchive, Path]]:
    """Return the stores of one archive, with topic `a` and `b`, and the directory of its configuration."""
    stores = tuple(MadeArchive(tmp_path / name) for name in "ab")
    for archive, topic in zip(stores, "ab", strict=True):
        archive.store.put(archive.keys.layout, b'{"version":1,"entropyBits":0,"cluster":"prod","time":0}')
        ship(archive, topic, 0, 100)
    write_config(tmp_path / "conf", "prod", {"storage.service.endpoint.provider.class": f"{__name__}:TwoStores"})
    yield stores[0], stores[1], tmp_path / "conf"
    for archive in stores:
        archive.store.close()


def contents(store: ObjectStore) -> dict[str, str]:
    return {info.key: info.etag for info in store.list()}
