"""The findings of `ts-uploader check` on a store, beyond the checks of an agent's start."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dev.local.stores.moto import MotoServer
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied
from ts_common.store.contract import NO_METADATA, Body, Condition, DeleteOutcome, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.options import Endpoint, LockMode, StorageOptions, Storing
from ts_common.store.protection import Lock, Protection
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.findings import Finding, Severity
from ts_uploader.stores.layout_check import settle_layout
from ts_uploader.stores.store_check import PROBE, problems_of
from ts_uploader.stores.store_findings import deep_check

KEYS = ClusterKeys("prod", 3)
EXPIRES: Mapping[str, Any] = {"Expiration": {"Days": 30}}
GLACIER: Mapping[str, Any] = {"Transitions": [{"Days": 90, "StorageClass": "GLACIER"}]}


@pytest.fixture
def bucket(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create an empty bucket on moto's server."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    name = f"check-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=name)
    return name


def found(
    location: str,
    storing: Storing = Storing(),  # noqa: B008  (frozen)
    wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    *,
    has_tail: bool = False,
) -> list[Finding]:
    """Return all findings on a location."""
    endpoint = Endpoint(location, StorageOptions(storing=storing))

    def open_with(options: StorageOptions) -> ObjectStore:
        return wrap(open_store(location, options, timeout_seconds=20))

    with closing(open_with(endpoint.options)) as store:
        assert problems_of(store, KEYS, endpoint, open_with, conditional=True) == []
        return deep_check(store, KEYS, endpoint, has_tail=has_tail)


def worse(findings: Iterable[Finding]) -> list[Finding]:
    """Return warnings and errors."""
    return [each for each in findings if each.severity in {Severity.WARNING, Severity.ERROR}]


def rule(name: str, what: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """Return a rule in S3's form."""
    return {"ID": name, "Status": "Enabled", "Filter": {"Prefix": ""}, **what, **given}


def test_lifecycle_rules_of_a_bucket_that_remove_objects_of_the_archive_are_errors(
    moto_server: MotoServer, bucket: str
) -> None:
    """Removal is an error; an archive class, and versions that end early, are warnings; others' rules are ignored."""
    tags = {"Tags": [{"Key": "team", "Value": "data"}, {"Key": "keep", "Value": "no"}]}
    rules = [
        rule("mine-too", EXPIRES, Filter={"Prefix": "base/101/prod/payments-"}),
        rule("frozen", GLACIER, Filter={"Prefix": "base/"}),
        rule("others", EXPIRES, Filter={"Prefix": "base/logs/"}),
        rule("another-cluster", EXPIRES, Filter={"Prefix": "base/101/production/"}),
        rule("tagged", EXPIRES, Filter={"And": {"Prefix": "base/", **tags}}),
        rule("off", EXPIRES, Status="Disabled"),
        rule("read-at-once", {"Transitions": [{"Days": 9, "StorageClass": "GLACIER_IR"}]}),
        rule("versions", {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}),
        rule("uploads", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}),
    ]
    with closing(moto_server.client()) as client:
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    first, second, third = worse(found(f"s3://{bucket}/base"))
    assert first.severity is Severity.ERROR
    assert "'mine-too'" in first.found
    assert "after 30 days" in first.found
    assert second.severity is Severity.WARNING
    assert "'frozen'" in second.found
    assert "to GLACIER after 90 days" in second.found
    assert third.severity is Severity.WARNING
    assert "'versions'" in third.found
    both = Storing(tags=(("team", "data"), ("keep", "no"), ("more", "x")))
    assert "'tagged'" in " ".join(each.found for each in worse(found(f"s3://{bucket}/base", both)))


def test_a_bucket_without_rules_is_fine(bucket: str) -> None:
    """There is no warning, and only the probe of each start is left."""
    findings = found(f"s3://{bucket}/base")
    assert worse(findings) == []
    assert "no lifecycle rule" in " ".join(each.found for each in findings)
    with open_store(f"s3://{bucket}/base") as store:
        assert [info.key for info in store.list()] == [PROBE_NAME]


LOCKED = Storing(object_lock_days=1)


def lockable(moto_server: MotoServer) -> str:
    """Create a bucket with object lock on moto's server, and return a location in it."""
    name = f"lockable-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return f"s3://{name}/base"


def test_a_bucket_that_retains_the_probe_is_fine(moto_server: MotoServer, bucket: str) -> None:
    """The finding has the date; a bucket without object lock is refused before, with the options."""
    location = lockable(moto_server)
    findings = found(location, LOCKED)
    assert worse(findings) == []
    assert "the probe is retained until" in " ".join(each.found for each in findings)
    for storing in (LOCKED, Storing(object_lock_days=1, storage_class="STANDARD_IA")):
        endpoint = Endpoint(f"s3://{bucket}/base", StorageOptions(storing=storing))

        def open_with(options: StorageOptions, location: str = endpoint.location) -> ObjectStore:
            return open_store(location, options, timeout_seconds=20)

        with closing(open_with(endpoint.options)) as store:
            (problem,) = problems_of(store, KEYS, endpoint, open_with, conditional=True)
        assert problem.startswith("storage.service.endpoint.s3.object.lock.days=1: ")
        assert "Object Lock on the bucket" in problem


