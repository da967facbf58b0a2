"""Read the lifecycle rules of a bucket."""

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
    """Return a bucket's rules; None if the server does not support them.

    Args:
        client: for reads.
        bucket: its name.
        base: the prefix of the store's keys in the bucket, empty or ending in `/`.

    Raises:
        AccessDenied: this identity may not read the rules.
        BucketMissing, StoreUnavailable, OperatorError: as for any request.
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
