"""`tsctl find`: the records of keys or of a field of values, and the index that finds keys in seconds."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ts_common.archive.directories import held_incarnations
from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.option_groups import with_groups
from ts_common.store.factory import Scheme, parse_location
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import (
    ArchiveOptions,
    HeldTopic,
    JsonOption,
    OpenArchive,
    PartitionsOption,
    TopicsArgument,
    open_archive,
    parse_partitions,
)
from tsctl.exit_codes import ExitCode
from tsctl.key_files import keys_of, read_lines
from tsctl.output import Output
from tsctl.scan_options import (
    FromOption,
    IncarnationOption,
    MaxBatchBytesOption,
    RegistryOptions,
    ScanOptions,
    ToOption,
    batch_limit,
    held_partitions,
    parse_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ts_reader import Archive, FarTimes, Scan
    from ts_reader.find.building import Lacking
    from ts_reader.query.bounds import Loss

_MOST_KEYS: Final = 100_000
_NUMBERS: Final = ("segments", "bytes", "pairs", "too_many_keys", "unread", "merged_runs", "removed_runs")
_COLUMNS: Final = ("TOPIC", "SEGMENTS", "BYTES", "PAIRS", "TOO MANY KEYS", "UNREAD", "MERGED RUNS", "REMOVED RUNS")

find = typer.Typer(
    invoke_without_command=True,
    help="Print the records of keys, or of a field of values. An index of keys makes that fast: tsctl find index.",
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to find."""

    topic: Annotated[str | None, typer.Option("--topic", help="Name of the topic.", show_default=False)] = None
    keys: Annotated[list[str] | None, typer.Option("--key", help="A key, in UTF-8; repeatable.")] = None
    file: Annotated[Path | None, typer.Option("--keys", help="File of keys, one on each line.")] = None
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Keys are hexadecimal.")] = False
    field: Annotated[
        str | None,
        typer.Option(
            "--field",
            metavar="PATH=TEXT",
            help="A field of values, as in user.id=42, compared as text. No index has values: all of them are read.",
        ),
    ] = None

    def check(self, problems: list[str]) -> None:
        """Append a sentence for each mistake."""
        if self.topic is None:
            problems.append("--topic is missing")
        has_keys = bool(self.keys) or self.file is not None
        if has_keys == (self.field is not None):
            problems.append("--key, --keys or --field: give keys or a field")
        path, sign, _ = (self.field or "a=").partition("=")
        if not sign or not all(path.split(".")):
            problems.append(f"--field={self.field}: PATH=TEXT is expected, as in user.id=42")

    def all_keys(self, problems: list[str]) -> frozenset[bytes] | None:
        """Return the keys; None without any. Append a sentence for each mistake."""
        if self.field is not None:
            return None
        texts = [*(self.keys or ())]
        if self.file is not None:
            texts += read_lines("--keys", self.file, problems)
        if len(texts) > _MOST_KEYS:
            problems.append(f"--keys={self.file}: {len(texts):,} keys; at most {_MOST_KEYS:,} are expected")
        return keys_of(texts, problems, hexadecimal=self.hexadecimal)


@dataclass(frozen=True, slots=True)
class _Shown:
    """How records are shown."""

    key: Annotated[str, typer.Option("--key-form", help="Form of keys, as --key of tsctl cat.")] = "utf8"
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            help="Form of values, as of tsctl cat; default: utf8; with --field json, with --registry too registry.",
        ),
    ] = None
    offsets: Annotated[bool, typer.Option("--offsets", help="Print topic, partition and offset only.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be read and its cost, and read no record.")
    ] = False
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="With --dry-run: the price file of tsctl cost; default: list prices of S3."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: JSON. Records always are.")] = False

    def check(self, problems: list[str]) -> None:
        """Append a sentence for each mistake."""
        from tsctl.record_lines import parse_form  # noqa: PLC0415  (pyarrow, only for commands that decode)

        for option, text in (("--key-form", self.key), ("--value", self.value)):
            try:
                parse_form(text or "utf8")
            except ValueError as error:
                problems.append(f"{option}={text}: {error}")
        if self.prices is not None and not self.dry_run:
            problems.append(f"--prices={self.prices}: it is for --dry-run")


