"""Frozen objects of S3: the error of a get, the state, and a thaw, against moto; rejections of RestoreObject."""

import time

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.store.servers import FakeServer, answer, error
from tests.made_cold import cold_archive, slow_thaws
from ts_common.errors import ObjectFrozen, ObjectNotFound, OperatorError, StoreUnavailable
from ts_common.store.contract import ObjectStore
from ts_common.store.s3.thaw import state_of
from ts_common.store.thaw_state import ThawState, ThawTier
from ts_common.store.wrappers.request_rate import Pace, PacedStore
from ts_common.store.wrappers.wrapped import WrappedStore

DAY = 86_400


def test_a_frozen_object_is_readable_after_its_thaw(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it a get names object, class and way out; a second thaw moves the time of expiry. Wrappers pass it on."""
    with cold_archive(moto, monkeypatch) as archive, slow_thaws(moto, 3):
        archive.freeze(0)
        key, store = archive.key(0), PacedStore(WrappedStore(archive.store, threads=1), Pace(), threads=1)
        with pytest.raises(ObjectFrozen, match=rf"base/{key}: InvalidObjectState .* class GLACIER; .*tsctl thaw"):
            store.get(key)
        assert store.head(key).is_frozen
        assert store.thaw_state(key) == ThawState("GLACIER", is_frozen=True)
        for _ in range(2):  # in progress the second time
            store.thaw(key, 7, ThawTier.BULK)
        assert store.thaw_state(key).is_thawing
        while (state := store.thaw_state(key)).is_frozen:
            assert state.is_thawing
        assert state.until is not None
        assert 6 * DAY < state.until - time.time() <= 7 * DAY
        assert store.get(key)[1].size == store.head(key).size
        assert not store.head(key).is_frozen
        store.thaw(key, 20, ThawTier.STANDARD)
        assert (store.thaw_state(key).until or 0) > state.until


def test_a_thaw_of_what_is_not_frozen_or_not_there_is_refused(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 uses the same code for an object that needs no thaw as for one that does."""
    with cold_archive(moto, monkeypatch) as archive:
        with pytest.raises(OperatorError, match="it needs no thaw") as refused:
            archive.store.thaw(archive.key(0), 7, ThawTier.BULK)
        assert not isinstance(refused.value, ObjectFrozen)
        with pytest.raises(ObjectNotFound):
            archive.store.thaw(archive.key(99), 7, ThawTier.BULK)
        assert archive.store.thaw_state(archive.key(0)) == ThawState()


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"StorageClass": "GLACIER_IR"}, ThawState("GLACIER_IR")),
        ({"StorageClass": "INTELLIGENT_TIERING"}, ThawState("INTELLIGENT_TIERING")),
        (
            {"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"},
            ThawState("INTELLIGENT_TIERING.ARCHIVE_ACCESS", is_frozen=True),
        ),
        (
            {"StorageClass": "DEEP_ARCHIVE", "Restore": 'ongoing-request="true"'},
            ThawState("DEEP_ARCHIVE", is_frozen=True, is_thawing=True),
        ),
        (
            {
                "StorageClass": "GLACIER",
                "Restore": 'ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"',
            },
            ThawState("GLACIER", until=1356048000.0),
        ),
        (
            {"StorageClass": "GLACIER", "Restore": 'ongoing-request="false", expiry-date="soon"'},
            ThawState("GLACIER", until=float("inf")),
        ),
        ({"StorageClass": "GLACIER", "Restore": "\x00"}, ThawState("GLACIER", is_frozen=True)),
    ],
    ids=["read at once", "tiering", "archive tier", "in progress", "thawed", "strange date", "strange header"],
)
def test_the_headers_of_an_object_show_whether_it_can_be_read(given: dict[str, str], state: ThawState) -> None:
    """The forms of AWS's documentation, and strange ones."""
    assert state_of(given) == state


def test_a_thaw_in_progress_counts_as_begun(far: ObjectStore, fake: FakeServer) -> None:
    """S3 answers 409, which another request would not change."""
    fake.answers = [error("409 Conflict", "RestoreAlreadyInProgress")]
    far.thaw("t-0/a.log", None, ThawTier.EXPEDITED)
    assert b"<Tier>Expedited</Tier>" in fake.bodies[0]
    assert b"<Days>" not in fake.bodies[0]


def test_no_capacity_for_an_expedited_thaw_may_pass(far: ObjectStore, fake: FakeServer) -> None:
    """The message names the tier that has capacity."""
    fake.answers = [error("503 Service Unavailable", "GlacierExpeditedRetrievalNotAvailable")]
    with pytest.raises(StoreUnavailable, match="use --tier Standard"):
        far.thaw("t-0/a.log", 1, ThawTier.EXPEDITED)


def test_a_copy_of_a_frozen_object_names_the_way_out(far: ObjectStore, fake: FakeServer) -> None:
    """S3 has another code for it."""
    fake.answers = [error("403 Forbidden", "ObjectNotInActiveTierError"), answer("200 OK")]
    with pytest.raises(ObjectFrozen, match="tsctl thaw"):
        far.copy_if_absent("a", "b")