def test_compliance_and_a_default_retention_are_warnings(moto_server: MotoServer, bucket: str) -> None:
    """No identity can erase under the first; the second would keep each commit too."""
    del bucket
    (compliance,) = worse(found(lockable(moto_server), replace(LOCKED, object_lock_mode=LockMode.COMPLIANCE)))
    assert "Article 17" in compliance.found
    location = lockable(moto_server)
    with closing(moto_server.client()) as client:
        client.put_object_lock_configuration(
            Bucket=location.split("/")[2],
            ObjectLockConfiguration={
                "ObjectLockEnabled": "Enabled",
                "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}},
            },
        )
    (default,) = worse(found(location, LOCKED))
    assert "each former commit too" in default.found


class Unlocked(WrappedStore):
    """A store that ignores the lock of a put, or denies this identity to read it."""

    def __init__(self, inner: ObjectStore, denied: AccessDenied | None) -> None:
        super().__init__(inner, threads=1)
        self._denied = denied

    def locked_until(self, key: str) -> Lock | None:
        del key
        if self._denied is not None:
            raise self._denied
        return None


def test_a_store_that_ignores_the_lock_is_an_error(moto_server: MotoServer, bucket: str) -> None:
    """It accepts the headers; an identity that may not read locks gets a hint instead."""
    del bucket
    location = lockable(moto_server)
    (ignored,) = worse(found(location, LOCKED, lambda store: Unlocked(store, None)))
    assert ignored.severity is Severity.ERROR
    assert "shows no lock" in ignored.found
    denied = found(location, LOCKED, lambda store: Unlocked(store, AccessDenied("no")))
    assert worse(denied) == []
    assert "may not read whether the store retains" in " ".join(each.found for each in denied)


class Changed(WrappedStore):
    """A store whose identity may neither delete nor read rules, and whose clock differs."""

    def __init__(self, inner: ObjectStore, seconds: float) -> None:
        super().__init__(inner, threads=1)
        self._seconds = seconds

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
        """Put in the inner store, and change the time."""
        info = super().put(
            key, body, size=size, metadata=metadata, condition=condition, crc32c=crc32c, archived=archived
        )
        return replace(info, modified=info.modified + self._seconds)

    def delete(self, keys: Iterable[str]) -> None:
        """Deny the delete."""
        raise AccessDenied(f"DeleteObjects {list(keys)}: allow this identity s3:DeleteObject")

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """Deny the request."""
        raise AccessDenied("GetBucketLifecycleConfiguration: allow this identity s3:GetLifecycleConfiguration")


@pytest.mark.parametrize(("seconds", "side"), [(300.0, "behind"), (-300.0, "ahead of"), (3.0, "")])
def test_missing_permissions_are_reported_and_a_wrong_clock_is_a_warning(
    tmp_path: Path, seconds: float, side: str
) -> None:
    """A missing permission to delete is right; rules that cannot be read are a hint."""
    findings = found(tmp_path.as_uri(), wrap=lambda store: Changed(store, seconds))
    by_severity = {each.severity: each.found for each in findings if "conditional" not in each.found}
    assert "may not delete" in " ".join(each.found for each in findings if each.severity is Severity.OK)
    assert "may not read the lifecycle rules" in by_severity[Severity.HINT]
    if side:
        assert f"s {side} the store's" in by_severity[Severity.WARNING]
    else:
        assert Severity.WARNING not in by_severity


def test_a_history_that_lies_under_two_widths_is_a_warning(tmp_path: Path) -> None:
    """An agent with one of the widths starts there; readers would find only one."""
    with open_store(tmp_path.as_uri()) as store:
        store.put("101/prod/t-0/offset.wm", b"0" * 20)
        store.put("prod/t-1/offset.wm", b"0" * 20)
    (finding,) = worse(found(tmp_path.as_uri()))
    assert "with 3 entropy bits and also with 0" in finding.found


