"""A struct of an IDL file, compiled. Only here thriftpy2 is used: it parses the IDL, and reads no values."""

import itertools
import keyword
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ts_common.installed import missing_package
from ts_common.suggestions import nearest
from ts_reader.schemas.limits import MAX_COLUMNS, MAX_DEPTH, MAX_SCHEMA_BYTES
from ts_tables.parsers.thrift.types import Default, Enumeration, Field, Items, Name, Pairs, Scalar, Struct, ThriftType

_SUFFIX: Final = ".thrift"
_NUMBERS = itertools.count()
# Types as thriftpy2 numbers them: those of the binary protocol, and one of its own for `binary`.
_SCALARS: Final = {
    2: Name.BOOL,
    3: Name.I8,
    4: Name.DOUBLE,
    6: Name.I16,
    8: Name.I32,
    10: Name.I64,
    11: Name.STRING,
    18: Name.BINARY,
}
_STRUCT, _MAP, _SET, _LIST = 12, 13, 14, 15
_BITS: Final = {Name.I8: 8, Name.I16: 16, Name.I32: 32, Name.I64: 64}
_WHOLE: Final = ("structs", "unions", "exceptions")
# thriftpy2 makes functions of Python with the names of fields. If Python rejects a name, ply hides the error, and
# skips the rest of the file.
_REJECTED: Final = re.compile(r"\b(?:False|None|True|async|await|nonlocal)\b")
_RENAME: Final = "rename it in the IDL, as the bytes have no names"


def read_struct(path: Path, name: str) -> Struct:
    """Return a struct of an IDL.

    Args:
        path: of the file. What it includes is found relative to the file that includes it.
        name: of a struct, an exception or a union of the file; of an included file with its name, as `common.Point`.

    Raises:
        ValueError: the file cannot be read, is no IDL, or has no such struct, or a column cannot have one of its types.
    """
    module = _parsed(path)
    modules = _with_included(module)
    declared = dict(_declared(module))
    for each in modules[1:]:
        declared |= {f"{each.__name__}.{inner}": kind for inner, kind in _declared(each)}
    if name not in declared:
        known = f"it has {', '.join(list(declared)[:20])}" if declared else "it has none at all"
        raise ValueError(f"{path} has no struct {name!r}{nearest(name, declared)}; {known}{_hint(path)}")
    _check_names(path, modules, declared.values())
    try:
        return _Compiler(modules).struct(declared[name], name, ())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _parsed(path: Path) -> ModuleType:
    """Return the module that thriftpy2 makes of a file."""
    if path.suffix != _SUFFIX:
        raise ValueError(f"{path}: a name that ends in {_SUFFIX} is expected")
    try:
        if path.stat().st_size > MAX_SCHEMA_BYTES:
            raise ValueError(f"{path}: more than {MAX_SCHEMA_BYTES} bytes")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        # Loaded only for such tables, and not where tasks run: it takes 0.5 s, and its parser 0.2 s.
        from thriftpy2.parser.parser import parse  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(missing_package(error, "tables") or str(error)) from error
    # thriftpy2 keeps each included file by the name of its module in the whole process. Without a prefix of its own, an
    # IDL would get a file of this name in another directory, or the file as it was before.
    prefix = f"idl{next(_NUMBERS)}"
    try:
        found: ModuleType = parse(  # type: ignore[no-untyped-call]
            str(path.absolute()), module_name=f"{prefix}.{path.stem}_thrift", include_dirs=[]
        )
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # its parser has errors of many types for a wrong file
        raise ValueError(f"{path}: no IDL of Thrift: {str(error) or type(error).__name__}{_hint(path)}") from error
    return found


def _with_included(module: ModuleType) -> list[ModuleType]:
    """Return a module and all that it includes, each once."""
    found = [module]
    for each in found:  # it grows
        found += [inner for inner in _meta(each).get("includes", ()) if inner not in found]
    return found


def _meta(module: ModuleType) -> Mapping[str, list[Any]]:
    return getattr(module, "__thrift_meta__", {})


def _declared(module: ModuleType) -> list[tuple[str, Any]]:
    """Return the structs of a module by name, also those that are not whole."""
    found = [(name, kind) for name, kind in vars(module).items() if isinstance(kind, type)]
    return [(name, kind) for name, kind in found if getattr(kind, "_ttype", None) == _STRUCT]


