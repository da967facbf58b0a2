"""Where the machine code of kernels is kept, and which code a process loads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ts_common.decode import code_cache
from ts_common.decode.compiled import Bytes, Kernel, inlined, int32_at

CHECKOUT = Path(__file__).parents[3]
_PROGRAM = """
import sys
from ts_common.decode.compiled import kernel
@kernel
def double(number: int) -> int:
    return 2 * number
print(double(21), "numba" in sys.modules)
"""
COMPILED, LOADED = "42 True", "42 False"


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


def double(environment: dict[str, str]) -> tuple[str, str]:
    """Run a kernel in a process of its own; return what it printed and what it logged."""
    command = [sys.executable, "-c", _PROGRAM]
    ended = subprocess.run(
        command, cwd=environment["TMPDIR"], env=environment, capture_output=True, text=True, check=True
    )
    *logged, printed = ended.stdout.splitlines()
    return printed, "\n".join(logged) + ended.stderr


def test_a_read_only_installation_keeps_code_in_a_private_directory(read_only: dict[str, str], tmp_path: Path) -> None:
    """The second process loads it without numba."""
    assert double(read_only) == (COMPILED, "")
    assert double(read_only) == (LOADED, "")
    private = tmp_path / "tmp" / f"ts-uploader-{os.getuid()}"
    assert private.stat().st_mode & 0o077 == 0
    assert [path.suffix for path in private.iterdir()] == [".o"]


def test_damaged_code_is_compiled_again(read_only: dict[str, str], tmp_path: Path) -> None:
    """A file that is cut short, or changed, would crash the process."""
    assert double(read_only) == (COMPILED, "")
    (kept,) = (tmp_path / "tmp" / f"ts-uploader-{os.getuid()}").iterdir()
    whole = kept.read_bytes()
    for data in (b"", whole[:40], whole[:-1], whole[:100] + b"\xff" + whole[101:]):
        kept.write_bytes(data)
        assert double(read_only) == (COMPILED, "")
        assert kept.read_bytes() != data
    assert double(read_only) == (LOADED, "")


def test_a_directory_that_others_can_write_to_is_not_trusted(read_only: dict[str, str], tmp_path: Path) -> None:
    """Cached code is code: it is neither loaded from there nor written there, and a warning names the way out."""
    assert double(read_only)[0] == COMPILED
    private = tmp_path / "tmp" / f"ts-uploader-{os.getuid()}"
    before = sorted(private.iterdir())
    private.chmod(0o777)
    printed, logged = double(read_only)
    assert printed == COMPILED
    assert "compiled_code_not_cached" in logged
    assert "NUMBA_CACHE_DIR" in logged
    assert sorted(private.iterdir()) == before


def test_the_named_directory_is_the_only_one(read_only: dict[str, str], tmp_path: Path) -> None:
    """It is made if it does not exist, and other users can load what is in it."""
    named = tmp_path / "named" / "directory"
    assert double(read_only)[0] == COMPILED
    read_only["NUMBA_CACHE_DIR"] = str(named)
    assert double(read_only)[0] == COMPILED
    (kept,) = named.iterdir()
    umask = os.umask(0)
    os.umask(umask)
    assert (named.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o777 & ~umask, 0o644)
    assert double(read_only)[0] == LOADED


_TABLE = np.arange(3, dtype=np.int64)
_STEP = 4


@inlined
def _inside(number: int) -> int:
    return number + _STEP


def _outside(data: Bytes) -> int:
    return int(int32_at(data, _inside(0)) + _TABLE[1])


def test_older_code_is_not_found_after_any_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kernel, its types, a constant, a table, a function inside it, or the packages."""
    machine = code_cache._machine()
    names: list[str] = [code_cache._digest(Kernel(_outside), machine)]
    assert code_cache._digest(Kernel(_outside), machine) == names[0]
    changes = (
        (_outside, "__code__", (lambda data: int32_at(data, _inside(0)) + _TABLE[2]).__code__),
        (_outside, "__annotations__", {"data": Bytes, "return": bool}),
        (sys.modules[__name__], "_STEP", 5),
        (sys.modules[__name__], "_TABLE", np.arange(4, dtype=np.int64)),
        (_inside, "__code__", (lambda number: number - _STEP).__code__),
        (code_cache, "version", lambda package: f"later {package}"),
        (machine, "processor", "another"),
    )
    for where, name, value in changes:
        with monkeypatch.context() as change:
            change.setattr(where, name, value)
            names.append(code_cache._digest(Kernel(_outside), machine))
    assert len(set(names)) == len(names)
