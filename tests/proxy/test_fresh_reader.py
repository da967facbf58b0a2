"""What a reader that has read nothing yet sends to S3 for the newest records of one partition."""

from urllib.parse import unquote

import pytest

from dev.local.proxy.s3 import S3FaultProxy
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_tail import ship
from tests.proxy.objects import BUCKET
from tests.uploader.tail.test_fresh_reader import Shipped
from ts_common.store.factory import open_store
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Offset, Query, Subscription
from ts_reader.query.read_split import read_split
from ts_uploader.tail import merging, pack_log


@pytest.mark.parametrize(("size", "total", "of_tail"), [("small", 8, 3), ("large", 10, 5)])
def test_a_fresh_reader_of_one_partition_sends_at_most_ten_requests(
    proxy: S3FaultProxy, monkeypatch: pytest.MonkeyPatch, size: str, total: int, of_tail: int
) -> None:
    """On the wire, with all that its store sends; where retention has written `log.start`, one more."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(merging, "PACKS", 12)
    if size == "large":  # a pack of a log with more than 1,024 entries
        for setting, number in {"_WIDE_EVERY": 4, "_WIDE_ROWS": 2, "_NARROW_ROWS": 1}.items():
            monkeypatch.setattr(pack_log, setting, number)
    archive = MadeArchive(f"s3://{BUCKET}/fresh-{size}")
    archive.put_incarnations("t", "AAAAAAAAAAAAAAAAAAAAAA")
    ship(archive)
    shipped = Shipped(archive)
    for _ in range(12 * 5 + 7):
        shipped.put()
    archive.store.close()
    before = len(proxy.requests())
    query = Query(archive.location, CLUSTER, None, Subscription(("t",)), start=Offset(shipped.end - 3), tail=True)
    with open_store(archive.location) as store:
        rows = [each for split in plan_query(store, query).splits for each in read_split(store, split, ["offset"])]
    assert sum(each.num_rows for each in rows) == 3
    sent = [unquote(each.target) for each in proxy.requests()[before:]]
    assert (len(sent), sum("/tail/" in each for each in sent)) == (total, of_tail), sent
