"""Compute the checksum of a put, so that the store rejects changed bytes.

S3 accepts one checksum for each put. CRC-32C costs nothing, because the scan of a segment computes it before the put.
Any other requires reading the body once more, and its own computation (docs/store.md has the rates). The same reading
compares the caller's CRC-32C, so every checksum covers the bytes that were scanned.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
"""

import base64
import hashlib
import io
import zlib
from collections.abc import Callable
from enum import StrEnum

from awscrt.checksums import crc32c as crc32c_of
from awscrt.checksums import crc64nvme as crc64nvme_of

from ts_common.errors import CorruptData
from ts_common.store.validation import SizedBody

_BLOCK = 1 << 20


class ChecksumAlgorithm(StrEnum):
    """Checksum algorithms, by S3's names."""

    CRC32C = "CRC32C"
    CRC32 = "CRC32"
    CRC64NVME = "CRC64NVME"
    SHA1 = "SHA1"
    SHA256 = "SHA256"


class _Crc:
    """A CRC with the interface of `hashlib`."""

    def __init__(self, function: Callable[[bytes, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, piece: bytes, /) -> None:
        self._value = self._function(piece, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def checksum_argument(
    algorithm: ChecksumAlgorithm, body: bytes | SizedBody, crc32c: int | None, name: str
) -> dict[str, str]:
    """Return the arguments of PutObject with the checksum of a body, and seek the body to its start.

    A bucket whose objects get a default retention (Object Lock) rejects a put that does not name the algorithm.

    Args:
        crc32c: of the body; None means that the caller does not have it.
        name: of the object, for messages.

    Raises:
        CorruptData: the body's CRC-32C is not `crc32c`.
        SegmentChanged, or an error of the reader: as `SizedBody.read`.
    """
    named, argument = {"ChecksumAlgorithm": str(algorithm)}, f"Checksum{algorithm}"
    if algorithm is ChecksumAlgorithm.CRC32C and crc32c is None and isinstance(body, bytes):
        crc32c = crc32c_of(body)
    if algorithm is ChecksumAlgorithm.CRC32C and crc32c is not None:
        return {**named, argument: _text(crc32c.to_bytes(4, "big"))}
    checksum, check = _started(algorithm), _Crc(crc32c_of, 4)
    reader = io.BytesIO(body) if isinstance(body, bytes) else body
    while piece := reader.read(_BLOCK):
        checksum.update(piece)
        if crc32c is not None:
            check.update(piece)
    reader.seek(0)
    if crc32c is not None and check.digest() != crc32c.to_bytes(4, "big"):
        raise CorruptData(
            f"{name}: the body's CRC-32C is {check.digest().hex()}; expected {crc32c:08x}; nothing was sent"
        )
    return {**named, argument: _text(checksum.digest())}


def _started(algorithm: ChecksumAlgorithm) -> "_Crc | hashlib._Hash":
    match algorithm:
        case ChecksumAlgorithm.CRC32C:
            return _Crc(crc32c_of, 4)
        case ChecksumAlgorithm.CRC32:
            return _Crc(zlib.crc32, 4)
        case ChecksumAlgorithm.CRC64NVME:
            return _Crc(crc64nvme_of, 8)
        case ChecksumAlgorithm.SHA1:
            return hashlib.sha1(usedforsecurity=False)
        case ChecksumAlgorithm.SHA256:
            return hashlib.sha256()


def _text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
