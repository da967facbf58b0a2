"""Pages of listings: the state of thaws is requested from the first page with an object of an archive class on."""

from tests.common.store.s3.test_listing_parser import page
from tests.common.store.servers import FakeServer, answer
from ts_common.store.contract import ObjectStore

HEADER = "x-amz-optional-object-attributes"
_RESTORED = b"<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus></Contents>"
_RUNNING = b"<RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress></RestoreStatus></Contents>"


def test_a_store_without_archived_objects_gets_no_header_of_thaws(far: ObjectStore, fake: FakeServer) -> None:
    """Other stores can reject it."""
    fake.answers = [answer("200 OK", page([("base/a", 1, '"e"')], storage_class="GLACIER_IR"))]
    assert [info.is_frozen for info in far.list()] == [False]
    assert [HEADER in headers for headers in fake.headers] == [False]


def test_a_listing_shows_which_archived_objects_are_readable(far: ObjectStore, fake: FakeServer) -> None:
    """The first page is requested again with the header; later listings have it at once."""
    without = page([("base/a", 1, '"e"'), ("base/b", 1, '"e"'), ("base/c", 1, '"e"')], storage_class="GLACIER")
    restored = without.replace(b"</Contents>", _RESTORED, 1)
    running = restored[: -len(b"</Contents></ListBucketResult>")] + _RUNNING + b"</ListBucketResult>"
    fake.answers = [answer("200 OK", without), answer("200 OK", running)]
    for _ in range(2):
        assert {info.key: info.is_frozen for info in far.list()} == {"a": False, "b": True, "c": True}
    assert [headers.get(HEADER) for headers in fake.headers] == [None, "RestoreStatus", "RestoreStatus"]
