"""Timestamp tokens of RFC 3161: `seals/<n>.tsr`, the response of an authority to a request for the head of a seal.

The operator makes request and response with `openssl ts` and the authority's address. This module finds the hash in the
response, so that no token of another seal is stored. Whether the authority signed it, `openssl ts -verify` checks.
"""

import re
from pathlib import Path
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import ConfigurationError, OutcomeUnknown, PreconditionFailed, StaleStateError
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_reader.options.archive_name import SOURCE
from tsctl.seal.chain import TOKEN_BYTES, read_token
from tsctl.seal.leaves import Head

# MessageImprint in DER: the object identifier of SHA-256, with or without NULL parameters, and an octet string of 32.
_IMPRINT: Final = re.compile(rb"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01(?:\x05\x00)?\x04\x20(.{32})", re.DOTALL)


def read_response(path: Path, head: Head) -> bytes:
    """Return the response in a file, which has to be for a head.

    Raises:
        ConfigurationError: the file cannot be read, or is of another head.
    """
    try:
        with path.open("rb") as file:
            data = file.read(TOKEN_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(SOURCE, [f"--response={path}: {error.strerror or error}"]) from error
    hashes = {each.hex() for each in _IMPRINT.findall(data)}
    if len(data) > TOKEN_BYTES or head.sha256 not in hashes:
        raise ConfigurationError(
            SOURCE,
            [
                f"--response={path}: it is no response for the head of seal {head.seal}, whose SHA-256 is "
                f"{head.sha256}; request one: openssl ts -query -digest {head.sha256} -sha256 -cert "
                f"-out {head.seal}.tsq"
            ],
        )
    return data


def put_token(store: ObjectStore, keys: ClusterKeys, number: int, data: bytes) -> None:
    """Write the token of a seal where none exists.

    Raises:
        StaleStateError: the seal has another token.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    try:
        store.put(keys.seal_token(number), data, condition=IfAbsent())
    except (PreconditionFailed, OutcomeUnknown) as error:
        if read_token(store, keys, number) != data:
            raise StaleStateError(f"{store.location}/{keys.seal_token(number)}: the seal has another token") from error
