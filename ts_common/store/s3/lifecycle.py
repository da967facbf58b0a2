"""What S3 says of a bucket's lifecycle rules."""

from typing import TYPE_CHECKING

from botocore import exceptions as sdk

from ts_common.store.call import Call
from ts_common.store.lifecycle import LifecycleRule, parse_rules
from ts_common.store.s3.errors import status_of, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NO_RULES = "NoSuchLifecycleConfiguration"
_UNKNOWN = {"NotImplemented", "MethodNotAllowed", "InvalidRequest", "XNotImplemented"}


def read_rules(client: "S3Client", bucket: str, base: str) -> tuple[LifecycleRule, ...] | None:
    """A bucket's rules; None from a server that knows no such thing.

    Args:
        client: for reads.
        bucket: its name.
        base: what stands before the store's keys in it, empty or ending in `/`.

    Raises:
        AccessDenied: this identity may not see them.
        BucketMissing, StoreUnavailable, OperatorError: as of any request.
    """
    call = Call("GetBucketLifecycleConfiguration", f"s3://{bucket}")
    with translated(call):
        try:
            answer = client.get_bucket_lifecycle_configuration(Bucket=bucket)
        except sdk.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == _NO_RULES:
                return ()
            if code in _UNKNOWN or status_of(error) in {405, 501}:
                return None
            raise
    with call.understood():
        return parse_rules(answer, base)
