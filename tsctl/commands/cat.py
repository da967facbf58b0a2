"""`tsctl cat`: the records of a range, as JSON lines.

It writes the rows that readers return: no control records, each offset once, in order, inside the view. It reads and
writes a stream, and holds a few megabytes for a range of any length.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import PartitionView, open_view
from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.reading.incarnation_option import NEWEST
from ts_common.store.contract import ObjectStore
from tsctl.archive import (
    SOURCE,
    ClusterOption,
    ConfigOption,
    EntropyOption,
    IncarnationOption,
    PartitionsOption,
    UrlOption,
    name_archive,
    open_archive,
    parse_partitions,
)
from tsctl.commands.bounds import FromOption, Missing, RequestedRange, ToOption, find_bounds, missing_of, parse_range
from tsctl.commands.decoding import Decoder, Form, decoded, decoder
from tsctl.exit_codes import ExitCode
from tsctl.limits import MaxBatchBytesOption, batch_limit
from tsctl.output import Advance, Output

_ROWS: Final = 1024  # converted to Python objects at once
_BYTES: Final = 4 << 20  # the same, unless one record is larger
_TIMESTAMP_TYPES: Final = {
    -1: "NoTimestampType",
    0: "CreateTime",
    1: "LogAppendTime",
}  # names as in Kafka's TimestampType
_WAY_OUT: Final = "`tsctl get` writes the object as it is"


class Isolation(StrEnum):
    """Values of `isolation.level` of Kafka's consumer."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def cat(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Maximum number of records.")] = None,
    key: Annotated[Form, typer.Option("--key", help="Format of keys.")] = Form.UTF8,
    value: Annotated[Form, typer.Option("--value", help="Format of values.")] = Form.UTF8,
    header: Annotated[Form, typer.Option("--header", help="Format of header values.")] = Form.UTF8,
    key_schema: Annotated[Path | None, typer.Option(help="File with the Avro schema of keys.")] = None,
    value_schema: Annotated[Path | None, typer.Option(help="File with the Avro schema of values.")] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="read_committed leaves out aborted and open transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    incarnation: IncarnationOption = NEWEST,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,  # noqa: ARG001  (its callback keeps it)
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; this is always the format.")] = True,  # noqa: ARG001
) -> None:
    """Print the records of a topic or a range of it as JSON lines, partition by partition."""
    problems: list[str] = []
    decoders = (
        decoder(key, key_schema, "--key", problems),
        decoder(value, value_schema, "--value", problems),
        decoder(header, None, "--header", problems),
    )
    asked = parse_range(start, end, problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    output = Output(as_json=True)
    name, numbers = name_archive(config, url, cluster, entropy_bits), parse_partitions(partition)
    complete, left = True, most
    with open_archive(name, output.warn) as archive:
        held = archive.topics([topic], numbers, incarnation)
        for entry, catalog in [(one, catalog) for one in held for catalog in one.topic.partitions]:
            if left == 0:
                break
            view = open_view(entry.store, catalog)
            if view.warning:
                output.warn(view.warning)
            rows = _Rows(entry.store, view, asked, isolation, decoders, left)
            total = rows.bounds.end - rows.bounds.start
            with output.progress(str(view.partition), total, among_lines=True) as advance:
                count, whole = _write(rows, output, advance)
            complete = complete and whole
            left = None if left is None else left - count
    if not complete:
        raise typer.Exit(ExitCode.FOUND)


def _write(rows: "_Rows", output: Output, advance: Advance) -> tuple[int, bool]:
    """Write the rows; return the number of records, and whether no offset was missing."""
    count, whole, position = 0, True, rows.bounds.start
    for found in rows:
        if isinstance(found, Missing):
            whole = False
            output.warn(f"{rows.view.partition}: offsets {found.start} to {found.end - 1} are {found.reason}")
        else:
            for row in found:
                output.line(row)
            count += len(found)
            reached = found[-1]["offset"] + 1
            advance(reached - position)
            position = reached
    return count, whole


class _Rows:
    """The records and missing offsets of one partition in a range, in order.

    Attributes:
        view: the partition's view; for committed reads it ends at the last stable offset.
        bounds: the range.
    """

    def __init__(
        self,
        store: ObjectStore,
        view: PartitionView,
        asked: RequestedRange,
        isolation: Isolation,
        decoders: tuple[Decoder, Decoder, Decoder],
        most: int | None,
    ) -> None:
        from ts_common.reading.transactions import stable_end  # noqa: PLC0415  (with what decodes)

        self._store = store
        self._whole_view = view  # a marker can be beyond the last offset that is shown
        self._is_committed = isolation is Isolation.READ_COMMITTED
        self._decoders = decoders
        self._most = most
        self.view = replace(view, end=stable_end(store, view)) if self._is_committed else view
        self.bounds = find_bounds(store, self.view, asked)

    def __iter__(self) -> Iterator[list[dict[str, Any]] | Missing]:
        start, end = self.bounds.start, self.bounds.end
        yield from (missing for missing in self.bounds.missing if missing.start < start)
        left = self._most
        for found in self._found(start, end):
            if isinstance(found, Missing):
                yield found
                continue
            taken = found[:left]
            yield taken
            if left is not None and (left := left - len(taken)) == 0:
                return
        yield from (missing for missing in self.bounds.missing if missing.start >= end)

    def _found(self, start: int, end: int) -> Iterator[list[dict[str, Any]] | Missing]:
        # Import numba, numpy and pyarrow (0.5 s) only in commands that decode.
        from ts_common.decode.arrow_schema import COLUMNS_WITH_HEADERS  # noqa: PLC0415
        from ts_common.decode.segment_decoder import MAX_ROWS  # noqa: PLC0415
        from ts_common.reading.rows import read_ranges  # noqa: PLC0415
        from ts_common.reading.transactions import Hidden, find_hidden  # noqa: PLC0415

        asks = self._is_committed and start < end
        hidden = find_hidden(self._store, self._whole_view, start, end) if asks else Hidden()
        for cut_off in hidden.cut_off:
            yield Missing(cut_off.first, cut_off.hole.start, cut_off.reason)
        names = [name for name in COLUMNS_WITH_HEADERS if name not in {"topic", "partition"}]
        max_rows = min(MAX_ROWS, self._most or MAX_ROWS)
        for is_hole, parts in groupby(self.view.plan(start, end), lambda part: isinstance(part, Hole)):
            if is_hole:
                yield from (missing_of(part) for part in parts if isinstance(part, Hole))
                continue
            ranges = [part for part in parts if isinstance(part, ReadRange)]
            for batch in read_ranges(
                self._store,
                ranges,
                names,
                hidden.transactions,
                max_rows=max_rows,
                way_out=_WAY_OUT,
                limit=batch_limit(),
            ):
                milliseconds = batch.column("timestamp").cast("int64").to_numpy() // 1000
                rest = batch.drop_columns(["timestamp"])
                step = min(_ROWS, max(1, _BYTES * batch.num_rows // max(1, batch.nbytes)))
                for first in range(0, batch.num_rows, step):
                    rows = rest.slice(first, step).to_pylist()
                    times = milliseconds[first : first + step].tolist()
                    yield [self._line(row, time) for row, time in zip(rows, times, strict=True)]

    def _line(self, row: dict[str, Any], milliseconds: int) -> dict[str, Any]:
        """Return a record as JSON; `undecoded` names fields in base64 that do not have the given form."""
        undecoded: dict[str, str] = {}
        of_key, of_value, of_header = self._decoders

        def field(decode: Decoder, data: bytes | None, where: str) -> object:
            shown, reason = decoded(decode, data)
            if reason is not None:
                undecoded[where] = reason
            return shown

        kind = row["timestampType"]
        line: dict[str, Any] = {
            "topic": self.view.partition.topic,
            "partition": self.view.partition.partition,
            "offset": row["offset"],
            "timestamp": None if kind == -1 else milliseconds,
            "timestamp_type": _TIMESTAMP_TYPES[kind],
            "key": field(of_key, row["key"], "key"),
            "value": field(of_value, row["value"], "value"),
            "headers": [
                {"key": header["key"], "value": field(of_header, header["value"], f"headers[{place}]")}
                for place, header in enumerate(row["headers"] or ())
            ],
        }
        return {**line, "undecoded": undecoded} if undecoded else line
