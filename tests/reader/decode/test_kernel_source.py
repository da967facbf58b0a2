"""SHA-256 in kernels: the digests are those of `hashlib`."""

import ctypes
import hashlib
from typing import Any

import numpy as np
import pytest

from ts_reader.decode.compiled import kernel
from ts_reader.decode.kernel_source import Bytes, Int64s, sha256, sha256_functions


@kernel
def _hashing(functions: Int64s, source: Bytes, target: Bytes) -> None:
    sha256(functions, source, np.int64(1), np.int64(len(source) - 1), target, np.int64(2))


@pytest.mark.parametrize("count", [0, 1, 55, 56, 64, 1000])
def test_bytes_are_hashed_by_position(count: int) -> None:
    """By OpenSSL's functions in machine code, by `hashlib` in Python."""
    functions, source = sha256_functions(), bytes(range(251)) * 4
    assert functions is not None
    for run in (_hashing, _hashing.function):
        target = np.zeros(36, np.uint8)
        run(functions, np.frombuffer(source[: count + 1], np.uint8), target)
        assert target.tobytes() == bytes(2) + hashlib.sha256(source[1 : count + 1]).digest() + bytes(2)


def test_an_openssl_that_exports_no_functions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then callers use `hashlib`, and no kernel calls an address of nothing."""

    def refused(*_: Any) -> Any:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", refused)
    assert sha256_functions.__wrapped__() is None
