"""A load balancer in maintenance answers 200 with a web page in place of the store (U37)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.proxy.actions import WebPage
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.uploader.batches import batch
from tests.uploader.beside import BUCKET
from tests.uploader.conftest import ArchiveOf
from tests.uploader.local_directory import CLUSTER, ID, KEYS, TP, LocalDirectory
from ts_common.archive.catalog import read_catalog
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import StoreUnavailable
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_uploader.committing.commit_log import CommitLog
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.tasks import ReadPosition


@pytest.fixture
def far(proxy: S3FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Open a store behind the proxy."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    with open_store(f"s3://{BUCKET}/{tmp_path.name}") as store:
        yield store


def test_u37_a_listing_that_is_a_web_page_never_decides_where_an_archive_begins(
    proxy: S3FaultProxy, far: ObjectStore, local: LocalDirectory
) -> None:
    """A Java uploader's archive is continued from its own beginning, although the first listings are web pages."""
    for base in (0, 3, 6):
        far.put(KEYS.segment(SegmentName(base)), batch(base, 3, 5))
    far.put(KEYS.commit, b"00000000000000000006")
    local.write(6, batch(6, 3, 5))
    local.write(9, batch(9, 3, 5))
    local.segments(12)
    local.epochs((5, 0))
    commits = CommitLog(CLUSTER, 1, lambda _: far)
    question = ReadPosition(TP, 0, Leadership(5, ID, 0), local.listing(), 6, None, 0)
    page = WebPage()
    proxy.script(Rule(page, methods={"GET"}, target="list-type=2", times=None))

    with pytest.raises(StoreUnavailable, match="ListBucketResult"):
        commits.read(question)
    assert page.fired > 0
    proxy.clear()
    assert read_catalog(far, KEYS).log_start is None

    assert commits.read(question).position.next_offset == 9
    assert read_catalog(far, KEYS).log_start == 0


def test_u37_an_agent_outlives_a_store_that_answers_with_web_pages(
    cluster: LocalCluster, archive_of: ArchiveOf, proxy: S3FaultProxy
) -> None:
    """Reads, puts and listings are failed requests: the process continues, and ships when the store is available."""
    archive = archive_of("maintenance", proxy=proxy)
    cluster.create_topic("maintenance", assignment=[[1]])
    agent = archive.agent()
    started = agent.pid
    asked = [
        ("GET", "list-type=2"),
        ("GET", "offset.wm"),
        ("PUT", r"\.index$"),
        ("PUT", r"\.log$"),
        ("PUT", r"offset.wm$"),
    ]
    pages = [WebPage() for _ in asked]
    proxy.script(*(Rule(page, methods={way}, target=at) for page, (way, at) in zip(pages, asked, strict=True)))
    cluster.produce("maintenance", [Record(b"x" * 1000) for _ in range(300)], partition=0)

    end = archive.wait_until_shipped()

    assert [page.fired for page in pages] == [1] * len(pages)
    assert archive.read() == archive.oracle(end=end)
    assert agent.alive
    assert agent.pid == started
