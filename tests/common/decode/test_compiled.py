"""Compiled kernels: where they are cached, and the numbers that they read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.made_archive import batches
from ts_common.decode.compiled import int32_at, int64_at

CHECKOUT = Path(__file__).parents[3]
_DECODE = """
import sys
from ts_common.decode.arrow import projection_of
from ts_common.decode.records import decode_records
from ts_common.decode.segment_decoder import SegmentDecoder
data = sys.stdin.buffer.read()
decoder = SegmentDecoder(projection_of(["offset"]), 0, 5, size=len(data))
print(sum(columns.row_count for columns in decoder.decode([data])), sum(decode_records.stats.cache_hits.values()))
"""


@pytest.fixture
def read_only(tmp_path: Path) -> dict[str, str]:
    """An installation and a home that cannot be written to, not even by root: files are where directories would be."""
    shutil.copytree(CHECKOUT / "ts_common", tmp_path / "ts_common", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ts_common/decode/__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    home = str(tmp_path / "home/user")
    return {**kept, "PYTHONPATH": str(tmp_path), "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(tmp_path / "tmp")}


def decode(environment: dict[str, str]) -> tuple[str, str]:
    """Decode five records in a process of its own; return what it printed and what it logged."""
    command = [sys.executable, "-c", _DECODE]
    place = environment["PYTHONPATH"]
    ended = subprocess.run(command, cwd=place, env=environment, input=batches((0, 5)), capture_output=True, check=True)
    *logged, printed = ended.stdout.decode().splitlines()
    return printed, "\n".join(logged) + ended.stderr.decode()


def test_a_read_only_installation_caches_compiled_code_in_a_private_directory(
    read_only: dict[str, str], tmp_path: Path
) -> None:
    """The second process loads it instead of compiling again."""
    assert decode(read_only)[0] == "5 0"
    printed, logged = decode(read_only)
    assert printed.split()[0] == "5"
    assert int(printed.split()[1]) > 0
    assert "compiled_code" not in logged
    private = tmp_path / "tmp" / f"ts-uploader-{os.getuid()}"
    assert private.stat().st_mode & 0o077 == 0
    assert list(private.rglob("*.nbc"))


def test_a_directory_that_others_can_write_to_is_not_trusted(read_only: dict[str, str], tmp_path: Path) -> None:
    """Cached code is code: the kernels are compiled in the process, and a warning names the way out."""
    private = tmp_path / "tmp" / f"ts-uploader-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    printed, logged = decode(read_only)
    assert printed == "5 0"
    assert "compiled_code_not_cached" in logged
    assert "NUMBA_CACHE_DIR" in logged
    assert list(private.iterdir()) == []


@pytest.mark.parametrize("number", [0, 1, -1, 0x01020304, -(1 << 31), (1 << 31) - 1])
def test_numbers_of_kafka_are_signed_and_big_endian(number: int) -> None:
    """At any position, between other bytes; a number of 64 bits also beyond those of 32."""
    for value, size, read in (
        (number, 4, int32_at),
        (number, 8, int64_at),
        (number << 32, 8, int64_at),
    ):
        data = np.frombuffer(b"\x7f\xff\x7f" + value.to_bytes(size, "big", signed=True) + b"\xff", np.uint8)
        assert int(read(data, 3)) == value