@find.callback()
@with_groups
def records(
    context: typer.Context,
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    *,
    wanted: _Wanted,
    shown: _Shown,
    schemas: RegistryOptions,
    read: ScanOptions,
    given: ArchiveOptions,
) -> None:
    """Print the records of keys, or of a field of values, as JSON lines in the order of partitions and offsets."""
    if context.invoked_subcommand is not None:
        return
    from tsctl.record_lines import columns_read  # noqa: PLC0415  (pyarrow, only for commands that decode)

    problems: list[str] = []
    wanted.check(problems)
    keys = wanted.all_keys(problems)
    shown.check(problems)
    bounds = parse_bounds(start, end, problems, offsets=True)
    registry = schemas.open(problems)
    if problems or wanted.topic is None:
        raise ConfigurationError(SOURCE, problems)
    heard = _Heard(Output(as_json=shown.as_json or not shown.dry_run))
    archive = given.reader(warn=heard.hear, registry=registry)
    scan = archive.scan(
        wanted.topic,
        partitions=held_partitions(archive, wanted.topic, parse_partitions(partition), read.incarnation),
        columns=columns_read(read.mode),
        include_headers=True,
        include_timestamp_ms=True,
        key_equals=keys,
        fail_on_data_loss=False,
        **read.arguments(),
        **bounds,
    )
    if shown.dry_run:
        _print_cost(scan, archive, wanted.topic, shown.prices, heard.output)
    else:
        form = shown.value or ("utf8" if wanted.field is None else "json" if registry is None else "registry")
        _print(scan, archive, wanted, shown, form, heard.output)
    if heard.lost:
        raise typer.Exit(ExitCode.FOUND)


