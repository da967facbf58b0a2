"""The driver of HDFS: its compare-and-swap by renames, and its files."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from dev.local.stores.hdfs import USER, HdfsServer
from ts_common.errors import ObjectNotFound, OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.hdfs.driver import WebHdfsStore
from ts_common.store.hdfs.namenode import HdfsFileStatus, NameNode

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


def test_an_object_that_is_overwritten_after_the_look_is_not_removed(
    again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete is of the inode that the driver read, which the new object never has."""
    with again() as store:
        etag = store.put("key", b"former").etag
        real = NameNode.delete

        def overwrite_first(namenode: NameNode, path: str) -> None:
            with monkeypatch.context() as restored:
                restored.setattr(NameNode, "delete", real)
                store.put("key", b"new")
            real(namenode, path)

        monkeypatch.setattr(NameNode, "delete", overwrite_first)
        assert store.delete_matching({"key": etag}).failed == {}
        assert store.get("key")[0] == b"new"


def test_u31_a_writer_killed_before_its_last_step_blocks_no_other(
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
def test_u06_a_put_that_another_writer_finished_is_not_rejected(
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
def test_u06_a_put_whose_file_another_writer_removed_does_not_count_as_done(
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

        def begun(self: WebHdfsStore, following: HdfsFileStatus, path: str) -> bool:
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


def test_files_of_the_driver_are_never_listed_and_old_ones_are_deleted(
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


def test_the_user_of_the_requests_is_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the NameNode sees it."""
    monkeypatch.setenv("HADOOP_USER_NAME", "anna")
    with open_store("webhdfs://127.0.0.1:1/archive") as store:
        assert store.identity() == "user:anna"
