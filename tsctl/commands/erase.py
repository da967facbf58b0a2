"""`tsctl erase`: hides records of a person from all readers, removes their bytes, and shows which requests are late."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.archive.erasures import ErasureState, erasure_key
from ts_common.archive.holds import check_reason
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.restored import Restored
from ts_common.errors import ConfigurationError, OperatorError, QueryError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.model import TopicPartition, is_topic_name
from ts_common.option_groups import with_groups
from ts_common.suggestions import nearest
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE
from ts_reader.reading.incarnation_option import NEWEST, directory_of, parse_incarnation
from ts_reader.schemas.choice import parse_codec
from tsctl.archive_options import ArchiveOptions, JsonOption, OpenArchive, open_archive
from tsctl.commands import erase_run, erase_versions
from tsctl.erase.evidence import Progress, progress_of, read_progress
from tsctl.erase.offsets_file import read_offsets
from tsctl.erase.report import (
    FOUND,
    NOTED,
    REMAINING,
    REQUESTS,
    found_fields,
    found_row,
    noted_rows,
    remaining_rows,
    request_fields,
    request_row,
)
from tsctl.exit_codes import ExitCode
from tsctl.key_files import keys_of, read_lines
from tsctl.output import Cell, Output
from tsctl.scan_options import MaxBatchBytesOption, RegistryOptions, batch_limit, parse_time
from tsctl.verify.run import CommandConfigOption, named_cluster

if TYPE_CHECKING:
    from ts_reader.schemas.contract import Codec, Part
    from tsctl.erase.adding import Demand
    from tsctl.erase.criteria import Criterion
    from tsctl.erase.places import Place, Places
    from tsctl.erase.searching import Searched

_MILLISECONDS: Final = 1000
_LEAST_KEY: Final = 4  # bytes: a shorter key is in too many texts by accident
_MOST_TEXT: Final = 1000  # characters
_CHECKS: Final = ("VERDICT", "CHECK", "FOUND", "LOCATION")
_READERS: Final = "readers of earlier releases refuse a partition with a list, so upgrade them first"
_BROKERS: Final = (
    "records that brokers have are the task of producers and operators: a tombstone on a compacted topic, "
    "kafka-delete-records, or the topic's retention (docs/security.md)"
)

_OBEYING: Final = (
    "queries and steps of streams that begin now obey; running endpoints within about 5 seconds, consumers within a "
    "minute; a query that began before can return the records"
)

erase = typer.Typer(
    no_args_is_help=True,
    help="Erase records of a person: hide them from all readers at once, and remove their bytes in later runs.",
)
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="Brokers of the running cluster: what they have now, and the archive lacks, belongs to the request.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Which:
    """Which records are erased."""

    topic: Annotated[str, typer.Option("--topic", help="Name of the topic.", show_default=False)] = ""
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="File of keys, one on each line, in UTF-8. No key is stored, and a command line would be visible.",
            metavar="FILE",
        ),
    ] = None
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Keys of --key-file are hexadecimal.")] = False
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            help="A condition of SQL over the columns of tsctl sql, as behind WHERE. All records are read.",
            metavar="SQL",
        ),
    ] = None
    offsets: Annotated[
        Path | None,
        typer.Option(
            "--offsets",
            help="File of records, one on each line: TOPIC-PARTITION OFFSET [EPOCH], or lines of tsctl find --offsets.",
            metavar="FILE",
        ),
    ] = None
    incarnation: Annotated[
        str, typer.Option("--incarnation", help="With --offsets: as of tsctl find. Keys and SQL concern all of them.")
    ] = NEWEST
    key_codec: Annotated[
        str | None, typer.Option("--key", help="With --where: codec of keys, as of tsctl sql; default: bytes.")
    ] = None
    value_codec: Annotated[
        str | None, typer.Option("--value", help="With --where: codec of values, as of tsctl sql; default: bytes.")
    ] = None
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES

    def check(self, problems: list[str]) -> None:
        """Append a sentence for each mistake."""
        if not is_topic_name(self.topic):
            problems.append("--topic is missing" if not self.topic else f"--topic={self.topic}: no name of a topic")
        given = [self.key_file, self.where, self.offsets]
        if sum(each is not None for each in given) != 1:
            problems.append("--key-file, --where or --offsets: give one of them")
        if self.hexadecimal and self.key_file is None:
            problems.append("--hex requires --key-file")
        if self.incarnation != NEWEST:
            try:
                parse_incarnation(self.incarnation)
            except ValueError as error:
                problems.append(f"--incarnation={self.incarnation}: {error}")
            if self.offsets is None:
                problems.append("--incarnation requires --offsets: keys and SQL concern all incarnations")
        for option, text in (("--key", self.key_codec), ("--value", self.value_codec)):
            if text is None:
                continue
            if self.where is None:
                problems.append(f"{option} requires --where")
            try:
                parse_codec(text)
            except ValueError as error:
                problems.append(f"{option}={text}: {error}")

    def keys(self, problems: list[str]) -> frozenset[bytes]:
        """Return the keys of `--key-file`; none without one."""
        if self.key_file is None:
            return frozenset()
        found = keys_of(read_lines("--key-file", self.key_file, problems), problems, hexadecimal=self.hexadecimal)
        if not found and not problems:
            problems.append(f"--key-file={self.key_file}: it has no key")
        return found


@erase.command("add")
@with_groups
def add(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Id of the request: letters, digits, '.', '_' and '-'. It names no person.",
            show_default=False,
        ),
    ],
    reference: Annotated[
        str,
        typer.Option("--reference", help="Of the person's demand; one line, which names no person.", metavar="TEXT"),
    ],
    due: Annotated[
        str,
        typer.Option(
            "--due", help="Day that the bytes must be deleted by: 2027-01-31 (its start, UTC).", metavar="DATE"
        ),
    ],
    hide_held: Annotated[
        bool, typer.Option("--hide-held", help="Also hide records of a topic that a hold names.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be hidden, and write nothing.")] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    *,
    which: _Which,
    schemas: RegistryOptions,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Hide records from all readers, in all incarnations of a topic, and note the request.

    The same command again searches the same request again, as long as it is open: below the END of each partition. Exit
    code 1: a copy could not be read, and can have more records.
    """
    output, problems = Output(as_json), list[str]()
    which.check(problems)
    keys, date = which.keys(problems), parse_time("--due", due, problems)
    _check_texts(name, reference, keys, problems)
    registry = schemas.open(problems)
    if problems or date is None:
        raise ConfigurationError(SOURCE, problems)
    from tsctl.erase.adding import Demand, check  # noqa: PLC0415  (pyarrow and kernels, only for this command)

    kafka = named_cluster(bootstrap_server, command_config)
    codecs = {} if which.where is None else _codecs(which, given, registry, output)
    with open_archive(given.name(), output.warn) as archive:
        found = _places(archive, which.topic, output)
        live = None
        if kafka is not None:
            from tsctl.erase.live_cluster import read_live_topic  # noqa: PLC0415  (as librdkafka)

            live = read_live_topic(kafka, which.topic, found, output.warn)
            found = found if live is None else _with_unshipped(archive, which.topic, found, live.with_records)
        criterion = _criterion(which, keys, codecs, found, archive.keys)
        ends = {} if live is None else live.ends
        demand = Demand(name, which.topic, reference, date, criterion, hide_held, ends, limit=batch_limit())
        try:
            check(archive.keys, found, demand, archive.stores)
        except OperatorError as error:
            if not dry_run or isinstance(error, QueryError):
                raise
            output.warn(str(error))
        is_unread = _preview(found, demand, output) if dry_run else _add(archive.keys, found, demand, output)
    if kafka is None:
        note = "what brokers have above END is not part of the request; --bootstrap-server includes it"
        output.note(note, beside_bar=True)
    if is_unread:
        raise typer.Exit(ExitCode.FOUND)


