"""The checks before a run of `tsctl gc`, on real stores: each result, and nothing is left in the store."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.local.stores.fake_gcs import GcsServer
from dev.local.stores.moto import MotoServer
from tests.conftest import GCS_BUCKET
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import NO_METADATA, Body, Condition, DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.directory.driver import FileStore
from ts_common.store.factory import open_store
from ts_common.store.protection import Protection
from ts_common.store.wrappers.wrapped import WrappedStore
from tsctl.gc.checks import Check, Verdict, run_checks

KEYS = ClusterKeys("prod", 3)


def of(checks: list[Check], name: str) -> list[tuple[str, str]]:
    """Return verdict and text of each result of a check."""
    return [(each.verdict, each.text) for each in checks if each.name == name]


def left(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list()]


@pytest.fixture
def moto(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> MotoServer:
    """Return moto's server, which the environment names."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return moto_server


@pytest.fixture
def bucket(moto: MotoServer) -> Iterator[tuple[Any, str, ObjectStore]]:
    """Return a client, a bucket with object lock, and a store in it."""
    name = f"gc-{uuid.uuid4().hex[:12]}"
    with closing(moto.client()) as client, open_store(f"s3://{name}/base") as store:
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
        yield client, name, store


def test_a_directory_is_fine_and_stays_empty(tmp_path: Path) -> None:
    """It compares ETags under a lock, and a delete removes the bytes."""
    with FileStore(tmp_path) as store:
        checks = run_checks(store, KEYS)
        assert {each.verdict for each in checks} == {Verdict.OK}
        assert {each.name for each in checks} == {"rights", "clock", "conditional delete", "protection", "lifecycle"}
        assert left(store) == []
    assert list(tmp_path.rglob("*prod*")) == []


def test_a_bucket_with_locks_versions_and_harmful_rules_is_explained(bucket: tuple[Any, str, ObjectStore]) -> None:
    """First without rules, so that versions stay for ever; then with rules that expire segments and early versions."""
    client, name, store = bucket
    checks = run_checks(store, KEYS)
    locks, versions = of(checks, "protection")
    assert locks == (
        Verdict.OK,
        "the bucket has object lock: a run reads the lock of each object, and keeps locked ones",
    )
    assert versions[0] is Verdict.WARNING
    assert "the bytes of a deleted object stay for ever: add a lifecycle rule" in versions[1]
    assert of(checks, "lifecycle") == [(Verdict.OK, "no lifecycle rule harms objects of the cluster")]
    assert [verdict for verdict, _ in of(checks, "conditional delete")] == [Verdict.OK]
    rules = [
        {"ID": "holes", "Status": "Enabled", "Filter": {"Prefix": "base/101/"}, "Expiration": {"Days": 9}},
        {
            "ID": "early",
            "Status": "Enabled",
            "Filter": {"Prefix": "base/"},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 2},
        },
    ]
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
    checks = run_checks(store, KEYS)
    (error, holes), (warning, early) = of(checks, "lifecycle")
    assert (error, warning) == (Verdict.ERROR, Verdict.WARNING)
    assert "'holes'" in holes
    assert "removes earlier versions of objects of the cluster after 2 days" in early
    assert of(checks, "protection")[1][1].endswith("stay for 2 days, by a lifecycle rule")
    assert left(store) == []


def test_an_identity_that_may_do_all_is_a_warning(bucket: tuple[Any, str, ObjectStore]) -> None:
    """Nothing is written under the names of partitions, although the identity may."""
    _, _, store = bucket
    read, done, more = of(run_checks(store, KEYS), "rights")
    assert {read[0], done[0]} == {Verdict.OK}
    assert more[0] is Verdict.WARNING
    assert "delete offset.wm of first incarnations" in more[1]
    assert "put segments" in more[1]
    assert "deploy/iam/collector.json" in more[1]
    assert left(store) == []


