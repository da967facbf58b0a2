"""What the folder's tests put through proxies, and what they look for behind."""

import io
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "archive"
CONTENT = b"0123456789" * 50_000


def body() -> io.BytesIO:
    """A body that is announced with `Expect: 100-continue`, as the agent's are."""
    return io.BytesIO(CONTENT)


def stored(direct: "S3Client", key: str) -> bytes | None:
    """What the server holds under a key, if anything."""
    try:
        with direct.get_object(Bucket=BUCKET, Key=key)["Body"] as found:
            return found.read()
    except direct.exceptions.NoSuchKey:
        return None


def error_of(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    """Status and code of a refusal."""
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]
