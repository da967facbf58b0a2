"""Schemas of Protobuf as descriptors, by protoc, which the package grpcio-tools has.

A registry stores the text of a `.proto` file, or base64 of a FileDescriptorProto, as some clients register it. protoc
reads the text in a process of its own, with bounds for its memory and time; a schema is compiled once per codec.

No text of a schema or a reference is an argument of that process, and its output is a descriptor, never code.

Imports are the references of the schema, Google's well-known types, and Confluent's `confluent/*.proto`, which the
registry resolves without a reference. If `googleapis-common-protos` is installed, `google/type/*.proto` too.
"""

import base64
import binascii
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from ts_common.errors import CorruptData, TransientError
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.limits import MAX_BUNDLE_BYTES

ROOT: Final = "ts_root.proto"
_IMPORTS: Final = "ts_imports.proto"
_SECONDS: Final = 30
_MEMORY_BYTES: Final = 1 << 30
_BOUNDED: Final = (
    "import resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES})); "
    f"resource.setrlimit(resource.RLIMIT_CPU, ({_SECONDS}, {_SECONDS})); "
    "from grpc_tools import protoc; sys.exit(protoc.main(['protoc', *sys.argv[1:]]))"
)
# Files of Confluent that a schema may import without a reference, as `ProtobufSchema` of the registry has them.
_META: Final = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL: Final = """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_VARIANT: Final = """
syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""
KNOWN_IMPORTS: Final = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
}


def compile_protobuf(bundle: Bundle) -> tuple[FileDescriptorProto, ...]:
    """Return the files of a schema, each after those that it imports; the last one is the schema, named `ROOT`.

    Raises:
        CorruptData: it is not a schema of Protobuf, or lacks an import.
        TransientError: protoc could not be started.
    """
    texts: dict[str, str] = {}
    files: dict[str, FileDescriptorProto] = {}
    for name, schema in (*bundle.references, (ROOT, bundle.schema)):
        serialized = _serialized(schema.text)
        if serialized is None:
            texts[_checked_name(name, bundle)] = schema.text
        else:
            serialized.name = name
            files[name] = serialized
    wanted = {name for file in files.values() for name in file.dependency} - files.keys()
    if wanted:
        texts[_IMPORTS] = "".join(f'import "{_checked_name(name, bundle)}";\n' for name in sorted(wanted))
    for file in _compiled(texts, files.values(), bundle) if {ROOT, _IMPORTS} & texts.keys() else ():
        files.setdefault(file.name, file)
    files.pop(_IMPORTS, None)
    return _in_order(files, bundle)


def _serialized(text: str) -> FileDescriptorProto | None:
    """Return the descriptor that a text is in base64; None for the text of a `.proto` file."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True)) if text else None
    except (binascii.Error, DecodeError, ValueError):
        return None


def _checked_name(name: str, bundle: Bundle) -> str:
    """Return the name of an import, which becomes the path of a file."""
    path = PurePosixPath(name)
    odd = (
        name.startswith(("-", "@"))
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or '"' in name
        or not name.isprintable()
    )
    if odd or str(path) != name or len(name) > 500:
        raise CorruptData(f"{bundle.schema}: {name[:100]!r} is not the name of an import")
    return name


def _compiled(
    texts: dict[str, str], compiled: Iterable[FileDescriptorProto], bundle: Bundle
) -> Iterable[FileDescriptorProto]:
    with tempfile.TemporaryDirectory(prefix="ts-schemas-") as directory:
        files = Path(directory, "files")
        try:
            for name, text in {**KNOWN_IMPORTS, **texts}.items():
                path = files / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        except (OSError, UnicodeError) as error:  # one import is a folder of another, or the text is no UTF-8
            raise CorruptData(f"{bundle.schema}: its imports are not files: {error}") from error
        Path(directory, "known.bin").write_bytes(FileDescriptorSet(file=compiled).SerializeToString())
        out = Path(directory, "out.bin")
        arguments = [f"--proto_path={path}" for path in (files, *_include_directories())]
        arguments += [f"--descriptor_set_in={directory}/known.bin", "--include_imports", f"--descriptor_set_out={out}"]
        _run([*arguments, *(name for name in (ROOT, _IMPORTS) if name in texts)], bundle)
        if out.stat().st_size > MAX_BUNDLE_BYTES:
            raise CorruptData(f"{bundle.schema}: {out.stat().st_size} bytes of descriptors")
        found: Iterable[FileDescriptorProto] = FileDescriptorSet.FromString(out.read_bytes()).file
        return found


def _run(arguments: list[str], bundle: Bundle) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in sys.path if path)}
    try:
        done = subprocess.run(  # noqa: S603  (this Python; the names of imports were checked)
            [sys.executable, "-P", "-c", _BOUNDED, *arguments],
            capture_output=True,
            check=False,
            timeout=2 * _SECONDS,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except OSError as error:
        raise TransientError(f"{bundle.schema}: protoc could not be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise CorruptData(f"{bundle.schema}: protoc did not compile it in {2 * _SECONDS} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        errors = "; ".join(line.partition("/files/")[2] for line in said.splitlines() if "/files/" in line)
        reason = errors.replace(f"{ROOT}:", "line ")[:400] or f"protoc ended with status {done.returncode}"
        raise CorruptData(f"{bundle.schema}: not a schema of Protobuf: {reason}")


def _include_directories() -> list[Path]:
    """Return the directories with Google's `.proto` files: those of grpcio-tools, and of googleapis if installed."""
    tools = importlib.util.find_spec("grpc_tools")
    common = importlib.util.find_spec("google.type")
    folders = []
    if tools is not None and tools.origin is not None:
        folders.append(Path(tools.origin).parent / "_proto")
    if common is not None and common.submodule_search_locations:
        folders.append(Path(next(iter(common.submodule_search_locations))).parent.parent)
    return folders


def _in_order(files: dict[str, FileDescriptorProto], bundle: Bundle) -> tuple[FileDescriptorProto, ...]:
    ordered: dict[str, FileDescriptorProto] = {}
    stack = [(ROOT, False)]
    unfinished = set()
    while stack:
        name, finished = stack.pop()
        if finished:
            ordered[name] = files[name]
            unfinished.discard(name)
        elif name in unfinished:
            raise CorruptData(f"{bundle.schema}: {name!r} imports itself")
        elif name not in ordered:
            if name not in files:
                raise CorruptData(f"{bundle.schema}: the import {name!r} is not among its references")
            unfinished.add(name)
            stack.append((name, True))
            stack += [(other, False) for other in files[name].dependency if other not in ordered]
    return tuple(ordered.values())