def test_a_store_that_ignores_the_etag_of_a_delete_is_an_error(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator of Google removes another object than the delete named."""
    for name, value in gcs_server.environment().items():
        monkeypatch.setenv(name, value)
    with open_store(f"gs://{GCS_BUCKET}/{uuid.uuid4().hex}") as store:
        ((verdict, text),) = of(run_checks(store, KEYS), "conditional delete")
        assert verdict is Verdict.ERROR
        assert "removed an object that has another ETag" in text
        assert left(store) == []


def test_a_store_that_needs_a_head_before_each_delete_is_a_warning(tmp_path: Path) -> None:
    """As with storage.service.conditional.writes=false: the window between the two requests is named."""
    with open_store(tmp_path.as_uri(), conditional_writes=False) as store:
        ((verdict, text),) = of(run_checks(store, KEYS), "conditional delete")
        assert verdict is Verdict.WARNING
        assert "a HEAD precedes each delete" in text


@pytest.mark.parametrize("denied", ["put", "delete"])
def test_a_directory_where_runs_may_not_write_their_own_objects_is_an_error(tmp_path: Path, denied: str) -> None:
    """A run would end at its report, or leave copies of `log.start` behind. No policy of a store names this right."""

    class Closed(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            if denied == "put" and key.startswith(KEYS.gc):
                raise AccessDenied("gc/ is closed")
            return self._inner.put(key, *arguments, **named)

        def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
            if any(key.startswith(KEYS.gc) for key in etags):
                return DeleteOutcome((), (), dict.fromkeys(etags, AccessDenied("gc/ is closed")))
            return self._inner.delete_matching(etags)

    with FileStore(tmp_path) as store:
        store.put(KEYS.layout, b"{}")
        found = of(run_checks(Closed(store, threads=1), KEYS), "rights")[-1]
        assert found[0] is Verdict.ERROR
        assert re.fullmatch(rf"this identity may not put and delete below {KEYS.gc}, .*: gc/ is closed", found[1])
        assert of(run_checks(store, KEYS), "rights")[-1][0] is Verdict.OK


class Restricted(WrappedStore):
    """A store with a clock that differs, and an identity that lacks the rights in `denied`."""

    def __init__(self, inner: ObjectStore, denied: frozenset[str], ahead: float = 0) -> None:
        super().__init__(inner, threads=1)
        self._denied = denied
        self._ahead = ahead

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        self._deny("put")
        info = super().put(
            key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )
        return replace(info, modified=info.modified - self._ahead)

    def check(self) -> None:
        self._deny("read")

    def protection(self) -> Protection:
        self._deny("protection")
        return Protection(versioned=True, locks=False, default_retention=None)

    def lifecycle_rules(self) -> None:
        self._deny("rules")

    def _deny(self, right: str) -> None:
        if right in self._denied:
            raise AccessDenied(f"allow this identity {right}")


@pytest.mark.parametrize(
    ("denied", "name", "verdict", "text"),
    [
        ("read", "rights", Verdict.ERROR, "may not read the archive: allow this identity read"),
        ("put", "conditional delete", Verdict.WARNING, f"not tried: this identity may not put {PROBE_NAME}-gc-"),
        (
            "put",
            "rights",
            Verdict.ERROR,
            "may not write; a run puts log.start, its copy and a report: allow this identity put",
        ),
        ("protection", "protection", Verdict.ERROR, "a delete would hide a locked object"),
        ("rules", "lifecycle", Verdict.WARNING, "the rules were not read"),
        ("rules", "protection", Verdict.WARNING, "until the lifecycle rules expire them, which could not be read"),
    ],
)
def test_a_right_that_is_missing_is_named_and_the_other_checks_run(
    tmp_path: Path, denied: str, name: str, verdict: Verdict, text: str
) -> None:
    """What was not tried is no success."""
    with Restricted(FileStore(tmp_path), frozenset({denied})) as store:
        checks = run_checks(store, KEYS)
    found = of(checks, name)[-1]
    assert found[0] is verdict
    assert text in found[1]
    assert {each.name for each in checks} >= {"rights", "protection", "lifecycle"}


@pytest.mark.parametrize(("ahead", "side"), [(300.0, "ahead of"), (-300.0, "behind")])
def test_a_clock_that_differs_is_a_warning(tmp_path: Path, ahead: float, side: str) -> None:
    """Ages count by the store's clock."""
    with Restricted(FileStore(tmp_path), frozenset(), ahead) as store:
        ((verdict, text),) = of(run_checks(store, KEYS), "clock")
    assert verdict is Verdict.WARNING
    assert re.match(f"this host's clock is (29|30)[0-9] s {side} the store's, whose time decides", text)
