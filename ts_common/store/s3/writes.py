"""What a PutObject carries besides its body, its metadata and its condition: the options of `Storing`.

Encryption, tags and ACL are for every object alike. The storage class is for the four objects of a segment alone: all
others are small, are written over again and again and read at each query, and the colder classes charge each object
for 128 KiB and thirty days at least, and each read by its bytes.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ts_common.errors import OperatorError
from ts_common.store.option_table import NAME_OF
from ts_common.store.options import PREFIX, Storing


def storing_arguments(storing: Storing, *, archived: bool) -> dict[str, Any]:
    """Arguments of PutObject, by S3's names; nothing of what nobody said.

    Args:
        storing: how objects are stored.
        archived: whether the storage class is for this object.
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
    """A store that knows no encryption may take the object all the same; S3 says in its answer what it did.

    Raises:
        OperatorError: the object was written, and not encrypted as asked.
    """
    asked, done = storing.server_side_encryption, answer.get("ServerSideEncryption")
    if asked is not None and done != asked:
        raise OperatorError(
            f"{target}: {PREFIX}{NAME_OF['server_side_encryption']}={asked} is asked for, and the store answers "
            f"{done or 'nothing of it'}: the object stands there, and not encrypted so"
        )
