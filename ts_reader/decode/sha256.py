"""SHA-256 in kernels: OpenSSL's functions, which use the processor's instructions for it.

`hashlib` needs a third of a microsecond for each message beyond the hash itself. The kernel calls the functions in the
library that `hashlib` has loaded, by their addresses. They are FIPS 180-4's Init, Update and Final.
"""

import ctypes
import hashlib
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from ts_reader.decode.compiled import Bytes, Int64s, inlined

DIGEST_BYTES: Final = 32
_NAMES: Final = ("SHA256_Init", "SHA256_Update", "SHA256_Final")


@cache
def sha256_functions() -> Int64s | None:
    """Return the addresses of the functions; None if Python's OpenSSL does not export them."""
    spec = find_spec("_hashlib")
    try:
        library = ctypes.CDLL(None if spec is None or not spec.has_location else spec.origin)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES]
    except (OSError, AttributeError):
        return None
    return np.array(found, np.int64)


@inlined
def sha256(_functions: Int64s, source: Bytes, start: Any, count: Any, target: Bytes, at: Any) -> None:
    """Hash bytes.

    Args:
        _functions: as `sha256_functions` returns them; Python does not use them.
        source: has the bytes.
        start: of them.
        count: of them.
        target: gets the digest, `DIGEST_BYTES`.
        at: its position there.
    """
    digest = hashlib.sha256(source[start : start + count].tobytes()).digest()
    target[at : at + len(digest)] = np.frombuffer(digest, np.uint8)
