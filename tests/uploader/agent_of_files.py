"""A whole agent in this process, with files that no broker writes."""

import http.client
import re
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from dev.local.agent import write_config
from tests.common.log_format import build
from tests.uploader.beside import PREFIX
from tests.uploader.local_directory import CLUSTER, KEYS, TP, LocalDirectory
from tests.uploader.tracking.led_here import EPOCH
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.provider import open_provider
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_uploader.agent import Agent
from ts_uploader.environment import Environment


def segment(*offsets: int) -> bytes:
    return build.batch(offsets[0], [build.record(number) for number in range(len(offsets))], epoch=EPOCH)


class Beside:
    """An agent in this process, and the broker's files; each page view first writes a checkpoint."""

    def __init__(self, local: LocalDirectory, location: str, directory: Path) -> None:
        self.local = local
        self.store = open_store(location)
        properties = {
            PREFIX + "leadership.watcher.class": "tests.uploader.tracking.led_here:LedHere",
            PREFIX + "stuck.after.ms": "1000",
            PREFIX + "s3.prefix.entropy.bits": str(CLUSTER.entropy_bits),
            "storage.service.endpoint.url": location,
        }
        path = write_config(directory, CLUSTER.cluster, properties)
        config, _ = load_config(directory / f"{CLUSTER.cluster}.properties")
        provider = open_provider(None, CLUSTER.cluster, path, config.endpoint_properties)
        environment = Environment(CLUSTER.cluster, 1, (local.log_dir,), "", kraft=False)
        self.agent = Agent(environment, config, provider, "127.0.0.1:0", lambda: (config, provider))

    def page(self, path: str) -> str:
        """Return what the agent serves, after writing a checkpoint as the broker does."""
        checkpoint = self.local.log_dir / "replication-offset-checkpoint"
        replacement = checkpoint.with_suffix(".tmp")
        replacement.write_text(f"0\n1\n{TP.topic} {TP.partition} 20\n")
        replacement.rename(checkpoint)
        host, _, port = self.agent._health.address.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", path)
        try:
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def stuck(self) -> list[str]:
        """Return the reasons of all series of stuck partitions."""
        found = re.findall(
            r'^ts_uploader_partition_stuck_seconds{.*reason="(\w+)".*}', self.page("/metrics"), re.MULTILINE
        )
        return [str(reason) for reason in found]

    @property
    def next_offset(self) -> int:
        """Return the commit's next offset; 0 without a commit."""
        commit, _ = read_commit(self.store, KEYS)
        return commit.next_offset if isinstance(commit, Commit) else 0

    @property
    def unsettled(self) -> Set[TopicPartition]:
        """The partitions that a checkpoint with equal entries can change."""
        return self.agent._tracker.unsettled

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the agent inside the block."""
        thread = threading.Thread(target=self.agent.run)
        thread.start()
        try:
            yield
        finally:
            self.agent.stop("the test is over")
            thread.join(60)
            self.store.close()
            assert not thread.is_alive()
