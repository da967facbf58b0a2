"""The requests that `tsctl repair` writes."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.repair_requests import Damage, unanswered
from ts_common.archive.small_objects import get_small
from ts_common.store.contract import ObjectInfo, ObjectStore
from tsctl.repair.needs import Need
from tsctl.repair.requests import Requests


def test_the_requests_of_a_store_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them needs a get, and each request of this run is compared with all. Two equal needs send one request."""
    made = MadeArchive(tmp_path / "store")
    read: list[str] = []

    def counted(store: ObjectStore, key: str, most: int) -> tuple[bytes, ObjectInfo]:
        read.append(key)
        return get_small(store, key, most)

    monkeypatch.setattr("ts_common.archive.stored_object.get_small", counted)
    for _ in range(2):
        sender = Requests(made.keys)
        sent = [
            sender.send(made.store, made.partition("t"), Need(offset, offset + 1, Damage.MISSING, None), offset + 1)
            for offset in (0, 1, 2, 3, 3)
        ]
    assert [each.is_new for each in sent] == [False] * 5
    assert len(read) == 4
    assert len(list(unanswered(made.store, made.keys))) == 4
