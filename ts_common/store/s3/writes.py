"""Turn the options of `Storing` into arguments of PutObject.

Encryption, tags and ACL apply to every object. The storage class applies only to the four objects of a segment. All
others are small, are overwritten often and are read by each query. The colder classes charge at least 128 KiB and
thirty days for each object, and each read by its bytes.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ts_common.errors import OperatorError
from ts_common.store.options import Storing, option_key


def storing_arguments(storing: Storing, *, archived: bool) -> dict[str, Any]:
    """Return arguments of PutObject, by S3's names; none for an option that is not set.

    Args:
        storing: how objects are stored.
        archived: whether the storage class applies to this object.
    """
    arguments: dict[str, Any] = {
        "ServerSideEncryption": storing.server_side_encryption,
        "SSEKMSKeyId": storing.kms_key_id,
        "BucketKeyEnabled": storing.bucket_key_enabled,
        "StorageClass": storing.storage_class if archived else None,
        "Tagging": urlencode(storing.tags) or None,
        "ACL": storing.acl,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def check_encrypted(storing: Storing, answer: Mapping[str, Any], target: str) -> None:
    """Check that the response confirms the encryption: a store without encryption may ignore the request.

    Raises:
        OperatorError: the store wrote the object with another encryption, or without one.
    """
    requested, done = storing.server_side_encryption, answer.get("ServerSideEncryption")
    if requested is not None and done != requested:
        raise OperatorError(
            f"{target}: requested {option_key('server_side_encryption')}={requested}, but the store confirms "
            f"{done or 'no encryption'}: the object was written without the requested encryption; use a store that "
            "supports it, or drop the option"
        )
