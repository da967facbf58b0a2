"""A release, and a server that checks permissions, with a user of each policy."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from dev import dist
from dev.local.ports import LOOPBACK
from dev.local.stores.moto import MotoServer
from tests.deploy.identities import (
    ADMINISTRATOR,
    BUCKET,
    DEPLOY,
    ENDED,
    LOCATION,
    POLICIES,
    WIDE_UPLOADER,
    As,
    document,
)
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

# AWS requires s3:ListBucket for it, and has no such action.
_HEAD_BUCKET = json.dumps(
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:HeadBucket", "Resource": "*"}}
)
_ANYTHING = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}})


@pytest.fixture(scope="package")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a release of this checkout and return its directory."""
    return dist.build(tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="package")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """Start a server that checks permissions, with the bucket and a user for each policy."""
    directory = tmp_path_factory.mktemp("aws")
    with MotoServer(directory, directory) as server:
        with closing(server.client()) as s3:
            s3.create_bucket(Bucket=BUCKET)
            set_up(s3)
        yield server


def set_up(s3: object) -> None:
    """Configure the bucket as docs/deploy.md does by the AWS command line, with the same files."""
    given = {path.stem: path.read_text() for path in (DEPLOY / "bucket").glob("*.json")}
    calls: Mapping[str, tuple[str, str]] = {
        "versioning": ("put_bucket_versioning", "VersioningConfiguration"),
        "encryption": ("put_bucket_encryption", "ServerSideEncryptionConfiguration"),
        "public-access-block": ("put_public_access_block", "PublicAccessBlockConfiguration"),
        "lifecycle": ("put_bucket_lifecycle_configuration", "LifecycleConfiguration"),
    }
    assert given.keys() == calls.keys() | {"policy"}
    for name, (call, argument) in calls.items():
        getattr(s3, call)(Bucket=BUCKET, **{argument: json.loads(given[name])})


@pytest.fixture(scope="package")
def users(aws: MotoServer) -> dict[str, dict[str, str]]:
    """Return the environment of a user of each policy, of an administrator, and of an uploader who may do more."""
    found = {}
    with closing(aws.client("iam")) as iam:
        for name in (*POLICIES, ADMINISTRATOR, WIDE_UPLOADER):
            iam.create_user(UserName=name)
            if name in {ADMINISTRATOR, WIDE_UPLOADER}:
                iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=_ANYTHING)
            # moto reads a resource as a regular expression whose `*` is `.*`; it has no `?`.
            if name != ADMINISTRATOR:
                policy = "uploader" if name == WIDE_UPLOADER else name
                allowed = document(f"iam/{policy}.json").replace("?", ".")
                iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=allowed)
            iam.put_user_policy(UserName=name, PolicyName="moto", PolicyDocument=_HEAD_BUCKET)
            if name == ENDED:  # it is added to the other one
                iam.put_user_policy(UserName=name, PolicyName="q", PolicyDocument=document("iam/collector.json"))
            key = iam.create_access_key(UserName=name)["AccessKey"]
            found[name] = {
                **aws.environment(),
                "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            }
    connection = http.client.HTTPConnection(LOOPBACK, aws.port, timeout=20)
    with closing(connection):
        connection.request("POST", "/moto-api/reset-auth", b"0")
        assert connection.getresponse().status == http.client.OK
    return found


@pytest.fixture
def store_as(users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[As]:
    """Return a function that opens the store as one of the users, and sets the environment to that user."""
    opened: list[ObjectStore] = []

    def store_of(name: str, location: str = LOCATION) -> ObjectStore:
        for variable, value in users[name].items():
            monkeypatch.setenv(variable, value)
        opened.append(open_store(location, timeout_seconds=20))
        return opened[-1]

    yield store_of
    for store in opened:
        store.close()
