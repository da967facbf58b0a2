"""The promises of the protocol, checked whenever a put of an agent lands.

The model has the log that the leader of each epoch wrote. A commit of an epoch must show exactly that log, from the
start of the archive to below the next offset. This also holds between two elections that lose records, while the old
commit still exists. An offset may be missing only if no copy in the store has its record. In addition, a gap record
must cover it, or the log cleaner removed it from the log that a copy of it was shipped from.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tests.histories.agents import CLUSTER, TP, Work
from tests.histories.cluster import Cluster, Topic
from tests.histories.faults import Put
from tests.histories.records import Batch, Held, Kind, transactions
from tests.histories.replica import Replica
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, Lineage, decode_commit, decode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gap_records import parse_gap_name
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.archive.view import open_view
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_reader.reading.transactions import find_hidden, stable_end
from ts_uploader.messages.tasks import FillGap, PassGap, ReadPosition, Ship, ShipDeleted, Task, WriteCommit
from ts_uploader.tracking.task_selection import CHECKPOINT_SECONDS


@dataclass(frozen=True)
class Copy:
    """A `.log` object in the model: its batches, the end of its coverage, and the log that it was shipped from."""

    base: int
    end: int
    content: dict[int, Batch]
    replica: Replica


@dataclass
class Archive:
    """The model's state of one incarnation.

    Attributes:
        topic: of the incarnation.
        keys: of its objects.
        start: `log.start` may not be above this offset.
        lineage: of the newest commit.
        log_start_lineage: the lineage of `log.start`, in a tuple; empty if it does not exist.
        log_start_offset: its offset.
        furthest: (epoch, next offset) of the newest commit.
        commits: (epoch, epochs) of the commits.
        known: by epoch, the broker's log while the agent prepared a commit: it decides before it writes.
        copies: the `.log` objects.
    """

    topic: Topic
    keys: PartitionKeys
    start: int | None = None
    lineage: Lineage | None = None
    log_start_lineage: tuple[Lineage | None, ...] = ()
    log_start_offset: int = 0
    furthest: tuple[int, int] = (-1, -1)
    commits: list[tuple[int, EpochHistory]] = field(default_factory=list)
    known: dict[int, set[tuple[int, tuple[tuple[int, int], ...]]]] = field(default_factory=dict)
    copies: dict[str, Copy] = field(default_factory=dict)


Row = tuple[int, Batch]
Known = Collection[tuple[int, tuple[tuple[int, int], ...]]]  # log start offset, and the list of epochs


class Checks:
    """All checks of a history.

    Args:
        cluster: the model.
        store: its content, without faults.
        reset: where an archive begins.
    """

    def __init__(self, cluster: Cluster, store: ObjectStore, reset: OffsetReset) -> None:
        self._cluster = cluster
        self._store = store
        self._reset = reset
        self.archives: dict[str, Archive] = {}

    def landed(self, put: Put, *, late: bool = False) -> None:
        """Check an object that was written."""
        directory, _, name = put.key.removeprefix("c/").partition("/")
        if name == "incarnations.json":
            self._open_archives()
            return
        archive = self.archives[directory]
        work: Work = put.by
        if name.startswith("gaps/"):
            if not late:
                self._gap(archive, name.removeprefix("gaps/"), work)
        elif name == "offset.wm":
            self._commit(archive, put, work)
        elif name == "log.start":
            self._log_start(archive, put, work)
        elif (segment := SegmentName.parse(name)) is not None and segment[1] == ".log":
            self._log(archive, put, segment[0], work)

    def archive(self, topic: Topic) -> Archive | None:
        """Return the archive of a topic id; None if no agent has opened one."""
        return next((each for each in self.archives.values() if each.topic is topic), None)

    def commit(self, archive: Archive) -> Commit | None:
        """Return the newest archive."""
        found = read_catalog(self._store, archive.keys).commit
        assert found is None or isinstance(found, Commit)
        return found

    # --- when an object landed

    def _open_archives(self) -> None:
        known, _ = read_incarnations(self._store, CLUSTER, TP.topic)
        topics = {topic.topic_id: topic for topic in self._cluster.topics}
        for entry in known.entries:
            partition = TopicPartition(entry.directory, TP.partition)
            if str(partition) not in self.archives:
                keys = CLUSTER.partition(TP, entry.directory)
                self.archives[str(partition)] = Archive(topics[entry.topic_id], keys)

    def _log(self, archive: Archive, put: Put, name: SegmentName, work: Work) -> None:
        task = work.task
        assert isinstance(task, Task)
        metadata = decode_metadata(put.metadata, put.key)
        assert metadata is not None
        assert isinstance(put.condition, IfAbsent), f"{put.key} was put without a condition (protocol rule 6)"
        assert work.topic is archive.topic, f"{put.key} is of another topic id (protocol rule 1)"
        for suffix in (".index", ".timeindex"):
            beside = put.key.removesuffix(".log") + suffix
            assert any(info.key == beside for info in self._store.list(beside)), (
                f"{put.key}: no {suffix} (protocol rule 3)"
            )
        committed = self._committed_since(archive, task.leadership.epoch)
        assert metadata.end <= committed, f"{put.key} ends at {metadata.end} above {committed} (protocol rule 1)"
        whole = tuple(archive.topic.codec.decode(put.body))
        closed = whole in archive.topic.codec.closed or self._is_cut(work, name.base, whole)
        assert closed, f"{put.key} is no closed segment of any log (protocol rule 1)"
        content = {offset: held.batch for held in whole for offset in held.kept}
        assert metadata.records in {None, len(content)}, f"{put.key}: {metadata.records} is not its number of records"
        lacking = [offset for offset in range(name.base, metadata.end) if offset not in content]
        untrue = [offset for offset in lacking if offset not in work.replica.cleaned]
        assert not untrue, f"{put.key} ends at {metadata.end}, and not by compaction lacks {untrue} (protocol rule 2)"
        if isinstance(task, Ship) and task.hangs is not None and self._leads(archive, task, work):
            line = self._cluster.line_of(archive.topic, task.leadership.epoch)
            dead = [offset for offset, batch in content.items() if line[offset] is not batch]
            assert not dead, f"{put.key} is a .deleted file of another line: {dead} (protocol rule 10)"
        if name.epoch is not None:
            assert name.epoch == task.leadership.epoch, (
                f"{put.key} is of epoch {task.leadership.epoch} (protocol rule 6)"
            )
        elif isinstance(task, Ship):
            lineage = task.variants_below
            assert name.base >= lineage, f"{put.key} is a plain name below the lineage's {lineage} (protocol rule 5)"
        archive.copies[put.key] = Copy(name.base, metadata.end, content, work.replica)

    def _is_cut(self, work: Work, base: int, whole: tuple[Held, ...]) -> bool:
        """Whether an object is the beginning of a segment of a deleted topic (protocol rule 14)."""
        return isinstance(work.task, ShipDeleted) and work.replica.segments.get(base, [])[: len(whole)] == list(whole)

    def _leads(self, archive: Archive, task: Task, work: Work) -> bool:
        """Whether the broker of a task still leads, as the task assumes."""
        cluster = self._cluster
        return (
            archive.topic is cluster.topic
            and task.leadership.epoch == cluster.epoch
            and work.replica is cluster.leading
        )

    def _gap(self, archive: Archive, name: str, work: Work) -> None:
        parsed = parse_gap_name(name)
        assert parsed is not None
        if isinstance(work.task, ReadPosition | FillGap):
            return  # a commit that a Java uploader replaced, or one of another leader
        if isinstance(work.task, ShipDeleted):
            known = work.task.high_watermark or 0
            held = sorted(each for each in work.replica.offsets() & set(range(*parsed)) if each < known)
            assert not held or not work.replica.path.exists(), f"gap {parsed} over {held} (protocol rule 14)"
            return
        assert isinstance(work.task, PassGap)
        if not self._leads(archive, work.task, work):
            return  # it no longer leads; the commit that follows is rejected
        held = sorted(work.replica.offsets() & set(range(*parsed)))
        assert not held, f"gap {parsed} over what the leader holds: {held} (protocol rule 10)"
        since = [at for at, lowest in work.agent.listed if lowest > parsed[0]]
        apart = max(since, default=0) - min(since, default=0)
        assert apart >= CHECKPOINT_SECONDS * 1e9, f"gap {parsed} after one listing (protocol rule 10)"

    def _log_start(self, archive: Archive, put: Put, work: Work) -> None:
        start = decode_log_start(put.body, put.key)
        assert work.topic is archive.topic, f"{put.key} is of another topic id (protocol rule 1)"
        if archive.start is None:
            # LATEST: the active segment as it was listed; the log may have rolled since.
            lowest = work.replica.active if self._reset is OffsetReset.LATEST else max(work.starts)
            assert start.offset <= lowest, f"log.start {start.offset} above the log's {lowest} (protocol rule 8)"
            archive.start = start.offset
        if archive.log_start_lineage and archive.log_start_lineage != (start.lineage,) and start.lineage is not None:
            # Retention may have removed more since the commit landed: use the lowest offset that the leader has now.
            archive.start = max(archive.start, min(archive.log_start_offset, max(start.lineage.begin, *work.starts)))
        same = archive.log_start_lineage == (start.lineage,) and start.offset != archive.start
        assert not same, f"log.start went to {start.offset} from {archive.start} within a lineage (protocol rule 5)"
        archive.log_start_lineage = (start.lineage,)
        assert start.offset <= archive.start, f"log.start {start.offset} above {archive.start} (protocol rule 5)"
        archive.start = archive.log_start_offset = start.offset
        if (commit := self.commit(archive)) is not None:
            self.check_view(archive, commit, work.known)

    def _commit(self, archive: Archive, put: Put, work: Work) -> None:
        commit = decode_commit(put.body, put.key)
        assert isinstance(commit, Commit)
        assert work.topic is archive.topic, f"{put.key} is of another topic id (protocol rule 1)"
        went = (commit.epoch, commit.next_offset)
        assert went >= archive.furthest, f"the commit went from {archive.furthest} back to {went} (protocol rule 7)"
        if commit.lineage != archive.lineage:
            assert commit.lineage is not None, "the commit lost its lineage (protocol rule 5)"
            newer = archive.lineage is None or commit.lineage.epoch > archive.lineage.epoch
            assert newer, "lineages fall (protocol rule 5)"
            assert archive.start is not None, "a commit before log.start (protocol rule 8)"
            archive.start = min(archive.start, max(commit.lineage.begin, *work.starts))
            archive.lineage = commit.lineage
        elif archive.furthest[1] < commit.next_offset:
            start = read_catalog(self._store, archive.keys).stored_log_start
            assert start is not None
            theirs = start.content.lineage
            assert theirs == commit.lineage, f"the commit moves on, and log.start is of {theirs} (protocol rule 5)"
        later = [pair for pair in commit.epochs if pair[0] > commit.epoch]
        assert not later, f"a commit of epoch {commit.epoch} names {later} (protocol rule 7)"
        if archive.furthest == (-1, -1) and commit.lineage is None and self._reset is OffsetReset.EARLIEST:
            lowest = work.agent.asked.get(commit.epoch, max(work.starts))
            assert archive.start is None or archive.start <= lowest, (
                f"the first commit leaves log.start at {archive.start}, and the log began at {lowest} (protocol rule 5)"
            )
        reached, archive.furthest = archive.furthest[1], went
        archive.commits.append((commit.epoch, commit.epochs))
        led = archive.topic.codec.magic < 2 or commit.epoch in work.epochs or isinstance(work.task, WriteCommit)
        assert led, f"a commit of epoch {commit.epoch}, the broker's checkpoint has {work.epochs} (protocol rule 1)"
        committed = self._committed_since(archive, commit.epoch)
        # With LATEST an archive begins with the active segment, wherever the high watermark is, and shows nothing.
        begins = not archive.copies and commit.lineage is not None and commit.lineage.begin == commit.next_offset
        begins |= not commit.has_run
        # A deleted topic's log is final: the commit passes what is above its high watermark. An agent that fills a gap
        # leaves the commit where another agent's longer log had it (protocol rule 14).
        passes = isinstance(work.task, ShipDeleted) and commit.next_offset <= max(work.replica.end, reached)
        assert begins or passes or commit.next_offset <= committed, (
            f"next {commit.next_offset} above what is committed, {committed}"
        )
        if commit.live is not None:
            self._live(archive, commit, work)
        self.check_view(archive, commit, work.known)

    def _live(self, archive: Archive, commit: Commit, work: Work) -> None:
        """Check the epochs from the next offset on, which decide what readers see of a live tail (tail rule 4).

        A follower learns of an epoch with the first batch that compaction left.
        """
        assert commit.live is not None
        line = self._cluster.line_of(archive.topic, commit.epoch)
        ahead = commit.live.ahead
        named = commit.epochs.continued(ahead, commit.next_offset)
        wrong = [
            (offset, batch.epoch, named.at(offset))
            for offset, batch in enumerate(line[commit.next_offset :], commit.next_offset)
            if named.at(offset) != batch.epoch and ahead.at(offset) is not None and offset not in work.replica.cleaned
        ]
        assert not wrong, f"{commit.live} for {wrong} of epoch {commit.epoch} (tail rule 4)"
        if ahead.at(commit.next_offset) is None:
            epochs = {batch.epoch for batch in line[commit.next_offset :]}
            assert {epoch for _, epoch in commit.live.former} <= epochs, f"{commit.live} of a log with {epochs}"

    def _committed_since(self, archive: Archive, epoch: int) -> int:
        """Return the end of the records that were committed in an epoch or in a later one.

        An agent that still works in a past epoch reads the high watermarks of its broker, which is now a follower.
        """
        last = max([*archive.topic.lines, self._cluster.epoch if archive.topic is self._cluster.topic else 0])
        return max(self._cluster.committed_in(archive.topic, each) for each in range(epoch, max(epoch, last) + 1))

    # --- the view

    def check_view(self, archive: Archive, commit: Commit, leader: Known) -> set[int]:
        """Check that every row is the leader's, and that every missing offset may be missing.

        Args:
            archive: to check.
            commit: the newest.
            leader: the log of that commit's broker while the agent prepared it.

        Returns:
            the offsets that a gap record covers.
        """
        # Old magic has no epochs: an agent of a past epoch can commit later records of the same log.
        is_living = archive.topic is self._cluster.topic
        last = self._cluster.epoch if is_living else max(archive.topic.lines)
        line = self._cluster.line_of(archive.topic, commit.epoch if archive.topic.codec.magic >= 2 else last)
        view = open_view(self._store, read_catalog(self._store, archive.keys))
        assert archive.start is not None
        assert view.start <= archive.start, f"rows from {archive.start} on are hidden: the view begins at {view.start}"
        leader = archive.known.setdefault(commit.epoch, set()) | set(leader)
        archive.known[commit.epoch] = leader
        shown: dict[int, Batch] = {}
        gaps: set[int] = set()
        expected = view.start
        for row in self._rows(archive, view):
            if isinstance(row, Hole):
                assert row.recorded, f"nothing answers for {row}"
                self._missing(archive, line, commit, leader, range(expected, row.start))
                expected = row.end
                gaps |= set(range(row.start, row.end))
                continue
            offset, batch = row
            lives = line[offset] is batch or self._unknown(archive, line, commit, leader, offset, batch.epoch)
            assert lives, f"offset {offset} of epoch {batch.epoch} is shown, which is not the line's"
            self._missing(archive, line, commit, leader, range(expected, offset))
            expected = offset + 1
            shown[offset] = batch
        self._missing(archive, line, commit, leader, range(expected, view.end))
        # Batches that no reader could detect as dead can contain markers.
        if all(line[offset] is batch for offset, batch in shown.items()):
            self._read_committed(archive, view, line, shown)
        return gaps

    def _missing(self, archive: Archive, line: Sequence[Batch], commit: Commit, leader: Known, offsets: range) -> None:
        for offset in offsets:
            batch = line[offset]
            holders = [copy for copy in archive.copies.values() if copy.content.get(offset) is batch]
            cleaned = [
                copy
                for copy in archive.copies.values()
                if copy.base <= offset < copy.end and batch in copy.replica.cleaned.get(offset, ())
            ]
            # For a log that returned, the leader may have an epoch only from the batch that compaction left.
            dead = commit.epochs.at(offset) not in {None, batch.epoch}
            rightly = (cleaned and (not holders or dead)) or self._unknown(
                archive, line, commit, leader, offset, commit.epochs.at(offset) or 0
            )
            assert rightly, f"offset {offset} is not shown; {len(holders)} copies hold it"

    def _unknown(
        self, archive: Archive, line: Sequence[Batch], commit: Commit, leader: Known, offset: int, epoch: int
    ) -> bool:
        """Whether nothing could show the agent that an election lost this.

        Retention removes a broker's epochs too, and a follower has an epoch only from the first batch that compaction
        left. If the leader itself lacks the epochs that an election lost, only commits show the loss. They do not if
        their own content was lost in turn.
        """
        breaks = [each for each in archive.topic.breaks if each <= commit.epoch]
        if not breaks or archive.topic.codec.magic < 2:
            return False
        named = {epochs.at(offset) or 0 for at, epochs in archive.commits if at >= breaks[-1]}
        if any(epoch < each <= line[offset].epoch for each in named):
            return False
        return any(self._ignorant(archive, commit, start, epochs, offset, epoch) for start, epochs in leader)

    def _ignorant(
        self, archive: Archive, commit: Commit, begin: int, epochs: Sequence[tuple[int, int]], offset: int, epoch: int
    ) -> bool:
        """Whether a log that begins at `begin` with a list of epochs agrees with every copy of this epoch at an offset.

        Lists of epochs differ if compaction left no batch of an epoch. Only a copy without a gap contradicts a log, and
        only in its live part.
        """
        begun = {start: epoch for epoch, start in epochs}
        here = max((start for start in begun if start <= offset), default=None)
        if offset < begin or here is None or begun[here] <= epoch:
            return True
        said = commit.epochs.at(offset)
        return not any(
            len(copy.content) == copy.end - copy.base and said in {None, copy.content[offset].epoch}
            for copy in archive.copies.values()
            if copy.base <= offset < copy.end
        )

    def _rows(self, archive: Archive, view: PartitionView) -> Iterator[Row | Hole]:
        """Return the records and holes that readers see, in order."""
        for step in view.plan(view.start, view.end):
            if isinstance(step, Hole):
                yield step
                continue
            found: dict[int, Batch] = {}
            for copy in step.copies:
                for offset, batch in archive.copies[copy.key].content.items():
                    if step.start <= offset < step.end:
                        assert found.setdefault(offset, batch) is batch, f"two living records of offset {offset}"
            yield from sorted(found.items(), key=lambda row: row[0])

    def _read_committed(
        self, archive: Archive, view: PartitionView, line: Sequence[Batch], shown: dict[int, Batch]
    ) -> None:
        """Check that no record of an aborted or open transaction is shown, and that committed ones are.

        Exceptions: records that a hole cut off, and records with newer ones. If a marker was compacted away too, these
        may be hidden.
        """
        superseded = {
            id(batch)
            for copy in archive.copies.values()
            for batches in copy.replica.cleaned.values()
            for batch in batches
        }
        if not any(batch.producer >= 0 for batch in shown.values()):
            return
        stable = stable_end(self._store, view)
        hidden = find_hidden(self._store, view, view.start, stable)
        ended = transactions(line, view.end).ended
        for offset, batch in shown.items():
            if batch.producer < 0 or batch.kind is not Kind.DATA or line[offset] is not batch or offset >= stable:
                continue
            marker = next((end for producer, first, end in ended if _is_in(batch, producer, first, end)), None)
            if marker is not None and id(marker) in superseded:
                continue  # records that are shipped that late are marked and reported (protocol rule 9)
            is_hidden = any(
                entry.producer_id == batch.producer and entry.first_offset <= offset <= entry.last_offset
                for entry in hidden.transactions
            )
            kind = None if marker is None else marker.kind
            stable_enough = kind is not None or is_hidden
            assert stable_enough, f"offset {offset} is below the last stable offset {stable}, its transaction open"
            assert is_hidden or kind is Kind.COMMIT, f"offset {offset} of an aborted transaction is shown"
            cut_off = any(
                cut.producer_id == batch.producer and cut.first <= offset < cut.hole.start for cut in hidden.cut_off
            )
            rightly = kind is not Kind.COMMIT or id(batch) in superseded or cut_off
            assert not is_hidden or rightly, f"offset {offset} of a committed transaction is hidden"


def _is_in(batch: Batch, producer: int, first: int, marker: Batch) -> bool:
    return producer == batch.producer and first <= batch.base < marker.base