def _check_names(path: Path, modules: list[ModuleType], declared: Collection[Any]) -> None:
    """Raise ValueError if a struct has a field whose name Python rejects: what follows it was not read."""
    whole = [kind for each in modules for group in _WHOLE for kind in _meta(each).get(group, ())]
    for kind in declared:
        if kind not in whole:
            names = [spec[1] for spec in kind.thrift_spec.values()]
            wrong = [name for name in names if keyword.iskeyword(name) or not name.isidentifier()]
            named = f"no field of {kind.__name__} can have the name {', '.join(wrong)}"
            raise ValueError(f"{path}: {named}; {_RENAME}")


def _hint(path: Path) -> str:
    """Return the way out, if the name of a field can be the reason of an error; empty if not."""
    found = _REJECTED.search(path.read_text("utf-8", "replace"))
    return f"; if the name of a field is {found[0]}, {_RENAME}" if found else ""


class _Compiler:
    """Compiles types. Its methods raise ValueError, with the path to a field, if a column cannot have its type.

    Args:
        modules: of thriftpy2; only they have which structs are unions.
    """

    def __init__(self, modules: list[ModuleType]) -> None:
        self._unions = [kind for each in modules for kind in _meta(each).get("unions", ())]
        self._count = 0

    def struct(self, kind: Any, place: str, inside: tuple[Any, ...]) -> Struct:
        """Return a struct.

        Args:
            kind: class of thriftpy2.
            place: the path to the field of this type.
            inside: the structs that it is in.
        """
        if kind in inside:
            raise ValueError(f"{place}: struct {kind.__name__} contains itself; no column can have such values")
        if not kind.thrift_spec:
            raise ValueError(f"{place}: struct {kind.__name__} has no fields; no column can have such values")
        is_union = kind in self._unions
        defaults = dict(kind.default_spec)
        fields = []
        for number, (code, name, *spec, required) in kind.thrift_spec.items():
            own = f"{place}.{name}"
            found = self._type((code, *spec), own, (*inside, kind))
            default = None if is_union else _default(found, defaults.get(name), own)
            fields.append(Field(number, name, found, bool(required), default))
        return Struct(tuple(fields), is_union)

    def _type(self, given: Any, place: str, inside: tuple[Any, ...]) -> ThriftType:
        """Return a type.

        Args:
            given: of thriftpy2: a number, or the number and what is inside of it.
            place: the path to the field.
            inside: the structs that it is in.
        """
        self._count += 1
        if self._count > MAX_COLUMNS:
            raise ValueError(f"the struct has more than {MAX_COLUMNS} fields at all levels")
        if place.count(".") > MAX_DEPTH:
            raise ValueError(f"{place}: more than {MAX_DEPTH} levels")
        code, *spec = given if isinstance(given, tuple) else (given,)
        inner = spec[0] if spec else None
        if code == _STRUCT:
            return self.struct(inner, place, inside)
        if code in (_LIST, _SET):
            return Items(self._type(inner, f"{place}.element", inside), code == _SET)
        if code == _MAP and isinstance(inner, tuple):
            key, value = inner
            return Pairs(self._key(key, f"{place}.key", inside), self._type(value, f"{place}.value", inside))
        symbols = getattr(inner, "_VALUES_TO_NAMES", None)
        if symbols is not None:
            return Enumeration(dict(symbols))
        if code not in _SCALARS or inner is not None:
            raise ValueError(f"{place}: its type is not declared")
        return Scalar(_SCALARS[code])

    def _key(self, given: Any, place: str, inside: tuple[Any, ...]) -> ThriftType:
        found = self._type(given, place, inside)
        if isinstance(found, Enumeration) or (isinstance(found, Scalar) and found.name is not Name.BINARY):
            return found
        raise ValueError(f"{place}: keys of a map are text, numbers, booleans or of an enum; no column can have others")


def _default(kind: ThriftType, given: Any, place: str) -> Default:
    """Return the default of a field; None if it has none, or one that is no single value."""
    if isinstance(given, tuple):  # of a type that was declared after its use; the value is the third part
        given = given[2]
    if given is None or not isinstance(kind, Scalar | Enumeration):
        return None
    if isinstance(kind, Enumeration):
        if type(given) is int:
            return kind.text_of(given)
    elif kind.name in _BITS:
        limit = 1 << (_BITS[kind.name] - 1)
        if type(given) is int and -limit <= given < limit:
            return given
    elif kind.name is Name.BOOL and given in (False, True):
        return bool(given)
    elif kind.name is Name.DOUBLE and isinstance(given, int | float):
        return float(given)
    elif isinstance(given, str):
        return given.encode() if kind.name is Name.BINARY else given
    raise ValueError(f"{place}: the default {given!r} does not fit its type")