def _check_texts(name: str, reference: str, keys: frozenset[bytes], problems: list[str]) -> None:
    """Append a sentence for each mistake in what a request stores."""
    try:
        erasure_key(ClusterKeys(""), name)
        check_reason(reference)
    except ValueError as error:
        problems.append(str(error).replace("the reason", "--reference"))
    if not reference.strip() or len(reference) > _MOST_TEXT:
        problems.append(f"--reference: one line of up to {_MOST_TEXT:,} characters is expected")
    stored = f"{name}\n{reference}".encode()
    if any(len(key) >= _LEAST_KEY and key in stored for key in keys):
        problems.append("the id or --reference contains a key of --key-file: both are stored, so name no person there")


def _places(archive: OpenArchive, topic: str, output: Output) -> "list[Places]":
    """Return the places of a topic in all stores that have some.

    Raises:
        QueryError: none has.
    """
    from tsctl.erase.places import places_of  # noqa: PLC0415  (as above)

    found = [places_of(store, archive.keys, topic) for store in archive.stores]
    for url in sorted(frozenset[str]().union(*(each.elsewhere for each in found))):
        output.warn(f"{url} has older records of topic {topic}: repeat the command there, with the same id")
    if not any(each.places for each in found):
        known = archive.known_names()
        raise QueryError(
            f"topic {topic}: cluster {archive.keys.cluster} has no object of it{nearest(topic, known) or ''}"
        )
    return [each for each in found if each.places]


