"""Gap records are evidence of what was lost, so the options of archived objects apply to them."""

import uuid
from contextlib import closing

import pytest

from dev.local.stores.moto import MotoServer
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_common.store.options import StorageOptions, Storing
from ts_uploader.committing.gap_recording import record_gaps


def test_a_gap_record_is_retained_like_a_segment(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Object Lock in days; without the option it has no lock."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket, keys = f"gaps-{uuid.uuid4().hex[:12]}", ClusterKeys("prod").partition(TopicPartition("t", 0))
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        for range_, days in (((0, 5), 1), ((5, 9), None)):
            options = StorageOptions(storing=Storing(object_lock_days=days))
            with open_store(f"s3://{bucket}/base", options) as store:
                assert record_gaps(store, keys, [range_], "retention", 1) == (range_,)
        modes = [
            client.head_object(Bucket=bucket, Key=f"base/{keys.gap(*range_)}").get("ObjectLockMode")
            for range_ in ((0, 5), (5, 9))
        ]
    assert modes == ["GOVERNANCE", None]
