"""The formats of a table's files: their names, their codecs, and what writes one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import pyarrow as pa

from ts_tables.files import compressed, orc_files, parquet_files, sequence_files
from ts_tables.files.json_lines import JsonLinesFile
from ts_tables.files.layout import Closed, FileFormat, Layout
from ts_tables.files.orc_files import OrcFile, check_orc
from ts_tables.files.parquet_files import ParquetFile
from ts_tables.files.sequence_files import SequenceFile
from ts_tables.files.text_files import TextFile


class OutputFile(Protocol):
    """A file of one format, open for writing."""

    def write(self, rows: pa.Table, /) -> None:
        """Write rows; of Parquet, one row group.

        Raises:
            OperatorError: the format has no such value.
        """
        ...

    @property
    def size(self) -> int:
        """The bytes so far."""
        ...

    def close(self) -> Closed:
        """Complete the file, and close its stream."""
        ...

    def abort(self) -> None:
        """Give up the file."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        open: writes a file to a stream.
        codecs: names of its compressions; the first one is the default.
        suffixes: what a compression adds to it; empty if it is within the file.
        check: raises ValueError for columns that the format does not have.
    """

    open: Callable[[Layout, BinaryIO], OutputFile]
    codecs: tuple[str, ...]
    suffix: str
    suffixes: Mapping[str, str]
    check: Callable[[pa.Schema], None] = lambda _: None

    def suffix_of(self, compression: str) -> str:
        """Return the end of the name of a file."""
        return self.suffix + self.suffixes.get(compression, "")


FORMATS: Final[Mapping[FileFormat, Format]] = {
    FileFormat.PARQUET: Format(ParquetFile, parquet_files.CODECS, ".parquet", {}),
    FileFormat.JSON_LINES: Format(JsonLinesFile, compressed.CODECS, ".jsonl", compressed.SUFFIXES),
    FileFormat.ORC: Format(OrcFile, orc_files.CODECS, ".orc", {}, check_orc),
    FileFormat.TEXT: Format(TextFile, compressed.CODECS, ".txt", compressed.SUFFIXES),
    FileFormat.SEQUENCE: Format(SequenceFile, sequence_files.CODECS, ".seq", {}),
    FileFormat.SEQUENCE_MESSAGEPACK: Format(SequenceFile, sequence_files.CODECS, ".seq", {}),
}
