"""Deletes the rows of given keys or offsets from a table, and from that of its refused records, and notes them.

The commit that deletes rows has their offsets and digests in its state, so that `verify` subtracts them, and a record
that is read again after an election stays deleted. The archive still has the records, and so have older snapshots.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Final

from ts_common.errors import OperatorError
from ts_common.model import TopicPartition
from ts_tables.changes import arranged, without_rows
from ts_tables.claims.state import Forgotten, PartitionClaims, TableState
from ts_tables.files.layout import KEYLESS_FORMATS
from ts_tables.parsers.changes import KEY
from ts_tables.parsers.contract import Parser
from ts_tables.parsing import Parsing, Plans
from ts_tables.planning.plan import TakenBack
from ts_tables.record_search import Record, RecordSearch, in_archive, in_files
from ts_tables.targets import OpenedTable, Target
from ts_tables.tasks import Engine

MOST_RECORDS: Final = 100_000  # that a table's state notes


Offsets = tuple[str, int, int, int]  # topic, partition, first offset, and the offset after the last


@dataclass(frozen=True, slots=True)
class ForgetSummary:
    """What was deleted.

    Attributes:
        records: whose rows were deleted.
        notes: sentences about keys and offsets that no record has.
    """

    records: int
    notes: tuple[str, ...] = ()


def forget(
    target: Target, plans: Plans, engine: Engine, wanted: RecordSearch, parsing: Parsing | None
) -> ForgetSummary:
    """Delete rows, and return the number of records that they are of.

    Args:
        plans: returns what it claims.
        parsing: of the records; None of a raw table.

    Raises:
        OperatorError: the records are too many, or at offsets of two leaders, or a run of the table did not end; or the
            table has no record of a topic or a partition.
        HeadMoved and others: as `ts_tables.run.run_once`.
    """
    opened: OpenedTable = target.open()
    outside = [sentence for each in wanted.ranges if (sentence := _outside(opened.state, each)) is not None]
    if parsing is None:
        records = _raw_records(opened, plans, engine, wanted)
        return ForgetSummary(_forget(target, opened, records, engine), (*outside, *_unknown(wanted, records)))
    refused: OpenedTable = parsing.refused.open()
    if refused.state.claims != opened.state.claims or refused.state.replays != opened.state.replays:
        raise OperatorError("the last run of the table did not end: run it, and repeat the command")
    if parsing.newest_only and wanted.ranges:
        raise OperatorError(
            "a table of mode: latest has the newest record of each key; without it, a former one would be the newest: "
            "delete the key by --key"
        )
    parser = parsing.at(opened.state).parser
    found = _parsed_records(opened, plans, engine, wanted, parser, newest_only=parsing.newest_only)
    in_refused = in_files(refused, "key", wanted, engine, parser.key_codec)
    noted = refused.state.forgotten_with(None)
    others = {*in_refused}
    done = _forget(target, opened, [each for each in found if each not in others and not _is_in(each, noted)], engine)
    done += _forget(parsing.refused, refused, in_refused, engine)
    return ForgetSummary(done, (*outside, *_unknown(wanted, [*found, *in_refused])))


def _raw_records(opened: OpenedTable, plans: Plans, engine: Engine, wanted: RecordSearch) -> list[Record]:
    """Return the records of a raw table that are deleted."""
    has_keys = opened.layout.format not in KEYLESS_FORMATS
    records = in_files(opened, "key" if has_keys else None, wanted, engine, None)
    if wanted.has_keys and not has_keys:
        records += in_archive(opened, plans, wanted, None, engine)
    return records


def _parsed_records(
    opened: OpenedTable, plans: Plans, engine: Engine, wanted: RecordSearch, parser: Parser, *, newest_only: bool
) -> list[Record]:
    """Return the records of a parsed table that are deleted."""
    if KEY in parser.columns.names:
        found = in_files(opened, KEY, wanted, engine, parser.key_codec)
        if newest_only and wanted.has_keys:  # former records of a key must not be read again after an election
            found += in_archive(opened, plans, wanted, parser, engine)
        return found
    found = in_files(opened, None, wanted, engine, None)
    if wanted.has_keys:
        found += in_archive(opened, plans, wanted, None, engine)
    return found


def _outside(state: TableState, asked: TakenBack) -> str | None:
    """Return a sentence if a table has not claimed a range of offsets.

    Raises:
        OperatorError: it has no record of the topic or the partition.
    """
    topic, number = asked.partition.topic, asked.partition.partition
    known = [incarnation.partitions for incarnation in state.topics.get(topic, ())]
    if not known:
        topics = f"it has records of {', '.join(sorted(state.topics))}" if state.topics else "it has no record yet"
        raise OperatorError(f"the table has no record of topic {topic}; {topics}")
    claims = [partitions[number] for partitions in known if number in partitions]
    if not claims:
        numbers = sorted({partition for partitions in known for partition in partitions})
        raise OperatorError(
            f"the table has no record of partition {number} of topic {topic}; it has records of "
            f"{', '.join(map(str, numbers))}"
        )
    claimed = sorted(
        chain.from_iterable((*each.claims, *((one.start, one.end) for one in each.kept)) for each in claims)
    )
    if any(start < asked.end and asked.start < end for start, end in claimed):
        return None
    shown = ", ".join(f"{start} to {end - 1}" for start, end in claimed) or "no offset"
    return (
        f"{topic}-{number}: offsets {asked.start} to {asked.end - 1} are outside of the claims of the table, "
        f"which has {shown}"
    )


def _unknown(wanted: RecordSearch, records: Sequence[Record]) -> list[str]:
    """Return a sentence if no record has one of the keys."""
    if records or not wanted.has_keys:
        return []
    keys = [*sorted(wanted.texts), *(f"base64:{base64.b64encode(each).decode()}" for each in sorted(wanted.raw))]
    if len(keys) == 1:
        return [f"no record has the key {keys[0]}"]
    return [f"no record has {'the key' if len(keys) == 1 else f'one of the {len(keys):,} keys'}"]


def _forget(target: Target, opened: OpenedTable, records: Iterable[Record], engine: Engine) -> int:
    """Delete the rows of records from one table, and note the records; return their number."""
    state, new = _noted(opened.state, sorted({*records}, key=_order))
    if not new:
        return 0
    with target.change(opened) as change:
        affected, results = without_rows(change, list(_entries(new)), engine)
        files = [each for result in results for each in result.files]
        change.commit(state, arranged(change, files, [file.path for file, _ in affected], engine))
    return len(new)


def _noted(state: TableState, records: Sequence[Record]) -> tuple[TableState, list[Record]]:
    """Return a state that notes records, and those that it did not note before.

    Raises:
        OperatorError: as `forget`.
    """
    new: list[Record] = []
    for (topic, topic_id, number), some in groupby(records, lambda each: (each.topic, each.topic_id, each.partition)):
        incarnations = (one for one in state.topics.get(topic, ()) if one.topic_id == topic_id)
        incarnation = next((one for one in incarnations if number in one.partitions), None)
        if incarnation is None:
            continue
        known = incarnation.partitions[number]
        before = {*known.forgotten}
        left = [each for each in some if (each.offset, each.digest) not in before]
        _check_kept(known, left, f"{topic}-{number}")
        new += left
        changed = replace(known, forgotten=tuple(sorted({*before, *((each.offset, each.digest) for each in left)})))
        partitions = {**incarnation.partitions, number: changed}
        state = state.with_incarnation(topic, replace(incarnation, partitions=partitions))
    total = sum(
        len(one.forgotten) for each in state.topics.values() for inner in each for one in inner.partitions.values()
    )
    if total > MOST_RECORDS:
        raise OperatorError(f"{total:,} records would be noted in the table, at most {MOST_RECORDS:,} can be")
    return state, new


def _check_kept(known: PartitionClaims, records: Iterable[Record], where: str) -> None:
    """Check that no record is at offsets whose rows of an earlier leader stay.

    Raises:
        OperatorError: one is.
    """
    for each in records:
        if any(kept.start <= each.offset < kept.end for kept in known.kept):
            raise OperatorError(
                f"{where}: the table has records of two leaders at offset {each.offset}; they cannot be deleted one by "
                "one"
            )


def _is_in(record: Record, noted: Forgotten) -> bool:
    """Return whether a state notes a record."""
    partition = TopicPartition(record.topic, record.partition)
    by_offset = noted.get((partition, record.topic_id), {})
    return bytes.fromhex(record.digest) in by_offset.get(record.offset, ())


def _order(record: Record) -> tuple[str, str, int, int, str]:
    return record.topic, record.topic_id or "", record.partition, record.offset, record.digest


def _entries(records: Sequence[Record]) -> Iterator[TakenBack]:
    """Yield the offsets of records, consecutive ones together."""
    last: TakenBack | None = None
    for each in records:
        partition = TopicPartition(each.topic, each.partition)
        if last and (last.partition, last.topic_id, last.end) == (partition, each.topic_id, each.offset):
            last = replace(last, end=each.offset + 1)
            continue
        if last:
            yield last
        last = TakenBack(partition, "", each.topic_id, each.offset, each.offset + 1)
    if last:
        yield last
