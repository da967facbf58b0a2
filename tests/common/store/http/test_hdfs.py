"""HDFS: the driver's compare-and-swap by renames, and responses of a NameNode."""

import io
import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.common.store.servers import FakeServer, answer
from ts_common.errors import (
    AccessDenied,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.hdfs.driver import WebHdfsStore
from ts_common.store.hdfs.namenode import NameNode, Status
from ts_common.store.http.bodies import RequestBody
from ts_local.stores.hdfs import USER, HdfsServer

OpenAgain = Callable[[], ObjectStore]


@pytest.fixture
def again(hdfs: HdfsServer) -> OpenAgain:
    """Return a function that opens the same empty location several times, like several agents."""
    name = uuid.uuid4().hex
    hdfs.make_directory(f"/tests/{name}", "777")
    return lambda: open_store(f"webhdfs://{hdfs.address}/tests/{name}")


@pytest.fixture
def namenode(hdfs: HdfsServer) -> Iterator[NameNode]:
    with closing(NameNode(f"http://{hdfs.address}", USER, 20, 4)) as opened:
        yield opened


def names(namenode: NameNode, store: ObjectStore) -> set[str]:
    """Return the real names in the directory of a store."""
    return {each.name for each in namenode.listed("/tests/" + store.location.rpartition("/")[2])}


def test_u31_a_writer_killed_before_its_last_step_holds_nobody_up(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next writer finishes the put, is rejected, and succeeds with the new ETag."""
    with again() as killed, again() as other:
        first = killed.put("offset.wm", b"first", condition=IfAbsent()).etag
        with monkeypatch.context() as patched:
            patched.setattr(WebHdfsStore, "_replace", lambda *_: (_ for _ in ()).throw(StoreUnavailable("killed")))
            with pytest.raises(OutcomeUnknown):
                killed.put("offset.wm", b"killed", metadata={"by": "it"}, condition=IfMatch(first))
        assert other.get("offset.wm")[0] == b"first"
        with pytest.raises(PreconditionFailed):
            other.put("offset.wm", b"other", condition=IfMatch(first))
        content, info = other.get("offset.wm")
        assert (content, dict(info.metadata)) == (b"killed", {"by": "it"})
        other.put("offset.wm", b"other", condition=IfMatch(info.etag))
        assert killed.get("offset.wm")[0] == b"other"
        assert names(namenode, other) == {"offset.wm"}


def test_u06_a_writer_that_was_asleep_between_look_and_rename_is_refused(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer was first, and the name `.next-` is free again: the second check finds that."""
    with again() as asleep, again() as other:
        first = asleep.put("offset.wm", b"first").etag
        rename = NameNode.rename
        woken: list[bool] = []

        def sleeping(self: NameNode, path: str, destination: str, *, overwrite: bool) -> None:
            if not woken:
                woken.append(True)
                other.put("offset.wm", b"other", condition=IfMatch(first))
            rename(self, path, destination, overwrite=overwrite)

        monkeypatch.setattr(NameNode, "rename", sleeping)
        with pytest.raises(PreconditionFailed):
            asleep.put("offset.wm", b"asleep", condition=IfMatch(first))
        assert other.get("offset.wm")[0] == b"other"
        assert names(namenode, other) == {"offset.wm"}


@pytest.mark.parametrize("written_over", [False, True], ids=["and nothing more", "and then written over"])
def test_u06_a_put_that_somebody_else_finished_is_no_refusal(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch, written_over: bool
) -> None:
    """Between its claim and its second check another writer finished the put: it has happened."""
    with again() as claiming, again() as other:
        first = claiming.put("offset.wm", b"first").etag
        rename = NameNode.rename
        claimed: list[bool] = []

        def slow(self: NameNode, path: str, destination: str, *, overwrite: bool) -> None:
            rename(self, path, destination, overwrite=overwrite)
            if not claimed:
                claimed.append(True)
                with pytest.raises(PreconditionFailed):
                    other.put("offset.wm", b"other", condition=IfMatch(first))
                if written_over:
                    other.put("offset.wm", b"later", condition=IfMatch(other.head("offset.wm").etag))

        monkeypatch.setattr(NameNode, "rename", slow)
        if written_over:  # like one that never existed
            with pytest.raises(OutcomeUnknown):
                claiming.put("offset.wm", b"second", condition=IfMatch(first))
            assert other.get("offset.wm")[0] == b"later"
        else:
            second = claiming.put("offset.wm", b"second", condition=IfMatch(first)).etag
            content, info = other.get("offset.wm")
            assert (content, info.etag) == (b"second", second)
        assert names(namenode, other) == {"offset.wm"}


@pytest.mark.parametrize("written_over", [False, True], ids=["and nothing more", "and then written over"])
def test_u06_a_put_that_somebody_tidied_away_is_not_taken_for_done(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch, written_over: bool
) -> None:
    """A writer slept for a day after its claim, and another one removed the claim as that of a killed writer."""
    with again() as asleep, again() as other:
        first = asleep.put("offset.wm", b"first").etag
        rename = NameNode.rename
        claimed: list[bool] = []

        def slow(self: NameNode, path: str, destination: str, *, overwrite: bool) -> None:
            rename(self, path, destination, overwrite=overwrite)
            if not claimed:
                claimed.append(True)
                with monkeypatch.context() as patched:
                    patched.setattr("ts_common.store.hdfs.driver._LEFT_BEHIND_SECONDS", -3600.0)
                    other.put("beside", b"x")
                if written_over:
                    other.put("offset.wm", b"later", condition=IfMatch(first))

        monkeypatch.setattr(NameNode, "rename", slow)
        with pytest.raises(OutcomeUnknown, match=r"offset\.wm"):
            asleep.put("offset.wm", b"asleep", condition=IfMatch(first))
        assert other.get("offset.wm")[0] == (b"later" if written_over else b"first")
        assert names(namenode, other) == {"offset.wm", "beside"}


def test_u06_who_finishes_late_writes_over_nothing_newer(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds another writer's `.next-`, sleeps, and renames after that object was overwritten."""
    with again() as beginning, again() as finishing:
        first = beginning.put("offset.wm", b"first").etag
        take_over, late = WebHdfsStore._replace, []

        def begun(self: WebHdfsStore, following: Status, path: str) -> bool:
            late.append((following, path))
            return take_over(self, following, path)

        monkeypatch.setattr(WebHdfsStore, "_replace", begun)
        second = beginning.put("offset.wm", b"second", condition=IfMatch(first)).etag
        finishing.put("offset.wm", b"third", condition=IfMatch(second))
        assert isinstance(finishing, WebHdfsStore)
        take_over(finishing, *late[0])
        assert finishing.get("offset.wm")[0] == b"third"
        assert names(namenode, finishing) == {"offset.wm"}


@pytest.mark.full
def test_u06_of_many_writers_none_loses_what_another_wrote(again: OpenAgain, namenode: NameNode) -> None:
    """Four agents append to one object; at the end it has each accepted step once."""
    with again() as store:
        store.put("offset.wm", b"")

    def add(writer: int) -> None:
        with again() as mine:
            done = 0
            while done < 10:
                content, info = mine.get("offset.wm")
                step = b"%d.%d" % (writer, done)
                try:
                    mine.put("offset.wm", b"%s %s" % (content, step), condition=IfMatch(info.etag))
                except PreconditionFailed:
                    continue
                except OutcomeUnknown:  # it may have been the object, and was overwritten since
                    if step not in mine.get("offset.wm")[0].split():
                        continue
                done += 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(4)))
    with again() as store:
        steps = store.get("offset.wm")[0].split()
        assert sorted(steps) == sorted(b"%d.%d" % (writer, done) for writer in range(4) for done in range(10))
        assert names(namenode, store) == {"offset.wm"}


def test_files_of_the_driver_are_never_listed_and_old_ones_go(
    again: OpenAgain, namenode: NameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a killed writer are no objects, and are removed after a day."""
    with again() as store:
        store.put("t-0/a", b"x")
        path = "/tests/" + store.location.rpartition("/")[2] + "/t-0"
        for left in (".put-left", ".next-1"):
            namenode.rename(f"{path}/a", f"{path}/{left}", overwrite=False)
            store.put("t-0/a", b"x")
        assert [info.key for info in store.list()] == ["t-0/a"]
        with pytest.raises(ObjectNotFound):
            store.get("t-0/put-left")
    with again() as store:
        store.put("t-0/b", b"x")
        assert {each.name for each in namenode.listed(path)} == {"a", "b", ".put-left", ".next-1"}
    monkeypatch.setattr("ts_common.store.hdfs.driver._LEFT_BEHIND_SECONDS", -3600.0)
    with again() as store:
        store.put("t-0/c", b"x")
        assert {each.name for each in namenode.listed(path)} == {"a", "b", "c"}


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
        (remote("403 Forbidden", "DSQuotaExceededException"), OperatorError),
        (answer("200 OK", b"<html>a proxy</html>", connection="close"), StoreUnavailable),
        (answer("404 Not Found", b"<html>a proxy</html>", connection="close"), StoreUnavailable),
        (b"", StoreUnavailable),
    ],
)
def test_what_a_namenode_answers_is_told_as_what_to_do(told: bytes, expected: type[TieredStorageError]) -> None:
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
def test_a_refusal_of_the_user_says_what_is_missing(told: bytes, said: str) -> None:
    """A permission, an unsupported authentication, or a gateway's denial without a reason."""
    with FakeServer() as server, closing(NameNode(server.endpoint, USER, 5, 4)) as opened:
        server.answers = [told]
        with pytest.raises(AccessDenied, match=said):
            opened.status("/a/b")


FILE = {"pathSuffix": "", "fileId": 7, "length": 1, "modificationTime": 1, "type": "FILE"}


@pytest.mark.parametrize(
    "told", [{}, [], 5, {"FileStatus": {**FILE, "length": None}}, {"DirectoryListing": {}}, {"XAttrs": [5]}]
)
def test_what_a_namenode_does_not_say_ends_nothing(told: object) -> None:
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
