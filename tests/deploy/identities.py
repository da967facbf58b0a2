"""The users of deploy/iam, one for each policy, and what they write."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

from tests.common.log_format.build import batch, record
from tests.spark.archives import Archive
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore

DEPLOY = Path(__file__).parents[2] / "deploy"
POLICIES = sorted(path.stem for path in (DEPLOY / "iam").glob("*.json"))
# The names in the files.
BUCKET = "example-archive"
LOCATION = f"s3://{BUCKET}/base/prefix"
KEYS = ClusterKeys("prod", 5)
ENDED = "collector-ended-incarnations"
ADMINISTRATOR = "administrator"
WIDE_UPLOADER = "uploader-with-all-rights"
As = Callable[[str], ObjectStore]


def document(name: str) -> str:
    return (DEPLOY / name).read_text()


def removed(key: str) -> bool:
    """Return whether the environment's user may delete an object.

    It is a request for one object: for a DeleteObjects moto checks the bucket, and AWS each key.
    """
    try:
        _client(os.environ["AWS_ACCESS_KEY_ID"]).delete_object(Bucket=BUCKET, Key=f"base/prefix/{key}")
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDenied":
            return False
        raise
    return True


@cache
def _client(access_key: str) -> Any:
    return boto3.Session().client("s3")  # the default session would keep the first user's keys


def archive_of_one_topic(topic: str = "clicks") -> Archive:
    """Write an archive with a commit and two segments, as the environment's user."""
    archive = Archive(LOCATION, KEYS.entropy_bits)
    for base in (0, 1):
        archive.put_segment(topic, base, batch(base, [record(0)]), index=b"", timeindex=b"")
    archive.commit(topic, 2, highest_base=1)
    return archive
