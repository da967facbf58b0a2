"""A reader's schema of Protobuf, compiled."""

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from ts_common.errors import CorruptData
from ts_common.suggestions import nearest
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.formats import Format, Read
from ts_reader.schemas.framing import message_indexes
from ts_reader.schemas.protobuf.compiler import ROOT, compile_protobuf
from ts_reader.schemas.protobuf.messages import Messages
from ts_reader.schemas.protobuf.wire import WireCheck


class ProtobufFormat(Format):
    """One message of a reader's schema.

    Args:
        message: name of the message, full or without the package; None for the first one of the file.
        cuts: whether nanoseconds are cut.

    Raises:
        CorruptData: the schema is not one of Protobuf, or has no such message.
    """

    def __init__(self, reader: Bundle, message: str | None = None, *, cuts: bool = False) -> None:
        self._bundle = reader
        self._pool, self._file = _pool_of(compile_protobuf(reader), reader)
        self._descriptor = _message(self._file, message, reader)
        try:
            self.arrow_type, self._convert = Messages(self._pool, cuts=cuts).message(self._descriptor)
        except (KeyError, ValueError) as error:  # KeyError: its own type has the name of a well-known one
            raise CorruptData(f"{reader.schema}: {error}") from error
        self._wire = WireCheck(self._pool, self._descriptor)
        self._class: Any = message_factory.GetMessageClass(self._descriptor)

    def reading(self, writer: Bundle | None) -> Read:
        """Return a function that parses payloads as the reader's message, whose fields are found by number.

        A payload of another message of the writer's file is refused.
        """
        if writer is None:
            return lambda data, _: self._value(data)
        file = self._file if writer == self._bundle else _pool_of(compile_protobuf(writer), writer)[1]
        expected = self._descriptor.full_name

        def value(data: bytes, indexes: bytes | None) -> object:
            path, start = message_indexes(data if indexes is None else indexes)
            name = _name_at(file, path)
            if name != expected:
                raise ValueError(f"message {name or path}; expected {expected}")
            return self._value(data[start:] if indexes is None else data)

        return value

    def _value(self, data: bytes) -> object:
        try:
            self._wire.check(data)
            parsed = self._class.FromString(data)
            return parsed if self._convert is None else self._convert(parsed)
        except Exception as error:
            # For bytes of another format, and for names of fields that the library uses itself.
            raise ValueError(f"not a message {self._descriptor.full_name}: {type(error).__name__}: {error}") from error


def _pool_of(files: tuple[FileDescriptorProto, ...], bundle: Bundle) -> tuple[DescriptorPool, FileDescriptor]:
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
        return pool, pool.FindFileByName(ROOT)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"{bundle.schema}: not a schema of Protobuf: {error}") from error


def _message(file: FileDescriptor, name: str | None, bundle: Bundle) -> Descriptor:
    declared = list(file.message_types_by_name.values())
    if name is None and declared:
        return declared[0]
    every = {descriptor.full_name: descriptor for descriptor in declared}
    pending = declared
    while pending:
        pending = [inner for outer in pending for inner in outer.nested_types]
        every |= {descriptor.full_name: descriptor for descriptor in pending}
    package = f"{file.package}." if file.package else ""
    found = every.get(name or "") or every.get(f"{package}{name}")
    if found is None:
        hint = nearest(name or "", every)
        raise CorruptData(f"{bundle.schema}: it has no message {'at all' if name is None else repr(name)}{hint}")
    return found


def _name_at(file: FileDescriptor, path: tuple[int, ...]) -> str | None:
    """Return the full name of the message at some message indexes; None if it does not exist."""
    level = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(level):
            return None
        found = level[index]
        level = list(found.nested_types)
    return None if found is None else found.full_name
