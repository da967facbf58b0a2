"""The machine code of kernels, kept on disk as object files.

The name of a file has a digest of all that its code depends on: the kernel with the functions, constants and tables
that it uses, the packages, the processor. So no change finds older code.

Code is looked for in `NUMBA_CACHE_DIR` alone if that is set; else in the installation, in the user's cache directory,
and in a private directory below `TMPDIR`. New code is written to the first of these that accepts it. Cached code is
code, so a file counts only if no other user could write it (`_is_trusted`) and if its content has the digest that it
begins with.
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
from typing import Any, Final, NamedTuple, cast

import llvmlite.binding as llvm
import numpy as np
import structlog

from ts_reader.decode.kernel_source import KernelSource, globals_of

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"
RECIPE: Final = 1  # of `compilation`
# As numba's own: code, tables and libc may be far apart.
_TARGET: Final = {"opt": 3, "codemodel": "jitdefault", "jit": True}
_RELOCATION: Final = {"x86": "static", "ppc": "pic"}  # by the first letters of the target's name
_DIGEST_SIZE: Final = 32
_MOST_BYTES: Final = 1 << 20  # of a file; a kernel has some 10 kB
_PROTOTYPE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # calls without the GIL
_WORD: Final = re.compile(r"\w+")
_NAMED: Final = 16  # digits of the digest in a name


class _Place(NamedTuple):
    """A directory that may have code.

    Attributes:
        is_shared: whether code of the directory's owner serves other users too.
    """

    path: Path
    is_shared: bool


class _Machine:
    """This machine's processor for LLVM, and the code that is loaded in this process."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.processor = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple()
        self.relocation = _RELOCATION.get(target.name[:3], "default")
        self.target = target.create_target_machine(
            cpu=self.processor, features=self.features, reloc=self.relocation, **_TARGET
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


def code_of(kernel: KernelSource[..., Any]) -> Callable[[int], None]:
    """Return the C function of a kernel, which gets the address of a frame.

    The caller holds a lock: LLVM loads one object at a time.

    Raises:
        TypeError: the kernel has globals or results that `KernelSource` excludes.
    """
    machine = _machine()
    symbol = "_".join([*_WORD.findall(kernel.name), _digest(kernel, machine)[:_NAMED]])
    code = next(filter(None, (_read(place, symbol) for place in _places())), None)
    if code is None:
        from ts_reader.decode.compilation import NotSelfContained, c_function, object_code  # noqa: PLC0415  (numba)

        function = c_function(kernel)
        try:
            code = object_code(function, symbol, machine.target)
        except NotSelfContained as error:
            _warn(f"the code of {kernel.name} refers to {error}", "install an earlier numba")
            return _callable(function.address, function)
        _write(symbol, code)
    return _callable(machine.load(code, symbol))


def _callable(address: int, holder: object = None) -> Callable[[int], None]:
    """Return the C function at an address, in memory that the holder keeps."""
    function: Any = _PROTOTYPE(address)
    function.holder = holder
    return cast("Callable[[int], None]", function)


def _digest(kernel: KernelSource[..., Any], machine: _Machine) -> str:
    """Return a digest of all that the code of a kernel depends on."""
    packages = sys.version_info[:3], version("numba"), version("llvmlite"), version("numpy")
    kinds = [str(kind) for kind in (*kernel.arguments, *kernel.results)]
    parts: list[object] = [
        RECIPE,
        packages,
        machine.processor,
        machine.features,
        machine.relocation,
        _TARGET,
        kinds,
        kernel.is_tuple,
    ]
    functions: list[Any] = [kernel.function]
    for function in functions:
        code = function.__code__
        parts += [function.__name__, code.co_code, code.co_consts, code.co_names, code.co_varnames]
        for name, value in globals_of(function).items():
            if isinstance(value, np.ndarray):
                parts += [name, value.dtype.str, value.shape, value.tobytes()]
            elif isinstance(value, int):
                parts += [name, value]
            else:
                parts += [name, value.__qualname__]
                functions += [value] if value not in functions else []
    return sha256(repr(parts).encode()).hexdigest()


def _places() -> Iterator[_Place]:
    """Yield the directories that may have code, in the order of preference."""
    if named := os.environ.get(CACHE_VARIABLE):
        yield _Place(Path(named), is_shared=True)
        return
    yield _Place(Path(__file__).with_name("__pycache__"), is_shared=True)
    with suppress(RuntimeError):  # the user has no home
        yield _Place(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ts-uploader", is_shared=False)
    with suppress(OSError):  # the machine has no directory for temporary files
        yield _Place(Path(tempfile.gettempdir(), f"ts-uploader-{os.getuid()}"), is_shared=False)


def _is_trusted(file: os.stat_result, directory: os.stat_result, *, is_shared: bool) -> bool:
    """Return whether only this user, root or the owner of a shared directory could write a file in it."""
    owners = {0, os.getuid()}
    if is_shared and not directory.st_mode & stat.S_IWOTH:
        owners.add(directory.st_uid)
    return stat.S_ISREG(file.st_mode) and file.st_uid in owners and not file.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(place: _Place, symbol: str) -> bytes | None:
    """Return the code in a file; None if it has none, is damaged, or may be of another user."""
    path = place.path / f"{symbol}.o"
    try:
        # What was opened is judged; no link is followed, and a FIFO does not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not _is_trusted(found, place.path.stat(), is_shared=place.is_shared):
            _warn(f"another user could write to {path}", "delete it")
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(_MOST_BYTES) if found.st_size < _MOST_BYTES else b""
    finally:
        os.close(descriptor)
    code = data[_DIGEST_SIZE:]
    return code if code and _checksum(symbol, code) == data[:_DIGEST_SIZE] else None


def _checksum(symbol: str, code: bytes) -> bytes:
    return sha256(symbol.encode() + b"\0" + code).digest()


def _write(symbol: str, code: bytes) -> None:
    """Write code to the first directory that accepts it; warn if no directory does."""
    reason = "there is no directory for it"
    for place in _places():
        try:
            place.path.mkdir(mode=0o755 if place.is_shared else 0o700, parents=True, exist_ok=True)
            directory = place.path.stat()
            if not place.is_shared and (directory.st_uid != os.getuid() or directory.st_mode & 0o022):
                reason = f"another user can write to {place.path}"
                continue
            _write_file(place.path / f"{symbol}.o", _checksum(symbol, code) + code)
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
        Path(temporary).chmod(0o644)  # other users of an installation, or of a named directory, load it
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _warn(reason: str, way_out: str) -> None:
    log = structlog.get_logger("ts_reader")
    log.warning("compiled_code_not_cached", reason=reason, way_out=way_out)
