"""Google's service: the requests to it, and the meaning of its responses."""

import pytest

from tests.conftest import GCS_BUCKET
from ts_common.errors import (
    ObjectNotFound,
    PreconditionFailed,
    StoreUnavailable,
)
from ts_common.store.call import Call
from ts_common.store.contract import IfMatch
from ts_common.store.factory import open_store
from ts_common.store.gcs.service import GcsService
from ts_common.store.http.client import Response
from ts_local.stores.fake_gcs import GcsServer


@pytest.mark.parametrize("etag", ["0", "00", '"0000"', "not a number", ""])
def test_no_etag_means_that_nothing_may_stand_there(google: GcsServer, etag: str) -> None:
    """Generation 0 would mean "if absent"; a commit over a missing object must be rejected."""
    del google
    with open_store(f"gs://{GCS_BUCKET}/zero") as store, pytest.raises(PreconditionFailed):
        store.put("offset.wm", b"x", condition=IfMatch(etag))


def test_a_plain_not_found_is_an_emulators_word_alone() -> None:
    """At Google another server would have sent it, so it does not mean a missing object."""
    told = Response(404, {}, b"Not Found\n")
    call = Call("GET Object", "gs://bucket/key")
    assert isinstance(GcsService("bucket", "http://host", None).error(told, call), ObjectNotFound)
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(told, call), StoreUnavailable)
    said = Response(404, {}, b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>")
    assert isinstance(GcsService("bucket", "http://host", lambda: "t0ken").error(said, call), ObjectNotFound)


def test_no_cache_may_keep_what_is_written_over() -> None:
    """Google caches public objects for an hour unless they forbid it."""
    put = GcsService("bucket", "http://host", None).put("name", {}, None, None, None)
    assert b'"cacheControl": "no-store"' in put.before
