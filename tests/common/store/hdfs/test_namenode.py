"""Responses of a NameNode, and of other servers in its place."""

import io
import json
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest

from dev.local.stores.hdfs import USER
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import (
    AccessDenied,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.hdfs.namenode import NameNode
from ts_common.store.http.bodies import RequestBody


def remote(status: str, exception: str) -> bytes:
    """Return a NameNode's error response."""
    said = {"RemoteException": {"exception": exception, "message": f"{exception} as told\n\tat somewhere"}}
    return answer(status, json.dumps(said).encode(), connection="close")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (remote("403 Forbidden", "StandbyException"), StoreUnavailable),
        (remote("403 Forbidden", "SafeModeException"), StoreUnavailable),
        (remote("500 Error", "IOException"), StoreUnavailable),
        (remote("403 Forbidden", "IOException"), StoreUnavailable),
        (remote("403 Forbidden", "DSQuotaExceededException"), StoreFull),
        (answer("200 OK", b"<html>a proxy</html>", connection="close"), StoreUnavailable),
        (answer("404 Not Found", b"<html>a proxy</html>", connection="close"), StoreUnavailable),
        (b"", StoreUnavailable),
    ],
)
def test_namenode_responses_are_reported_by_the_action_they_require(
    told: bytes, expected: type[TieredStorageError]
) -> None:
    """A standby and a safe mode are temporary; a quota is not; another server's response is no missing object."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [told]
        with pytest.raises(expected, match="/webhdfs/v1/a/b"):
            opened.status("/a/b")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (remote("403 Forbidden", "AccessControlException"), "as told; allow this user"),
        (remote("401 Unauthorized", "InvalidToken"), "as told; allow this user"),
        (answer("401 Unauthorized", b"<html>", connection="close"), "requires authentication"),
        (answer("403 Forbidden", b"<html>", connection="close"), "gives no reason: check the user .* and allow this"),
    ],
)
def test_a_rejection_of_the_user_names_what_is_missing(told: bytes, said: str) -> None:
    """A permission, an unsupported authentication, or a gateway's denial without a reason."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [told]
        with pytest.raises(AccessDenied, match=said):
            opened.status("/a/b")


FILE = {"pathSuffix": "", "fileId": 7, "length": 1, "modificationTime": 1, "type": "FILE"}


@pytest.mark.parametrize(
    "told", [{}, [], 5, {"FileStatus": {**FILE, "length": None}}, {"DirectoryListing": {}}, {"XAttrs": [5]}]
)
def test_an_invalid_namenode_response_is_a_retryable_error(told: object) -> None:
    """JSON of another server is a failed request, which may be retried."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [answer("200 OK", json.dumps(told).encode())]
        for ask in (opened.status, opened.metadata, lambda path: list(opened.listed(path))):
            with pytest.raises(StoreUnavailable, match="/webhdfs/v1/a/b"):
                ask("/a/b")


def test_a_namenode_that_sends_on_to_nowhere_ends_nothing() -> None:
    """307 without the address of a DataNode, to a read and to a put."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [answer("307 Temporary Redirect")]
        with pytest.raises(StoreUnavailable, match="OPEN"), opened.opened("/a/b", 0, 1):
            pass
        with pytest.raises(StoreUnavailable, match="CREATE"):
            opened.create("/a/b", RequestBody(io.BytesIO(b"x"), 1, None, "/a/b"), {})


def test_u14_a_rename_whose_answer_is_lost_is_unknown_and_sent_once() -> None:
    """The NameNode may have renamed the file."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [b""]
        with pytest.raises(OutcomeUnknown):
            opened.rename("/a/.put-1", "/a/b", overwrite=False)
        assert len(server.requests) == 1


@pytest.mark.parametrize("headers", [{}, {"content_type": "text/html"}], ids=["no type", "its type"])
def test_u37_a_page_of_a_balancer_renames_and_deletes_nothing(headers: dict[str, str]) -> None:
    """A put is complete when its file has its name; a status 200 alone does not prove that."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [answer("200 OK", b"<html>welcome</html>", **headers)]
        with pytest.raises(OutcomeUnknown):
            opened.rename("/a/.put-1", "/a/b", overwrite=False)
        with pytest.raises(StoreUnavailable):
            opened.delete("/a/b")


def test_a_listing_continues_after_the_last_name_of_a_page() -> None:
    """The NameNode reports how many entries remain."""

    def page(*names: str, remaining: int) -> bytes:
        found = [{**FILE, "pathSuffix": name} for name in names]
        listing = {"partialListing": {"FileStatuses": {"FileStatus": found}}, "remainingEntries": remaining}
        return answer("200 OK", json.dumps({"DirectoryListing": listing}).encode())

    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [page("a", "b", remaining=1), page("c", remaining=0)]
        assert [status.name for status in opened.listed("/d")] == ["a", "b", "c"]
    first, second = (parse_qs(urlsplit(line.split()[1]).query) for line in server.requests)
    assert "startAfter" not in first
    assert second["startAfter"] == ["b"]
    assert second["user.name"] == [USER]


def test_a_file_of_another_length_is_no_put() -> None:
    """A DataNode may confirm a part; the caller then removes the file."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        to_data_node = answer("307 Temporary Redirect", location=f"{server.endpoint}/data")
        status = answer("200 OK", json.dumps({"FileStatus": FILE}).encode())
        body = RequestBody(io.BytesIO(b"xyz"), 3, None, "/a/b")
        server.answers = [to_data_node, answer("201 Created"), status]
        with pytest.raises(StoreUnavailable, match="CREATE /a/b: 1 of 3 bytes arrived"):
            opened.create("/a/.put-1", body, {})
        assert server.bodies[1] == b"xyz"
        server.answers = [to_data_node, answer("201 Created"), status]
        assert opened.create("/a/.put-1", RequestBody(io.BytesIO(b"x"), 1, None, "/a/b"), {}).inode.endswith("/7")