class _Heard:
    """What a scan warns of.

    Attributes:
        lost: whether offsets are lost.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self.lost = False

    def hear(self, warning: "str | Loss | FarTimes") -> None:
        """Write a warning."""
        from ts_reader.query.bounds import Loss  # noqa: PLC0415  (the reader, only for commands that read)

        self.lost = self.lost or isinstance(warning, Loss)
        self.output.warn(str(warning))


def _print_cost(scan: "Scan", archive: "Archive", topic: str, prices: Path | None, output: Output) -> None:
    """Write what a scan reads, and what that costs."""
    from tsctl.cost.prices import read_prices  # noqa: PLC0415  (pydantic, only for this option)
    from tsctl.find.read_cost import COLUMNS, amount_of, fields, rows  # noqa: PLC0415  (the reader, as above)

    is_s3 = all(parse_location(each).scheme is Scheme.S3 for each in archive.locations)
    priced = read_prices(prices) if prices is not None or is_s3 else None
    estimate, found = scan.estimate(), scan.found
    if output.as_json:
        output.document({"topic": topic, **fields(estimate, found, priced)})
        return
    output.table(COLUMNS, rows(estimate, found))
    if priced is None:
        output.text("cost: add --prices, a price file; tsctl cost --example-prices writes an example")
    else:
        amount = f"{priced.currency} {amount_of(estimate, priced):.6f}"
        output.text(f"cost: {amount} by the prices of {priced.name}, without egress and the requests of this plan")


def _print(scan: "Scan", archive: "Archive", wanted: _Wanted, shown: _Shown, form: str, output: Output) -> None:
    """Write the records of a scan."""
    from tsctl.find.field_search import FieldSearch  # noqa: PLC0415  (pyarrow, only for commands that decode)
    from tsctl.record_lines import RecordPrinter  # noqa: PLC0415  (the same)

    printer, search = RecordPrinter(archive, output.row, shown.key, form), None
    if wanted.field is not None:
        try:
            search = FieldSearch(wanted.field, printer.open(wanted.topic or "")[1])
        except ValueError as error:
            raise ConfigurationError(SOURCE, [f"--field={wanted.field}: {error}"]) from error
    estimate, found = scan.estimate(), scan.found
    output.note(f"reads {estimate}" + ("" if found is None else f"; {found}"), beside_bar=True)
    with output.progress("offsets", estimate.offsets, among_lines=True) as advance:
        for partition, one in scan.by_partition():
            for batch in one.to_batches():
                rows = batch if search is None else search.rows(batch)
                if shown.offsets:
                    for offset in rows.column("offset").to_pylist():
                        output.row({"topic": partition.topic, "partition": partition.partition, "offset": offset})
                else:
                    printer.print(partition.topic, partition.partition, [rows])
            advance(one.estimate().offsets)
    if search is not None and (message := search.message()) is not None:
        output.warn(message)


@find.command("index")
@with_groups
def index(
    topics: TopicsArgument = None,
    incarnation: IncarnationOption = NEWEST,
    most_share: Annotated[
        float,
        typer.Option(
            "--most-share",
            min=0,
            help="Bound: the share of a segment's bytes that its keys may have in the index. Above it the index has "
            "the segment's certificate only. 0: certificates only.",
        ),
    ] = 0.1,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Add to the index of keys the segments that it lacks; merge its runs of past days, months and years.

    Runs that were merged are removed a day later, and so are indexes of incarnations that the archive lacks.
    """
    del max_batch_bytes  # batch_limit has it
    output = Output(as_json)
    rows, documents = list[list[str | int]](), []
    with open_archive(given.name(), output.warn) as archive:
        for entry in archive.topics(topics or (), incarnation=incarnation):
            done = _index(entry, most_share, output)
            rows.append([entry.topic.name, *done.values()])
            documents.append({"topic": entry.topic.name, **done})
        _clear_ended(archive, output)
    if as_json:
        output.document({"topics": documents})
    else:
        output.table(_COLUMNS, rows)


def _index(entry: HeldTopic, most_share: float, output: Output) -> dict[str, int]:
    """Bring the index of a topic up to date; return numbers by their name in JSON."""
    from ts_reader.find.building import Built, build  # noqa: PLC0415  (pyarrow and kernels, only for this command)
    from ts_reader.find.keeping import keep  # noqa: PLC0415  (the same)

    store, topic = entry.store, entry.topic

    def add(prefix: str, copies: "Sequence[Lacking]", commits: "Mapping[str, str]") -> Built:
        total = sum(each.copy.segment.size for each in copies)
        with output.progress(topic.name, total, in_bytes=True) as advance:
            return build(
                store, prefix, copies, most_share=most_share, commits=commits, limit=batch_limit(), done=advance
            )

    kept = keep(store, topic.partitions, add)
    built = kept.built
    for warning in kept.warnings:
        output.warn(f"{topic.name}: {warning}; a look-up reads the segments")
    if built.too_many and most_share:
        output.warn(
            f"{topic.name}: {counted(built.too_many, 'segment')} with more keys than --most-share {most_share:g} "
            "allows: the index has their certificates only"
        )
    numbers = (built.objects, built.bytes, built.pairs, built.too_many, len(built.unread), kept.merged, kept.removed)
    return dict(zip(_NUMBERS, numbers, strict=True))


def _clear_ended(archive: OpenArchive, output: Output) -> None:
    """Remove the indexes of incarnations that retention or an operator removed."""
    from ts_reader.find.merging import clear_ended  # noqa: PLC0415  (pyarrow, only for this command)

    for store in archive.stores:
        held = held_incarnations(store, archive.keys)
        for run in clear_ended(store, archive.keys, held, store.current_time()).runs:
            output.note(f"removed {archive.keys.finds}{run}: the archive has no object of this incarnation")