def test_a_generated_cluster_id_is_a_hint_before_the_first_object(tmp_path: Path) -> None:
    """It names the archive for ever; an archive that has begun, or an id that an operator chose, has no hint."""
    generated = ClusterKeys("4L6g3nShT-eMCtK--X86sw")
    with open_store(tmp_path.as_uri()) as store:
        store.put(PROBE_NAME, PROBE)

        def ways(keys: ClusterKeys) -> list[str]:
            findings = deep_check(store, keys, Endpoint(tmp_path.as_uri()))
            return [each.way_out for each in findings if each.severity is Severity.HINT]

        assert ["--cluster-id NAME" in way for way in ways(generated)] == [False, True]
        (of_delete,) = ways(KEYS)
        assert "a copy where this user may not write" in of_delete  # a directory cannot deny deletes alone
        with capture_logs() as logs:
            assert [settle_layout(store, generated) for _ in range(2)] == [None, None]
        assert [each["event"] for each in logs] == ["cluster_id_is_generated"]
        assert ways(generated) == [of_delete]


class Keeping(WrappedStore):
    """A store with settings that keep deleted bytes.

    Attributes:
        denies: "put", "delete" or "settings", which it denies.
        given: the rules of the bucket.
    """

    denies = ""
    kept = Protection(versioned=False, locks=False, default_retention=None)
    given: tuple[LifecycleRule, ...] | None = ()

    def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
        """Deny a pack."""
        if self.denies == "put" and key.startswith(KEYS.tails):
            raise AccessDenied("PutObject: allow this identity s3:PutObject")
        return super().put(key, *arguments, **named)

    def delete_matching(self, etags: Mapping[str, str]) -> DeleteOutcome:
        """Deny the delete of a pack."""
        if self.denies == "delete":
            return DeleteOutcome((), (), {key: AccessDenied("DeleteObject: allow s3:DeleteObject") for key in etags})
        return super().delete_matching(etags)

    def protection(self) -> Protection:
        """Return what keeps deleted bytes."""
        if self.denies == "settings":
            raise AccessDenied("GetBucketVersioning: allow this identity s3:GetBucketVersioning")
        return self.kept

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """Return the rules."""
        return self.given


def of_tail(tmp_path: Path, **given: Any) -> list[Finding]:
    """Return the findings that a live tail adds."""

    def wrap(store: ObjectStore) -> ObjectStore:
        keeping = Keeping(store, threads=1)
        for name, value in given.items():
            setattr(keeping, name, value)
        return keeping

    before = found(tmp_path.as_uri(), wrap=wrap)
    return [each for each in found(tmp_path.as_uri(), wrap=wrap, has_tail=True) if each not in before]


def test_the_rights_on_packs_are_tried_and_leave_nothing(tmp_path: Path) -> None:
    """Below `tail/`, outside of all logs."""
    (fine,) = of_tail(tmp_path)
    assert (fine.severity, "may put and delete below" in fine.found) == (Severity.OK, True)
    with open_store(tmp_path.as_uri()) as store:
        assert list(store.list(KEYS.tails)) == []


@pytest.mark.parametrize("right", ["put", "delete"])
def test_a_missing_right_on_packs_is_an_error(tmp_path: Path, right: str) -> None:
    """Without the one nothing is shipped, without the other everything stays."""
    (finding,) = of_tail(tmp_path, denies=right)
    assert finding.severity is Severity.ERROR
    assert f"may not {right} packs of the live tail" in finding.found
    assert "deploy/iam/uploader.json" in finding.way_out


def test_object_lock_by_default_is_an_error_with_ways_out(tmp_path: Path) -> None:
    """Each pack would stay, though the agent deletes it."""
    kept = Protection(versioned=True, locks=True, default_retention="30 days (COMPLIANCE)")
    finding = of_tail(tmp_path, kept=kept)[-1]
    assert finding.severity is Severity.ERROR
    assert "for 30 days (COMPLIANCE)" in finding.found
    assert "ts.segment.uploader.tail.topics.exclude" in finding.way_out


def test_object_lock_of_single_objects_is_no_finding(tmp_path: Path) -> None:
    """Holds lock segments alone."""
    kept = Protection(versioned=False, locks=True, default_retention=None)
    assert {each.severity for each in of_tail(tmp_path, kept=kept)} == {Severity.OK}


@pytest.mark.parametrize(("days", "severity"), [(None, "WARNING"), (30, "WARNING"), (7, "OK"), (1, "OK")])
def test_versions_of_packs_that_stay_long_are_a_warning(tmp_path: Path, days: int | None, severity: str) -> None:
    """A bucket with versions keeps the bytes of each deleted pack until a rule removes them."""
    rule = LifecycleRule("r", "", KEYS.tails, frozenset(), None, None, days)
    kept = Protection(versioned=True, locks=False, default_retention=None)
    finding = of_tail(tmp_path, kept=kept, given=(rule,))[-1]
    assert finding.severity is Severity[severity]
    assert ("lifecycle rule" in finding.way_out) == (severity == "WARNING")


def test_settings_that_cannot_be_read_are_a_hint(tmp_path: Path) -> None:
    """The operator can read them."""
    assert of_tail(tmp_path, denies="settings")[-1].severity is Severity.HINT
