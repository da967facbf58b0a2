"""`tsctl prove`: a folder that proves a range of a topic on a host without this project."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ts_common.archive.erased_offsets import NOTHING_ERASED, ErasedOffsets
from ts_common.archive.view import open_view
from ts_common.errors import ConfigurationError, CorruptData, OperatorError, QueryError
from ts_common.json_objects import MAX_INT64
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.option_groups import with_groups
from ts_common.wording import counted, some
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.frozen import check_thawed
from ts_reader.query.plan_partition import plan_partition
from ts_reader.reading.incarnation_option import NEWEST
from tsctl.archive_options import (
    ArchiveOptions,
    JsonOption,
    PartitionsOption,
    PublicKeysOption,
    open_archive,
    parse_partitions,
)
from tsctl.commands.get import range_query
from tsctl.durable_files import disk_errors
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, size
from tsctl.scan_options import FromOption, IncarnationOption, MaxBatchBytesOption, ToOption, batch_limit, parse_bounds
from tsctl.seal.leaves import Leaf
from tsctl.seal.proving import Wanted, find_proof, write_folder
from tsctl.seal.signing import read_accepted


@with_groups
def prove(
    directory: Annotated[Path, typer.Argument(help="The folder to write; it must not exist.")],
    topic: Annotated[str, typer.Option("--topic", help="Name of the topic.")],
    public_keys: PublicKeysOption = None,
    partition: PartitionsOption = None,
    start: FromOption = None,
    end: ToOption = None,
    incarnation: IncarnationOption = NEWEST,
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES,  # noqa: ARG001  (its callback keeps it)
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Write the sealed segments of a range, what proves them, and a verifier that needs only Python and openssl.

    Nothing is written while one of them has records that tsctl erase has hidden.

    Exit code 1: some segments of the range are in no seal yet, or offsets are missing.
    """
    problems: list[str] = []
    output, asked = Output(as_json), parse_bounds(start, end, problems, offsets=True)
    if not public_keys:
        problems.append("--public-key is missing: which seals count?")
    if directory.exists():
        problems.append(f"{directory} exists, and is not overwritten; choose another directory")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    name, accepted = given.name(), read_accepted(public_keys or ())
    query, wanted, is_whole = range_query(name, topic, asked), list[Wanted](), True
    erased = dict[str, ErasedOffsets]()
    with open_archive(name, output.warn) as archive:
        held = archive.topics([topic], parse_partitions(partition), incarnation)
        if len({entry.topic.name for entry in held}) != 1:
            raise QueryError(f"--topic {topic}: one topic is expected, and {some(e.topic.name for e in held)} match")
        (entry,) = held
        for catalog in entry.topic.partitions:
            view = open_view(entry.store, catalog)
            for place in (catalog, *(former.catalog for former in catalog.former)):
                erased[place.keys.prefix] = place.read_erased(entry.store)
            plan = plan_partition(entry.store, view, query)
            check_thawed(entry.store, plan.read.ranges, incarnation)
            for loss in plan.losses:
                is_whole = False
                output.warn(f"{view.partition}: {loss.text}")
            keys = frozenset(copy.key for part in plan.read.ranges for copy in part.copies)
            lowest = min((plan.bounds.start, *(loss.start for loss in plan.losses)))
            wanted.append(Wanted(view.keys, plan.bounds.start, plan.bounds.end, lowest, keys))
        proof = find_proof(entry.store, archive.keys, wanted, accepted)
        if proof.lacking:
            is_whole = False
            output.warn(f"in no seal yet: {some(proof.lacking)}; the folder does not have them")
        if not proof.files:
            raise OperatorError(f"{topic}: no seal has a segment of this range; nothing was written: tsctl seal run")
        total = sum(each.leaf.size or 0 for each in proof.files)
        with disk_errors(), output.progress("bytes", total, in_bytes=True) as advance:
            check = partial(_check_none_erased, erased)
            write_folder(entry.store, archive.keys, topic, wanted, proof, directory, advance, check)
    if as_json:
        fields = {"directory": str(directory), "files": len(proof.files), "bytes": total, "seals": len(proof.seals)}
        output.document({"cluster": archive.keys.cluster, **fields, "in_no_seal": proof.lacking})
    else:
        output.text(f"{directory}: {counted(len(proof.files), 'file')} of {size(total)}, {len(proof.seals)} heads")
        output.text(f"verify it: python3 -I -S {directory / 'verify.py'} --public-key FILE")
    if not is_whole:
        raise typer.Exit(ExitCode.FOUND)


def _check_none_erased(erased: Mapping[str, ErasedOffsets], leaf: Leaf, path: Path) -> None:
    """Check that the file of a segment has no record that is hidden: it is a copy of the whole object.

    Args:
        erased: by the prefix of a directory.

    Raises:
        OperatorError: it has some, or is too damaged to show that it has none.
    """
    offsets = erased.get(f"{leaf.key.rpartition('/')[0]}/", NOTHING_ERASED)
    if not offsets.meets(leaf.base or 0, MAX_INT64):
        return
    from tsctl.erase.rewriting import count_hidden  # noqa: PLC0415  (pyarrow, only for a topic with erased records)

    try:
        with path.open("rb", buffering=0) as file:
            count = count_hidden(file, offsets, batch_limit())
        what = f"contains {counted(count, 'erased record')}"
    except CorruptData as error:
        count, what = None, f"can contain erased records, because it is damaged ({error})"
    if count != 0:
        raise OperatorError(
            f"{leaf.key} {what}; its file would have their records. Narrow --from and --to, or wait for `tsctl erase "
            "run`, then `tsctl seal run`"
        )
