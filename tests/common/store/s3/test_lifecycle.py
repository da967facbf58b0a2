"""The lifecycle rules of a bucket: read from a server, and servers without any."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from dev.local.stores.moto import MotoServer
from tests.common.store.servers import FakeServer, error
from ts_common.errors import AccessDenied, BucketMissing, StoreUnavailable, TieredStorageError
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.options import Connection
from ts_common.store.s3.bucket_settings import read_rules
from ts_common.store.s3.client import open_clients
from ts_common.store.wrappers.bandwidth import UNLIMITED


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Any]:
    """Open a client that sends each request to the fake server once."""
    del fake
    reads, writes = open_clients(Connection(), 5, 2, UNLIMITED)
    reads.close()
    with closing(writes):
        yield writes


def test_the_rules_of_a_bucket_are_read(moto: MotoServer, bucket: str) -> None:
    """As moto stores them; a bucket without a configuration has no rules."""
    with closing(moto.client()) as server:
        assert read_rules(server, bucket, "base/") == ()
        rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "base/t"}, "Expiration": {"Days": 30}}
        server.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        assert read_rules(server, bucket, "base/") == (
            LifecycleRule("r", "base/", "base/t", frozenset(), "after 30 days", None),
        )
        with pytest.raises(BucketMissing):
            read_rules(server, "missing-bucket", "")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("501 Not Implemented", "NotImplemented"),
        ("405 Method Not Allowed", "MethodNotAllowed"),
        ("400 Bad Request", "InvalidRequest"),
        ("405 Method Not Allowed", "Other"),
        ("501 Not Implemented", "Other"),
    ],
)
def test_a_server_that_does_not_support_rules_has_none_to_read(
    client: Any, fake: FakeServer, status: str, code: str
) -> None:
    """Several vendors answer so; it is no error, and differs from a bucket without rules."""
    fake.answers = [error(status, code)]
    assert read_rules(client, "archive", "") is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("403 Forbidden", "AccessDenied", AccessDenied),
        ("503 Service Unavailable", "ServiceUnavailable", StoreUnavailable),
    ],
)
def test_rules_that_cannot_be_read_are_an_error(
    client: Any, fake: FakeServer, status: str, code: str, kind: type[TieredStorageError]
) -> None:
    """The message names the request, and the missing permission if that is the reason."""
    fake.answers = [error(status, code)]
    with pytest.raises(kind, match="GetBucketLifecycleConfiguration s3://archive") as raised:
        read_rules(client, "archive", "")
    assert ("s3:GetLifecycleConfiguration" in str(raised.value)) is (kind is AccessDenied)
