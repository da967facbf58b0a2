"""A whole agent with files that no broker writes, and one partition that it cannot ship."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structlog.testing import capture_logs

from dev.local.agent import write_config
from dev.local.waiting import wait_for
from tests.common.log_format import build
from tests.uploader.beside import PREFIX
from tests.uploader.local_directory import CLUSTER, KEYS, TP, LocalDirectory
from tests.uploader.tracking.led_here import EPOCH
from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.provider import open_provider
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


def test_u35_a_partition_whose_upload_fails_is_reported_as_stuck_until_it_is_repaired(tmp_path: Path) -> None:
    """Series, log, status and page name it. The segment before it is committed; all are, once its file is whole."""
    (tmp_path / "store").mkdir()
    local = LocalDirectory(tmp_path / "log")
    local.epochs((EPOCH, 0))
    local.write(0, segment(*range(10)))
    local.write(10, b"no batch, and more bytes than the length of one's header takes: " * 3)
    local.write(20, b"")
    beside = Beside(local, (tmp_path / "store").as_uri(), tmp_path / "conf")
    with capture_logs() as logs, beside.running():
        wait_for(lambda: beside.stuck() == ["upload"], "a series of the stuck partition", 60)
        assert beside.next_offset == 10
        told = json.loads(beside.page("/status.json"))
        (named,) = told["stuck_partitions"]
        assert (named["topic"], named["partition"], named["reason"], told["stuck"]) == ("t", 0, "upload", 1)
        assert "the upload of segment 10: CorruptData" in named["waits_for"]
        assert told["healthy"]
        assert "ok" in beside.page("/healthz")
        assert "All is well." not in beside.page("/")
        local.write(10, segment(*range(10, 20)))
        wait_for(lambda: beside.next_offset == 20, "the commit of the segment that is whole by now", 60)
        wait_for(lambda: beside.stuck() == [], "the end of the series", 60)
        assert "All is well." in beside.page("/")
    lines = [(line["log_level"], line["partition"]) for line in logs if "stuck" in line["event"]]
    assert lines == [("error", "t-0"), ("info", "t-0")]
