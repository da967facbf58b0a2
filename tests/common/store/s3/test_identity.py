"""Whose requests S3 receives: access keys, users and roles, with moto's STS."""

from contextlib import closing

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.store.conftest import BUCKET, OpenStore
from ts_common.errors import AccessDenied
from ts_common.store.factory import open_store
from ts_common.store.options import Connection, StorageOptions

ROLE = "arn:aws:iam::123456789012:role/holder"


def identity(options: StorageOptions | None = None) -> str | None:
    with closing(open_store("s3://bucket", options or StorageOptions(), timeout_seconds=20)) as store:
        return store.identity()


def test_another_store_identifies_by_its_access_key(open_s3: OpenStore) -> None:
    """AWS' STS does not get a request that another store's key signs."""
    assert open_s3(f"s3://{BUCKET}/base").identity() == "local-restricted"


def test_a_user_is_named_by_key_and_arn(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two access keys of one user have the ARN in common. STS is called only if a variable names it."""
    with closing(moto.client("iam")) as iam:
        iam.create_user(UserName="anna")
        keys = [iam.create_access_key(UserName="anna")["AccessKey"] for _ in range(2)]
    found = []
    for key in keys:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        assert identity() == key["AccessKeyId"]
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
            found.append(identity())
    assert found == [f"{key['AccessKeyId']} arn:aws:iam::123456789012:user/anna" for key in keys]


def test_a_role_is_named_without_its_temporary_key(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller chooses the name of the session, so it is a word of its own; without STS there is no identity."""
    role = StorageOptions(Connection(role_arn=ROLE, role_session_name="anna@example.org"))
    assert identity(role) == "arn:aws:sts::123456789012:assumed-role/holder session:anna@example.org"
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert identity() is None
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    assert identity() is None


def test_without_credentials_the_way_out_is_named(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by every request."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    assert identity() is None
    role = StorageOptions(Connection(role_arn=ROLE))
    with pytest.raises(AccessDenied, match="set AWS_ACCESS_KEY_ID"):
        identity(role)
