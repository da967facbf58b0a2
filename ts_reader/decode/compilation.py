"""Compilation of a kernel to an object file of its own, with numba. Only `code_cache` imports it, for code it lacks.

Numba compiles the kernel, the functions that it calls, and a C function around it that gets a frame. Then all but that
function become internal, and LLVM removes what is not used: numba's reference counts and its errors, since kernels
allocate nothing and raise nothing. What is left refers to `memcpy` and its like only.

A change here that changes code raises `code_cache.RECIPE`.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic

from ts_reader.decode.kernel_source import ArrayType, KernelSource, copy_bytes, globals_of, sha256

types: Any = numba_types

_EXTERNAL: Final = {"memcpy", "memmove", "memset", "bcmp", "memcmp"}  # of libc
_INTRINSIC: Final = "llvm."  # of LLVM itself
_LEVEL: Final = 3
_STATE_WORDS: Final = 32  # of 8 bytes; OpenSSL's SHA256_CTX has 14


class NotSelfContained(Exception):
    """The code of a kernel refers to something of numba."""


def c_function(kernel: KernelSource[..., Any]) -> Any:
    """Return numba's `CFunc`, which gets the address of a frame: see `kernel_source.KernelSource`.

    Raises:
        TypeError: a result is not what the annotation promises.
    """
    function = _jitted(kernel.function)
    made = numba.cfunc(types.void(types.CPointer(types.int64)), error_model="numpy")(_entry(kernel, function))
    (signature,) = function.nopython_signatures
    returned = signature.return_type
    results = [*returned] if isinstance(returned, types.BaseTuple) else [returned] * len(kernel.results)
    if not all(isinstance(each, types.Boolean) or getattr(each, "signed", False) for each in results):
        raise TypeError(f"{kernel.name} returns {returned}; signed integers or bools are expected")
    return made


def object_code(function: Any, symbol: str, machine: llvm.TargetMachine) -> bytes:
    """Return an object file with a C function.

    Args:
        function: from `c_function`.

    Raises:
        NotSelfContained: the code refers to something of numba.
    """
    module = llvm.parse_assembly(function.inspect_llvm())
    for each in (*module.functions, *module.global_variables):
        if each.name == function.native_name:
            each.name = symbol
        elif not each.is_declaration:
            each.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=_LEVEL))
    builder.getModulePassManager().run(module, builder)
    named = {each.name for each in (*module.functions, *module.global_variables) if each.is_declaration}
    if foreign := {name for name in named if not name.startswith(_INTRINSIC)} - _EXTERNAL:
        raise NotSelfContained(", ".join(sorted(foreign)))
    return bytes(machine.emit_object(module))


def _jitted(function: Callable[..., Any]) -> Any:
    """Return a function compiled by numba, and the functions that it calls."""
    if function in _OWN_CODE:
        return _OWN_CODE[function]
    inside = {name: _jitted(each) for name, each in globals_of(function).items() if callable(each)}
    copy = FunctionType(function.__code__, {**function.__globals__, **inside}, function.__name__)
    return numba.njit(nogil=True, error_model="numpy")(copy)


def _entry(kernel: KernelSource[..., Any], function: Any) -> Callable[[Any], None]:
    """Return the Python function that numba compiles to the C function."""
    arguments, place = [], len(kernel.results)
    for kind in kernel.arguments:
        if isinstance(kind, ArrayType):
            shape = "".join(f"frame[{place + 1 + each}]," for each in range(kind.dimensions))
            arguments.append(f"carray(pointer(frame[{place}]), ({shape}), numpy.dtype('{kind.typestr}'))")
            place += 1 + kind.dimensions
        else:
            arguments.append(f"frame[{place}]" if kind is int else f"frame[{place}] != 0")
            place += 1
    found = [f"found[{at}]" if kernel.is_tuple else "found" for at in range(len(kernel.results))]
    lines = ["def entry(frame):", f"    found = kernel({', '.join(arguments)})"]
    lines += [f"    frame[{at}] = {each}" for at, each in enumerate(found)]
    names: dict[str, Any] = {"kernel": function, "pointer": _POINTER, "carray": carray, "numpy": numpy}
    exec("\n".join(lines), names)  # noqa: S102  (of numbers and types of annotations)
    entry: Callable[[Any], None] = names["entry"]
    return entry


def _pointer(_typing: Any, _address: Any) -> Any:
    """Return the code of a pointer to an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _copy_bytes(_typing: Any, target: Any, _target_position: Any, source: Any, _position: Any, _count: Any) -> Any:
    """Return the code of `kernel_source.copy_bytes`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memcpy: Any = cgutils.raw_memcpy
        pointers = [_place_in(context, builder, signature, arguments, at) for at in (0, 2)]
        memcpy(builder, *pointers, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _sha256(_typing: Any, functions: Any, source: Any, _start: Any, _count: Any, target: Any, _position: Any) -> Any:
    """Return the code of `kernel_source.sha256`: calls of the three functions, with a context on the stack."""
    pointer, number, size = cgutils.voidptr_t, ir.IntType(32), ir.IntType(64)
    parameters = ((pointer,), (pointer, pointer, size), (pointer, pointer))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addresses = context.make_array(functions)(context, builder, arguments[0]).data
        init, update, final = (
            builder.inttoptr(
                builder.load(builder.gep(addresses, [size(at)])), ir.FunctionType(number, each).as_pointer()
            )
            for at, each in enumerate(parameters)
        )
        allocate: Any = cgutils.alloca_once
        state = builder.bitcast(allocate(builder, ir.ArrayType(size, _STATE_WORDS)), pointer)
        builder.call(init, [state])
        builder.call(update, [state, _place_in(context, builder, signature, arguments, 1), arguments[3]])
        builder.call(final, [_place_in(context, builder, signature, arguments, 4), state])
        return context.get_dummy_value()

    return types.void(functions, source, types.int64, types.int64, target, types.int64), generate


def _place_in(context: Any, builder: Any, signature: Any, arguments: Any, at: int) -> Any:
    """Return a pointer into an array of bytes, by the argument that is the array, and the next one."""
    array = context.make_array(signature.args[at])(context, builder, arguments[at])
    return builder.gep(array.data, [arguments[at + 1]])


_POINTER: Final[Any] = intrinsic(_pointer)
_OWN_CODE: Final[dict[Any, Any]] = {copy_bytes: intrinsic(_copy_bytes), sha256: intrinsic(_sha256)}
