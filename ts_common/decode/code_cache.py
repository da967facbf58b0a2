"""The machine code of kernels, kept on disk as object files.

The name of a file has a digest of all that its code depends on, so no change of a kernel, of a constant, of a package
or of the processor finds older code. A file begins with the digest of its content: a damaged one is compiled again.

Code is looked for in `NUMBA_CACHE_DIR` alone if that is set; else in the installation, in the user's cache directory,
and in a private directory below `TMPDIR`. New code is written to the first of these that accepts it.
"""

import ctypes
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import llvmlite.binding as llvm
import numpy as np
import structlog

from ts_common.decode.compiled import Kernel, called

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"
_COMPILATION: Final = Path(__file__).with_name("compilation.py")
_DIGEST_SIZE: Final = 32
_PROTOTYPE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # calls without the GIL
_WORD: Final = re.compile(r"\w+")
_NAMED: Final = 16  # digits of the digest in a name


class _Machine:
    """This machine's processor for LLVM, and the code that is loaded in this process."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.processor = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        self.target = llvm.Target.from_default_triple().create_target_machine(
            cpu=self.processor, features=self.features, opt=3, reloc="pic", codemodel="small"
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target)

    def load(self, code: bytes, symbol: str) -> int:
        """Return the address of a function in an object file."""
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        return int(self._engine.get_function_address(symbol))


@lru_cache(maxsize=1)
def _machine() -> _Machine:
    return _Machine()


def code_of(kernel: Kernel[..., Any]) -> Callable[[int], None]:
    """Return the C function of a kernel, which gets the address of a frame.

    The caller holds a lock: LLVM loads one object at a time.
    """
    machine = _machine()
    digest = _digest(kernel, machine)
    symbol = "_".join([*_WORD.findall(kernel.name), digest[:_NAMED]])
    code = next(filter(None, (_read(directory / f"{symbol}.o") for directory in _directories())), None)
    if code is None:
        from ts_common.decode.compilation import NotSelfContained, c_function, object_code  # noqa: PLC0415  (numba)

        function = c_function(kernel)
        try:
            code = object_code(function, symbol, machine.target)
        except NotSelfContained as error:
            _warn(f"the code of {kernel.name} refers to {error}", "install an earlier numba")
            return _callable(function.address, function)
        _write(f"{symbol}.o", code)
    return _callable(machine.load(code, symbol))


def _callable(address: int, holder: object = None) -> Callable[[int], None]:
    """Return the C function at an address, in memory that the holder keeps."""
    function: Any = _PROTOTYPE(address)
    function.holder = holder
    return cast("Callable[[int], None]", function)


def _digest(kernel: Kernel[..., Any], machine: _Machine) -> str:
    """Return a digest of all that the code of a kernel depends on."""
    digest = sha256(_COMPILATION.read_bytes())
    about = (sys.version_info[:3], version("numba"), version("llvmlite"), machine.processor, machine.features)
    digest.update(repr((about, kernel.arguments, kernel.results)).encode())
    functions: list[Any] = [kernel.function]
    for function in functions:
        code, names = function.__code__, function.__globals__
        digest.update(repr((code.co_code, code.co_consts, code.co_names, code.co_varnames)).encode())
        functions += [each for each in called(function).values() if each not in functions]
        for value in (names.get(name) for name in code.co_names):
            if isinstance(value, np.ndarray):
                digest.update(value.tobytes())
            elif isinstance(value, int):
                digest.update(repr(value).encode())
    return digest.hexdigest()


def _directories() -> Iterator[Path]:
    """Yield the directories that may have code, in the order of preference."""
    if named := os.environ.get(CACHE_VARIABLE):
        yield Path(named)
        return
    yield Path(__file__).with_name("__pycache__")
    with suppress(RuntimeError):  # the user has no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ts-uploader"
    yield _private()


def _private() -> Path:
    return Path(tempfile.gettempdir(), f"ts-uploader-{os.getuid()}")


def _is_trusted(directory: Path) -> bool:
    """Return whether only this user can write to the private directory, or it is another one: cached code is code."""
    if directory != _private() or not directory.exists():
        return True
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _read(path: Path) -> bytes | None:
    """Return the code in a file; None if it has none, is damaged, or may be of another user."""
    try:
        data = path.read_bytes() if _is_trusted(path.parent) else b""
    except OSError:
        return None
    code = data[_DIGEST_SIZE:]
    return code if code and sha256(code).digest() == data[:_DIGEST_SIZE] else None


def _write(name: str, code: bytes) -> None:
    """Write code to the first directory that accepts it; warn if no directory does."""
    reason = ""
    for directory in _directories():
        if not _is_trusted(directory):
            reason = f"another user can write to {directory}"
            continue
        try:
            # Other users of an installation, or of a named directory, load what is in it.
            directory.mkdir(mode=0o700 if directory == _private() else 0o777, parents=True, exist_ok=True)
            _write_file(directory / name, sha256(code).digest() + code)
        except OSError as error:
            reason = str(error)
        else:
            return
    _warn(reason, f"set {CACHE_VARIABLE} to a directory that this user can write to")


def _write_file(path: Path, data: bytes) -> None:
    """Write a file that no process sees in part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _warn(reason: str, way_out: str) -> None:
    log = structlog.get_logger("ts_common")
    log.warning("compiled_code_not_cached", reason=reason, way_out=way_out)