def _with_unshipped(
    archive: OpenArchive, topic: str, found: "Sequence[Places]", partitions: Collection[int]
) -> "list[Places]":
    """Return the places of a topic, also those of partitions that only brokers have."""
    from tsctl.erase.places import places_of  # noqa: PLC0415  (as above)

    home = archive.store_of(topic)
    with_all = places_of(home, archive.keys, topic, partitions)
    return [with_all if each.store.location == home.location else each for each in found]


def _codecs(
    which: _Which, given: ArchiveOptions, registry: Any, output: Output
) -> "Mapping[Part, Mapping[str, Codec]]":
    """Open the codecs of `--where`."""
    from ts_reader.schemas.contract import Part  # noqa: PLC0415  (as above)

    texts = {Part.KEY: which.key_codec, Part.VALUE: which.value_codec}
    if not any(texts.values()):
        return {}
    archive = given.reader(warn=lambda warning: output.warn(str(warning)), registry=registry)
    return {
        part: {which.topic: archive.codec(which.topic, part, text)} for part, text in texts.items() if text is not None
    }


def _criterion(
    which: _Which,
    keys: frozenset[bytes],
    codecs: "Mapping[Part, Mapping[str, Codec]]",
    found: "Sequence[Places]",
    cluster: ClusterKeys,
) -> "Criterion":
    """Return what finds the records.

    Raises:
        ConfigurationError: the file of offsets is wrong.
        QueryError: the condition is wrong, or the archive lacks a partition of the file.
    """
    from tsctl.erase.criteria import AtOffsets, WithKeys  # noqa: PLC0415  (as above)
    from tsctl.erase.places import former_of  # noqa: PLC0415  (as above)

    if which.where is not None:
        from tsctl.erase.condition import WhereTrue  # noqa: PLC0415  (DuckDB)

        return WhereTrue(which.where, codecs)
    if which.offsets is None:
        return WithKeys(keys)
    problems = list[str]()
    offsets = read_offsets(which.offsets, which.topic, problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    prefixes = {place.keys.prefix for each in found for place in each.places}
    by_prefix: dict[str, Mapping[int, int | None]] = {}
    for store in (each.store for each in found):
        incarnations, _ = read_incarnations(store, cluster, which.topic)
        directory = directory_of(incarnations, parse_incarnation(which.incarnation))
        restored = dict[str, Restored | None]()
        for number, named in offsets.items():
            place = cluster.partition(TopicPartition(which.topic, number), directory)
            by_prefix[place.prefix] = named
            for former, end in former_of(store, place, restored, {}):
                by_prefix[former.prefix] = {offset: epoch for offset, epoch in named.items() if offset < end}
            if place.prefix not in prefixes:
                problems.append(place.prefix)
    if problems:
        missing = ", ".join(sorted({*problems})[:5])
        raise QueryError(f"--offsets={which.offsets}: the archive has no object below {missing}")
    return AtOffsets(by_prefix)


def _preview(found: "Sequence[Places]", demand: "Demand", output: Output) -> bool:
    """Write what a request would hide; return whether a copy could not be read."""
    from tsctl.erase.adding import preview  # noqa: PLC0415  (as above)

    rows: list[tuple[str, Place, Searched]] = []
    is_unread = False
    with output.progress("partitions", sum(len(each.places) for each in found)) as advance:
        for each in found:
            for place, searched in preview(each, demand, advance):
                for reason in searched.unread:
                    output.warn(reason)
                is_unread |= bool(searched.unread)
                rows.append((each.store.location, place, searched))
    if output.as_json:
        partitions = [found_fields(*row) for row in rows]
        output.document({"request": demand.name, "topic": demand.topic, "dry_run": True, "partitions": partitions})
    else:
        output.table(FOUND, [found_row(place, searched) for _, place, searched in rows])
    return is_unread


def _add(cluster: ClusterKeys, found: "Sequence[Places]", demand: "Demand", output: Output) -> bool:
    """Hide records and write what was done; return whether a copy could not be read."""
    from tsctl.erase.adding import add as add_request  # noqa: PLC0415  (as above)

    done = list[tuple[str, Progress]]()
    with output.progress("partitions", sum(len(each.places) for each in found)) as advance:
        for each in found:
            added = add_request(cluster, each, demand, output.warn, advance)
            done.append((each.store.location, progress_of(each.store, cluster, added)))
    if output.as_json:
        requests = [request_fields(location, progress, progress.time) for location, progress in done]
        output.document({"request": demand.name, "topic": demand.topic, "dry_run": False, "requests": requests})
    if any(progress.request.offsets for _, progress in done):
        output.note(_OBEYING, beside_bar=True)
    for location, progress in done:
        request = progress.request
        output.text(f"{location}: {request.name}: {counted(request.offsets, 'record')} hidden from all readers")
        if not output.as_json:
            output.table(NOTED, noted_rows(request))
        if request.unread:
            unread = counted(request.unread, "place")
            output.text(
                f"{request.name} is open: {unread} could not be searched; act on each warning, then repeat this command"
            )
        elif progress.state is ErasureState.OPEN:
            output.text(f"{request.name} is open: repeat this command once NEXT OFFSET has reached each END")
        elif progress.state is ErasureState.HIDDEN:
            output.text(f"{request.name} is hidden, and its bytes are stored: start tsctl erase run each night")
    return any(progress.request.unread for _, progress in done)


@erase.command("status")
@with_groups
def status(*, given: ArchiveOptions, as_json: JsonOption = False) -> None:
    """List requests: open (not all is searched), hidden, or erased; and what is stored, why, and until when.

    Exit code 1: one is late, because bytes are stored still.
    """
    output, rows = Output(as_json), list[tuple[str, Progress, int]]()
    with open_archive(given.name(), output.warn) as archive:
        archive.names()
        for store in archive.stores:
            now = int(store.current_time() * _MILLISECONDS)
            rows += [(store.location, each, now) for each in read_progress(store, archive.keys)]
    if as_json:
        output.document({"cluster": archive.keys.cluster, "requests": [request_fields(*row) for row in rows]})
    elif rows:
        output.table(REQUESTS, [request_row(*row) for row in rows])
        if remaining := [row for _, each, _ in rows for row in remaining_rows(each.request.name, each.remains)]:
            output.table(REMAINING, remaining)
    else:
        output.text("no requests")
    if any(progress.is_late(now) for _, progress, now in rows):
        raise typer.Exit(ExitCode.FOUND)


@erase.command("check")
@with_groups
def check(
    topic: Annotated[
        str | None, typer.Option("--topic", help="Also check a topic: the agents of its partitions, holds, marks.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Check what must be upgraded first, and what the running cluster has. Exit code 2: nothing can be erased yet."""
    output = Output(as_json)
    kafka = named_cluster(bootstrap_server, command_config)
    if kafka is not None and topic is None:
        raise ConfigurationError(SOURCE, ["--bootstrap-server requires --topic"])
    from tsctl.erase.checks import checks_of  # noqa: PLC0415  (as above)

    live, live_rows = None, list[list[Cell]]()
    with open_archive(given.name(), output.warn) as archive:
        archive.names()
        found = [] if topic is None else _places(archive, topic, output)
        checks = checks_of(archive.stores, archive.keys, topic, found)
        if kafka is not None and topic is not None:
            from tsctl.erase.live_cluster import archived, read_live_topic  # noqa: PLC0415  (as above)

            live = read_live_topic(kafka, topic, found, output.warn)
            live_rows = [] if live is None else live.rows(archived(found))
    if as_json:
        cluster = None if live is None else live.fields(live_rows)
        output.document({"checks": [each.fields() for each in checks], "cluster": cluster})
    else:
        output.table(_CHECKS, [[*each.fields().values()] for each in checks])
        if live is not None:
            output.text(live.sentence())
            output.table(live.COLUMNS, live_rows)
        output.text(f"{_READERS}\n{_BROKERS}")
    if any(each.is_error for each in checks):
        raise typer.Exit(ExitCode.REFUSED)


erase.command("run")(with_groups(erase_run.run))
erase.command("versions")(with_groups(erase_versions.versions))
