"""`tsctl cat`: the records of a range, as JSON lines, CSV, Parquet or Arrow."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.model import TopicPartition
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.bounds import Loss
from ts_reader.query.query import CorruptionMode
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import (
    ClusterOption,
    ConfigOption,
    EntropyOption,
    IncarnationOption,
    PartitionsOption,
    UrlOption,
    open_reader,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.json_lines import json_line
from tsctl.output import Output
from tsctl.scan_options import (
    WORDING,
    FromOption,
    IsolationOption,
    MaxBatchBytesOption,
    ModeOption,
    RegistryCaOption,
    RegistryOption,
    TimestampMsOption,
    ToOption,
    held_partitions,
    open_registry,
    parse_bounds,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ts_reader import Archive, FarTimes, Scan
    from tsctl.record_lines import Form
    from tsctl.results import ResultFormat

_FORMS: Final = "Form of {}: utf8, hex, base64 or a codec: json, int, long, registry, avro,schema.file=FILE and so on."
_FILES: Final = "parquet", "arrow"


def cat(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Maximum number of records.")] = None,
    key: Annotated[str | None, typer.Option("--key", help=_FORMS.format("keys"))] = None,
    value: Annotated[str | None, typer.Option("--value", help=_FORMS.format("values"))] = None,
    header: Annotated[str | None, typer.Option("--header", help=_FORMS.format("header values"))] = None,
    registry: RegistryOption = None,
    registry_ca: RegistryCaOption = None,
    form: Annotated[
        str, typer.Option("--format", help="json lines; or columns with types as csv, parquet or arrow.")
    ] = "json",
    to: Annotated[Path | None, typer.Option("--output", help="File for the records; it must not exist.")] = None,
    isolation: IsolationOption = "read_uncommitted",
    mode: ModeOption = CorruptionMode.FAILFAST,
    timestamp_ms: TimestampMsOption = False,
    incarnation: IncarnationOption = NEWEST,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as --format json.")] = False,
) -> None:
    """Print the records of a topic or a range of it, partition by partition."""
    from tsctl.record_lines import BYTES, DEFAULT, columns_read, parse_form  # noqa: PLC0415  (pyarrow, only for commands that decode)
    from tsctl.results import ResultFormat  # noqa: PLC0415  (the same)

    problems: list[str] = []
    accepted = [each.value for each in ResultFormat if each is not ResultFormat.TABLE]
    if form not in accepted:
        problems.append(f"--format={form}: accepted are {', '.join(accepted)}")
    if as_json and form != ResultFormat.JSON:
        problems.append(f"--json and --format={form}: give one of the two")
    if form in _FILES and to is None:
        problems.append(f"--format={form}: --output FILE is needed")
    forms = {"--key": key, "--value": value, "--header": header}
    for option, text in forms.items():
        try:
            if parse_form(text or DEFAULT) in BYTES and form != ResultFormat.JSON:
                problems.append(f"{option}={text}: --format {form} keeps bytes; drop {option}")
        except ValueError as error:
            problems.append(f"{option}={text}: {error}")
    if header is not None and form != ResultFormat.JSON:
        problems.append(f"--header={header}: --format {form} keeps the bytes of header values; drop --header")
    if timestamp_ms and form == ResultFormat.JSON:
        problems.append("--timestamp-ms: the timestamp of JSON lines is as stored; drop it")
    bounds = parse_bounds(start, end, problems, offsets=True)
    schemas = open_registry(registry, registry_ca, problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    shown = _Shown(ResultFormat(form), to, most)
    archive = open_reader(config, url, cluster, entropy_bits, warn=shown.heard, registry=schemas)
    is_json = form == ResultFormat.JSON
    scan = archive.scan(
        topic,
        partitions=held_partitions(archive, topic, parse_partitions(partition), incarnation),
        columns=columns_read(mode) if is_json else None,
        include_headers=True,
        include_timestamp_ms=is_json or timestamp_ms,
        key=None if is_json else key,
        value=None if is_json else value,
        undecoded="null",
        isolation_level=isolation,
        mode=mode.value,
        incarnation=incarnation,
        fail_on_data_loss=False,
        max_batch_bytes=max_batch_bytes,
        **bounds,
    )
    if is_json:
        shown.lines(scan, [_form(archive, topic, part, text or DEFAULT) for part, text in forms.items()])
    else:
        shown.columns(scan)
    shown.ended()
    if shown.lost:
        raise typer.Exit(ExitCode.FOUND)


def _form(archive: "Archive", topic: str, option: str, text: str) -> "Form":
    from ts_reader.schemas.contract import Part  # noqa: PLC0415  (pyarrow)
    from tsctl.record_lines import BYTES, Form  # noqa: PLC0415  (the same)

    if text in BYTES:
        return Form(text, None)
    return Form(text, archive.codec(topic, Part.KEY if option == "--key" else Part.VALUE, text))


class _Shown:
    """Writes records, and names offsets that are lost where they would be.

    Attributes:
        lost: whether offsets of what was shown are lost.
    """

    def __init__(self, form: "ResultFormat", to: Path | None, most: int | None) -> None:
        self.lost = False
        self._form = form
        self._to = to
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

    def lines(self, scan: "Scan", forms: "list[Form]") -> None:
        """Write JSON lines to standard output or to the file."""
        from tsctl.record_lines import RecordLines  # noqa: PLC0415  (pyarrow)
        from tsctl.results import complete_file  # noqa: PLC0415  (the same)

        def written(write: Any) -> None:
            for partition, batches in self._partitions(scan):
                lines = RecordLines(partition.topic, partition.partition, *forms)
                for batch in batches:
                    for some in lines.of(batch):
                        for line in some:
                            write(line)

        if self._to is None:
            written(self._output.row)
            return
        with complete_file(self._to) as temporary, temporary.open("w", encoding="utf-8") as file:
            written(lambda line: file.writelines(json_line(line)))

    def columns(self, scan: "Scan") -> None:
        """Write columns with types."""
        from tsctl.results import ResultFormat, complete_file, write_file, write_text  # noqa: PLC0415  (pyarrow)

        batches = (batch for _, each in self._partitions(scan) for batch in each)
        if self._form is not ResultFormat.CSV and self._to is not None:
            write_file(self._form, scan.schema, batches, self._to)
        elif self._to is None:
            write_text(self._form, scan.schema, batches, sys.stdout)
        else:
            with complete_file(self._to) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
                write_text(self._form, scan.schema, batches, file)

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
