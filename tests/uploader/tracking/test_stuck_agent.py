"""A whole agent with one partition that it cannot ship."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from dev.local.waiting import wait_for
from tests.uploader.agent_of_files import Beside, segment
from tests.uploader.local_directory import LocalDirectory
from tests.uploader.tracking.led_here import EPOCH


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
