"""Copy an object within its bucket, by one CopyObject.

S3 answers 200 before a copy ends, and sends white space until then. If the copy fails after that, the body of the
response is an error. The SDK raises it as one with status 500. S3 copies up to 5 GiB in one request.
"""

from typing import TYPE_CHECKING, Any

from ts_common.store.call import Call
from ts_common.store.options import Storing
from ts_common.store.s3.errors import translated
from ts_common.store.s3.writes import check_encrypted, storing_arguments

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def copy_object(client: "S3Client", call: Call, bucket: str, source: str, target: str, storing: Storing) -> None:
    """Send CopyObject once, with the condition that the target does not exist.

    Args:
        client: sends each request once.
        call: the request, for messages.
        bucket: of both objects.
        source: whole key of the object.
        target: whole key of the copy.
        storing: how the copy is stored.

    Raises:
        TieredStorageError: as `ObjectStore.copy_if_absent`.
    """
    request: dict[str, Any] = {
        "CopySource": {"Bucket": bucket, "Key": source},
        "IfNoneMatch": "*",
        # Tags are those of the options. To copy the source's would require another permission, to read them.
        "TaggingDirective": "REPLACE",
        **storing_arguments(storing, archived=False),
    }
    with translated(call):
        answer = client.copy_object(Bucket=bucket, Key=target, **request)
    with call.understood():  # a web page has no ETag
        answer["CopyObjectResult"]["ETag"]
    check_encrypted(storing, answer, call.target)
