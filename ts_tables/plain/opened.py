"""A table of plain files as a plan found it: its claims and files, and how a commit arranges new ones."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ts_common.archive.erased_offsets import ErasedOffsets
from ts_common.model import TopicPartition
from ts_tables.claims.state import TableState
from ts_tables.files.layout import RECORD_FORMATS, Layout
from ts_tables.files.partitioning import Key
from ts_tables.files.reading import TableFile
from ts_tables.files.record_files import FileRecords
from ts_tables.plain.entries import Contents, PlainFile, file_of
from ts_tables.plain.holding import Holding, sort_out
from ts_tables.plain.ledger import staging_of
from ts_tables.plain.staging import Place, StagedFiles, StoredFile
from ts_tables.planning.plan import TakenBack
from ts_tables.planning.work import Covered, joined
from ts_tables.targets import Arranged
from ts_tables.tasks import NewFiles


@dataclass
class OpenedFiles:
    """A table as a plan found it.

    Attributes:
        holding: when files are shown.
        missing: paths of files that the store does not have.
        arranged: files of this plan by path.
    """

    contents: Contents
    layout: Layout
    place: Place
    holding: Holding
    missing: frozenset[str] = frozenset()
    arranged: dict[str, PlainFile] = field(default_factory=dict, repr=False)

    @property
    def state(self) -> TableState:
        """The claims of the table."""
        return self.contents.state

    @property
    def snapshot(self) -> str:
        """The number of the last entry."""
        return str(self.contents.number)

    @property
    def is_due(self) -> bool:
        """Whether a held file has waited long enough."""
        sorted_out = sort_out(self.contents.held, (), self.holding, time.time())
        return bool(sorted_out.shown or sorted_out.merges)

    def files(self, plan: str, number: int, covered: Sequence[Covered]) -> NewFiles:
        """Return what opens and describes the files of one part of a plan."""
        prefix = staging_of(self.contents.generation, self.contents.number, plan)
        return StagedFiles(self.place, prefix, number, joined(covered))

    def begin(self, plan: str) -> None:
        """Do nothing: the name of a plan's staging contains where it began."""

    def extended(self, schema: pa.Schema) -> "OpenedFiles":
        """Return the table with further columns: its former files stay without them."""
        return replace(self, layout=self.layout.extended(schema))

    def all_files(self) -> list[TableFile]:
        """Return each file of the table, those that are held too; but not those that the store does not have."""
        return [self._readable(each, None) for each in self._files if each.path not in self.missing]

    def files_with(self, taken_back: TakenBack) -> list[TableFile]:
        """Return each file that can have rows of an entry."""
        return [
            self._readable(each, each.crc32c)
            for each in self._files
            if any(
                (one.partition, one.topic_id) == (taken_back.partition, taken_back.topic_id)
                and one.start < taken_back.end
                and one.end > taken_back.start
                for one in each.covers
            )
        ]

    def files_meeting(self, partition: TopicPartition, topic_id: str | None, offsets: ErasedOffsets) -> list[TableFile]:
        """Return each file that can have rows of a partition at some offsets."""
        return [
            self._readable(each, each.crc32c)
            for each in self._files
            if any(
                (one.partition, one.topic_id) == (partition, topic_id) and offsets.meets(one.start, one.end)
                for one in each.covers
            )
        ]

    def partition_keys(self) -> Collection[Key]:
        """Return the partition keys of the files that readers see."""
        return {each.key for each in self.contents.files}

    def held(self) -> Sequence[Mapping[str, Any]]:
        """Return the files that are held, as they were described."""
        return [each.fields() for each in self.contents.held]

    def covered(self, file: TableFile) -> Sequence[Covered]:
        """Return offsets that contain those of a file's rows, without repetition."""
        known = self.arranged.get(file.path) or next(each for each in self._files if each.path == file.path)
        return known.covers

    def arrange(self, files: Sequence[Mapping[str, Any]], replaced: Sequence[str]) -> Arranged:
        """Return which files are shown, held and merged."""
        removed = {*replaced}
        held = [each for each in self.contents.held if each.path not in removed]
        holding = self.holding
        if removed & {each.path for each in self.contents.files}:
            holding = replace(holding, max_age=0)  # else rows that readers see would be held again
        since: dict[Key, int] = {}  # rows that were held stay as old as they were
        for each in self.contents.held:
            if each.path in removed:
                since[each.key] = min(each.since, since.get(each.key, each.since))
        new = (replace(each, since=since.get(each.key, 0)) for each in map(file_of, files))
        found = sort_out(held, new, holding, time.time())
        self.arranged |= {each.path: each for some in found.merges for each in some}
        return Arranged(
            shown=[each.fields() for each in found.shown],
            held=[each.fields() for each in found.held],
            merges=[[self._readable(each, each.crc32c) for each in some] for some in found.merges],
        )

    @property
    def _files(self) -> tuple[PlainFile, ...]:
        return (*self.contents.files, *self.contents.held)

    def _readable(self, file: PlainFile, crc32c: int | None) -> TableFile:
        opener = StoredFile(self.place, file.path, crc32c)
        form, key, records = self.layout.format, None, None
        if form in RECORD_FORMATS:
            key, records = file.key, FileRecords(*file.source, file.runs, self.layout.delimiter)
        return TableFile(file.path, opener, form, self.layout.compression, True, key, records)
