"""Where the machine code of kernels is kept, and which code a process loads."""

import os
import shutil
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.matrix import cases
from ts_reader.decode import code_cache
from ts_reader.decode.compiled import Kernel
from ts_reader.decode.kernel_source import Bytes, inlined, int32_at

CHECKOUT = Path(__file__).parents[3]
_PROGRAM = """
import sys
from ts_reader.decode.compiled import kernel
@kernel
def double(number: int) -> int:
    return 2 * number
print(double(21), "numba" in sys.modules)
"""
COMPILED, LOADED = "42 True", "42 False"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation and a home that cannot be written to, not even by root: files are where directories would be."""
    directory = tmp_path_factory.mktemp("installation")
    for name in ("ts_common", "ts_reader"):
        shutil.copytree(CHECKOUT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "ts_reader/decode/__pycache__").touch()
    (directory / "home").touch()
    return directory


def environment_of(installation: Path, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a process with this directory for temporary files."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    home = str(installation / "home/user")
    return {**kept, "PYTHONPATH": str(installation), "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(tmp_path)}


@pytest.fixture
def read_only(installation: Path, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a process that has not compiled yet."""
    (tmp_path / "tmp").mkdir()
    return environment_of(installation, tmp_path / "tmp")


@pytest.fixture(scope="module")
def compiled(installation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the code that a process keeps: the second process loads it without numba."""
    directory = tmp_path_factory.mktemp("compiled")
    for expected in (COMPILED, LOADED):
        assert double(environment_of(installation, directory)) == (expected, "")
    private = directory / f"ts-uploader-{os.getuid()}"
    assert private.stat().st_mode & 0o077 == 0
    (code,) = private.iterdir()
    return code


@pytest.fixture
def kept(read_only: dict[str, str], compiled: Path) -> Path:
    """Return a copy of it in the directory of this test's processes."""
    private = Path(read_only["TMPDIR"]) / compiled.parent.name
    private.mkdir(mode=0o700)
    return Path(shutil.copy2(compiled, private))


def double(environment: dict[str, str]) -> tuple[str, str]:
    """Run a kernel in a process of its own; return what it printed and what it logged."""
    command = [sys.executable, "-c", _PROGRAM]
    ended = subprocess.run(
        command, timeout=120, cwd=environment["TMPDIR"], env=environment, capture_output=True, text=True, check=True
    )
    *logged, printed = ended.stdout.splitlines()
    return printed, "\n".join(logged) + ended.stderr


def test_a_read_only_installation_keeps_code_in_a_private_directory(read_only: dict[str, str], kept: Path) -> None:
    """Also another process loads it."""
    assert double(read_only) == (LOADED, "")
    assert kept.suffix == ".o"


@pytest.mark.parametrize("damage", cases(["empty", "short", "cut", "changed"], quick=["changed"]))
def test_damaged_code_is_compiled_again(read_only: dict[str, str], kept: Path, damage: str) -> None:
    """A file that is cut short, or changed, would crash the process."""
    whole = kept.read_bytes()
    changed = whole[:100] + b"\xff" + whole[101:]
    data = {"empty": b"", "short": whole[:40], "cut": whole[:-1], "changed": changed}[damage]
    kept.write_bytes(data)
    assert double(read_only) == (COMPILED, "")
    assert kept.read_bytes() != data
    assert double(read_only) == (LOADED, "")


def test_a_directory_that_others_can_write_to_is_not_trusted(read_only: dict[str, str], tmp_path: Path) -> None:
    """Cached code is code: the kernel is compiled in the process, and a warning names the way out."""
    private = tmp_path / "tmp" / f"ts-uploader-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    printed, logged = double(read_only)
    assert printed == COMPILED
    assert "compiled_code_not_cached" in logged
    assert "NUMBA_CACHE_DIR" in logged
    assert list(private.iterdir()) == []


@pytest.mark.usefixtures("kept")
def test_the_named_directory_is_the_only_one(read_only: dict[str, str], tmp_path: Path) -> None:
    """It is made if it does not exist, and other users can load what is in it."""
    named = tmp_path / "named" / "directory"
    read_only["NUMBA_CACHE_DIR"] = str(named)
    assert double(read_only)[0] == COMPILED
    (code,) = named.iterdir()
    umask = os.umask(0)
    os.umask(umask)
    assert (named.stat().st_mode & 0o777, code.stat().st_mode & 0o777) == (0o777 & ~umask, 0o644)
    assert double(read_only)[0] == LOADED


@pytest.mark.parametrize(
    "kind",
    cases(["fifo", "link", "directory", "huge", "other kernel", "writable by others"], quick=["link", "other kernel"]),
)
def test_a_strange_file_is_no_code(read_only: dict[str, str], kept: Path, tmp_path: Path, kind: str) -> None:
    """It neither blocks nor crashes the process, and no code is loaded from it."""
    whole = kept.read_bytes()
    kept.unlink()
    match kind:
        case "fifo":
            os.mkfifo(kept)
        case "link":
            (tmp_path / "elsewhere").write_bytes(whole)
            kept.symlink_to(tmp_path / "elsewhere")
        case "directory":
            kept.mkdir()
        case "huge":
            with kept.open("wb") as file:
                file.truncate(1 << 40)
        case "other kernel":  # its checksum is right, and its name another one
            code = whole[32:]
            kept.write_bytes(sha256(b"another" + b"\0" + code).digest() + code)
        case _:
            kept.write_bytes(whole)
            kept.chmod(0o666)
    assert double(read_only)[0] == COMPILED


def test_a_machine_without_a_temporary_directory_has_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only container may have none; the other directories count."""

    def missing() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("tempfile.gettempdir", missing)
    assert len(list(code_cache._places())) == 2


def status(kind: int, mode: int, uid: int) -> os.stat_result:
    return os.stat_result((kind | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


ME, OTHER = os.getuid(), os.getuid() + 1000


@pytest.mark.parametrize(
    ("owner", "mode", "of_directory", "is_shared", "expected"),
    [
        (ME, 0o644, (OTHER, 0o777), False, True),
        (0, 0o644, (OTHER, 0o777), True, True),
        (ME, 0o664, (ME, 0o755), True, False),
        (ME, 0o646, (ME, 0o755), True, False),
        (OTHER, 0o644, (OTHER, 0o755), True, True),
        (OTHER, 0o644, (OTHER, 0o777), True, False),
        (OTHER, 0o644, (OTHER, 0o755), False, False),
        (OTHER, 0o644, (ME, 0o755), True, False),
    ],
)
def test_code_is_that_of_this_user_of_root_or_of_the_owner_of_a_shared_directory(
    owner: int, mode: int, of_directory: tuple[int, int], is_shared: bool, expected: bool
) -> None:
    """A file that others can write to, or of another user, is no code."""
    directory = status(stat.S_IFDIR, of_directory[1], of_directory[0])
    assert code_cache._is_trusted(status(stat.S_IFREG, mode, owner), directory, is_shared=is_shared) is expected
    assert not code_cache._is_trusted(status(stat.S_IFLNK, mode, owner), directory, is_shared=is_shared)


def test_a_change_of_the_compilation_raises_its_recipe() -> None:
    """Else older code would be found: write the new digest here, and a higher `RECIPE` if other code is made."""
    source = Path(code_cache.__file__).with_name("compilation.py").read_bytes()
    assert (code_cache.RECIPE, sha256(source).hexdigest()[:16]) == (1, "55261d8dade3f908")


_TABLE = np.arange(6, dtype=np.int64)
_STEP, _OTHER = 1, 12


@inlined
def _inside(number: int) -> int:
    return number + _STEP


def _outside(data: Bytes) -> int:
    return int32_at(data, _inside(0)) + _TABLE[1] + _OTHER  # type: ignore[no-any-return]


def test_older_code_is_not_found_after_any_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel can change, its types, constants, a table, a function inside it, the packages, or the processor."""
    machine = code_cache._machine()
    names: list[str] = [code_cache._digest(Kernel(_outside), machine)]
    assert code_cache._digest(Kernel(_outside), machine) == names[0]
    here = sys.modules[__name__]
    changes: tuple[tuple[tuple[Any, str, Any], ...], ...] = (
        ((_outside, "__code__", (lambda data: int32_at(data, _inside(0)) + _TABLE[2] + _OTHER).__code__),),
        ((_outside, "__annotations__", {"data": Bytes, "return": bool}),),
        ((here, "_STEP", 5),),
        ((here, "_STEP", 11), (here, "_OTHER", 2)),  # the same digits
        ((here, "_TABLE", np.arange(1, 7, dtype=np.int64)),),
        ((here, "_TABLE", _TABLE.reshape(2, 3)),),
        ((here, "_TABLE", _TABLE.view(np.uint64)),),
        ((_inside, "__code__", (lambda number: number - _STEP).__code__),),
        ((code_cache, "version", lambda package: f"later {package}"),),
        ((code_cache, "RECIPE", 0),),
        ((machine, "processor", "another"),),
    )
    for several in changes:
        with monkeypatch.context() as change:
            for where, name, value in several:
                change.setattr(where, name, value)
            names.append(code_cache._digest(Kernel(_outside), machine))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("value", [1.5, (1, 2), np.int64(3), os, True])
def test_a_global_that_the_digest_does_not_cover_is_refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """A change of it would find older code."""
    monkeypatch.setattr(sys.modules[__name__], "_STEP", value)
    with pytest.raises(TypeError, match="_inside: _STEP is"):
        code_cache._digest(Kernel(_outside), code_cache._machine())


def test_a_function_inside_a_kernel_is_refused() -> None:
    """Its code is not in the digest, and neither are defaults."""

    def comprehension(count: int) -> int:
        return sum([each for each in range(count)])  # noqa: C416

    def default(count: int, more: int = 1) -> int:
        return count + more

    for function in (comprehension, default) if sys.version_info < (3, 12) else (default,):
        with pytest.raises(TypeError, match="no closure, no default"):
            code_cache._digest(Kernel(function), code_cache._machine())
