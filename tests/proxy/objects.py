"""Objects that the folder's tests send through proxies, and helpers to read them from the server."""

import io
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "archive"
CONTENT = b"0123456789" * 50_000


def body() -> io.BytesIO:
    """Return a body that the SDK sends with `Expect: 100-continue`, as the agent does."""
    return io.BytesIO(CONTENT)


def stored(direct: "S3Client", key: str) -> bytes | None:
    """Return the content of a key on the server; None if it has no object."""
    try:
        with direct.get_object(Bucket=BUCKET, Key=key)["Body"] as found:
            return found.read()
    except direct.exceptions.NoSuchKey:
        return None


def error_of(caught: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    """Return status and code of an error response."""
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]
