"""`tsctl cat`: the records of a range, as JSON lines, CSV, Parquet or Arrow."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError
from ts_common.model import TopicPartition
from ts_common.option_groups import with_groups
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.bounds import Loss
from tsctl.archive_options import (
    ArchiveOptions,
    PartitionsOption,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.json_lines import json_line
from tsctl.output import Output
from tsctl.scan_options import (
    WORDING,
    FromOption,
    RegistryOptions,
    ScanOptions,
    ToOption,
    held_partitions,
    parse_bounds,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ts_reader import Archive, FarTimes, Scan

_FORMS: Final = "Form of {}: utf8, hex, base64 or a codec: json, int, long, registry, avro,schema.file=FILE and so on."


@dataclass(frozen=True, slots=True)
class _Forms:
    """The form of records."""

    key: Annotated[str | None, typer.Option("--key", help=_FORMS.format("keys"))] = None
    value: Annotated[str | None, typer.Option("--value", help=_FORMS.format("values"))] = None
    header: Annotated[str | None, typer.Option("--header", help=_FORMS.format("header values"))] = None
    form: Annotated[
        str, typer.Option("--format", help="json lines; or columns with types as csv, parquet or arrow.")
    ] = "json"
    to: Annotated[Path | None, typer.Option("--output", help="File for the records; it must not exist.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as --format json.")] = False

    @property
    def is_json(self) -> bool:
        """Whether records are JSON lines; else they are columns with types."""
        return self.form == "json"

    def check(self, problems: list[str], *, timestamp_ms: bool) -> None:
        """Append a sentence for each mistake."""
        from tsctl.results import FILES, ResultFormat  # noqa: PLC0415  (pyarrow, only for commands that decode)

        form = self.form
        accepted = [each.value for each in ResultFormat if each is not ResultFormat.TABLE]
        if form not in accepted:
            problems.append(f"--format={form}: accepted are {', '.join(accepted)}")
        if self.as_json and not self.is_json:
            problems.append(f"--json and --format={form}: give one of the two")
        if form in FILES and self.to is None:
            problems.append(f"--format={form}: --output FILE is needed")
        for option, text in (("--key", self.key), ("--value", self.value), ("--header", self.header)):
            self._check_form(option, text, problems)
        if self.header is not None and not self.is_json:
            problems.append(f"--header={self.header}: --format {form} keeps the bytes of header values; drop --header")
        if timestamp_ms and self.is_json:
            problems.append("--timestamp-ms: the timestamp of JSON lines is as stored; drop it")

    def _check_form(self, option: str, text: str | None, problems: list[str]) -> None:
        from tsctl.record_lines import BYTES, DEFAULT, parse_form  # noqa: PLC0415  (pyarrow, only for commands that decode)

        try:
            if parse_form(text or DEFAULT) in BYTES and not self.is_json:
                problems.append(f"{option}={text}: --format {self.form} keeps bytes; drop {option}")
        except ValueError as error:
            problems.append(f"{option}={text}: {error}")


@with_groups
def cat(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Maximum number of records.")] = None,
    *,
    forms: _Forms,
    schemas: RegistryOptions,
    read: ScanOptions,
    given: ArchiveOptions,
) -> None:
    """Print the records of a topic or a range of it, partition by partition."""
    from tsctl.record_lines import columns_read  # noqa: PLC0415  (pyarrow, only for commands that decode)

    problems: list[str] = []
    forms.check(problems, timestamp_ms=read.timestamp_ms)
    bounds = parse_bounds(start, end, problems, offsets=True)
    registry = schemas.open(problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    shown = _Shown(forms, most)
    archive = given.reader(warn=shown.heard, registry=registry)
    scan = archive.scan(
        topic,
        partitions=held_partitions(archive, topic, parse_partitions(partition), read.incarnation),
        columns=columns_read(read.mode) if forms.is_json else None,
        include_headers=True,
        include_timestamp_ms=forms.is_json or read.timestamp_ms,
        key=None if forms.is_json else forms.key,
        value=None if forms.is_json else forms.value,
        undecoded="null",
        fail_on_data_loss=False,
        **read.arguments(),
        **bounds,
    )
    if forms.is_json:
        shown.lines(scan, archive, topic)
    else:
        shown.columns(scan)
    shown.ended()
    if shown.lost:
        raise typer.Exit(ExitCode.FOUND)


class _Shown:
    """Writes records, and names offsets that are lost where they would be.

    Attributes:
        lost: whether offsets of what was shown are lost.
    """

    def __init__(self, forms: _Forms, most: int | None) -> None:
        self.lost = False
        self._forms = forms
        self._to = forms.to
        self._left = most
        self._losses: list[Loss] = []
        self._far = 0
        self._output = Output(as_json=True)

    def heard(self, warning: "str | Loss | FarTimes") -> None:
        """Note a loss and times that do not fit, and write another warning."""
        from ts_reader import FarTimes  # noqa: PLC0415  (pyarrow)

        if isinstance(warning, Loss):
            self._losses.append(warning)
        elif isinstance(warning, FarTimes):  # of one partition
            self._far += warning.rows
        else:
            self._output.warn(warning)

    def lines(self, scan: "Scan", archive: "Archive", topic: str) -> None:
        """Write JSON lines to standard output or to the file."""
        from tsctl.record_lines import DEFAULT, RecordPrinter  # noqa: PLC0415  (pyarrow)
        from tsctl.results import complete_file  # noqa: PLC0415  (the same)

        forms = [text or DEFAULT for text in (self._forms.key, self._forms.value, self._forms.header)]

        def written(write: Callable[[dict[str, Any]], None]) -> None:
            printer = RecordPrinter(archive, write, *forms)
            printer.open(topic)  # a codec that cannot be opened is found before the archive is read
            for partition, batches in self._partitions(scan):
                printer.print(partition.topic, partition.partition, batches)

        if self._to is None:
            written(self._output.row)
            return
        with complete_file(self._to) as temporary, temporary.open("w", encoding="utf-8") as file:
            written(lambda line: file.writelines(json_line(line)))

    def columns(self, scan: "Scan") -> None:
        """Write columns with types."""
        from tsctl.results import ResultFormat, write_result  # noqa: PLC0415  (pyarrow)

        batches = (batch for _, each in self._partitions(scan) for batch in each)
        write_result(ResultFormat(self._forms.form), scan.schema, batches, self._to)

    def _partitions(self, scan: "Scan") -> "Iterator[tuple[TopicPartition, Iterator[pa.RecordBatch]]]":
        """Yield partitions with their batches, until the maximum is reached."""
        total = scan.estimate().offsets  # this plans the scan, and so the losses are known
        with self._output.progress("offsets", total, among_lines=self._to is None) as advance:
            for partition, one in scan.by_partition():
                if self._left == 0:
                    return
                yield partition, self._batches(partition, one, advance)
        if self._left != 0:
            self._tell(self._losses)

    def ended(self) -> None:
        """Warn of times that do not fit their column, once for all partitions."""
        if self._far:
            from ts_reader.decode.arrow_schema import far_warning  # noqa: PLC0415  (pyarrow)

            self._output.warn(far_warning(self._far, WORDING.exact_times))

    def _batches(self, partition: TopicPartition, scan: "Scan", advance: Any) -> "Iterator[pa.RecordBatch]":
        reached = None
        with closing(scan.to_batches()) as batches:
            for whole in batches:
                if not whole.num_rows:
                    continue
                batch = whole.slice(0, self._left)
                if self._left is not None:
                    self._left -= batch.num_rows
                first, last = batch.column("offset")[0].as_py(), batch.column("offset")[-1].as_py()
                self._tell([loss for loss in self._losses if (loss.partition, loss.start) <= (partition, last)])
                yield batch
                advance(last + 1 - (first if reached is None else reached))
                reached = last + 1
                if self._left == 0:
                    return

    def _tell(self, losses: list[Loss]) -> None:
        for loss in sorted(losses, key=lambda each: (each.partition, each.start)):
            self.lost = True
            self._losses.remove(loss)
            self._output.warn(str(loss))
