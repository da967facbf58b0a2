"""The partitions that a table reads, and what the archive shows of each.

They are those of the newest incarnation of its topics, and of the incarnations that it has claimed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_reader.following.commit_snapshot import CommitSnapshot, Observer, TopicSnapshot
from ts_reader.following.ends import PartitionEnd
from ts_reader.reading.transactions import find_hidden
from ts_tables.claims.advance import OnRecreated, Seen
from ts_tables.claims.state import PartitionClaims, PassedHole, TableState


@dataclass(frozen=True, slots=True)
class Claimable:
    """A partition that a table reads.

    Attributes:
        topic_id: of the incarnation; None if the cluster has no topic ids.
        directory: identifies the incarnation.
        end: by the commit.
        is_first: whether the table has claimed no earlier incarnation.
    """

    topic_id: str | None
    directory: str
    end: PartitionEnd
    is_first: bool = True

    @property
    def partition(self) -> TopicPartition:
        """The topic and partition."""
        return self.end.keys.partition


class ClaimablePartitions:
    """Finds the partitions of a table; not thread-safe.

    Args:
        observer: of the table's topics.
        location: of the store, for messages.
        on_recreated: what the table does with a topic that was created again.
    """

    def __init__(self, observer: Observer, keys: ClusterKeys, location: str, on_recreated: OnRecreated) -> None:
        self._observer = observer
        self._keys = keys
        self._location = location
        self._on_recreated = on_recreated

    def find(
        self, state: TableState, look: CommitSnapshot, problems: list[str], lost: list[str], begin: list[str]
    ) -> list[Claimable]:
        """Return the partitions that a table reads.

        Args:
            problems: receives a sentence for each topic or partition that cannot be read.
            lost: receives one for each partition without claims whose commit is missing or damaged.
            begin: receives one for each partition whose first commit may be under way.

        Raises:
            CorruptData, StoreUnavailable, AccessDenied: from the store.
        """
        claimable: list[Claimable] = []
        for name in sorted({*look.topics, *state.topics}):
            topic, known = look.topics.get(name), state.topics.get(name, ())
            if topic is None:
                problems.append(
                    f"topic {name} is not in {self._location}, or the table no longer names it; its claims stay: "
                    "name it again, or create another table"
                )
                continue
            newest = topic.incarnations.newest_directory
            directories = list(dict.fromkeys(each.directory for each in topic.incarnations.entries)) or [newest]
            begun = [directories.index(each.directory) for each in known if each.directory in directories]
            wanted = directories[min(begun) :] if begun else [newest]
            if known and known[-1].directory != newest and self._on_recreated is OnRecreated.FAIL:
                problems.append(
                    f"topic {name} was created again, with topic id {topic.topic_id}; the table has claimed "
                    f"{known[-1].topic_id}. on_recreated: follow adds the records of the new topic too"
                )
                continue
            for directory in wanted:
                claimable += self._incarnation(name, directory, topic, state, problems, lost, begin, is_first=not known)
        return claimable

    def _incarnation(
        self,
        name: str,
        directory: str,
        topic: TopicSnapshot,
        state: TableState,
        problems: list[str],
        lost: list[str],
        begin: list[str],
        *,
        is_first: bool,
    ) -> Iterator[Claimable]:
        """Yield the partitions of an incarnation; those that the table has claimed must have a commit."""
        claimed = state.incarnation(name, directory)
        numbers = {*topic.numbers} | ({*claimed.partitions} if claimed is not None else set())
        keys = [self._keys.partition(TopicPartition(name, number), directory) for number in sorted(numbers)]
        ends = topic.ends if directory == topic.incarnations.newest_directory else self._ends(keys)
        topic_id = next((each.topic_id for each in topic.incarnations.entries if each.directory == directory), None)
        for each in keys:
            number = each.partition.partition
            if each.partition in ends:
                known_id = topic_id if claimed is None else claimed.topic_id
                yield Claimable(known_id, directory, ends[each.partition], is_first)
                continue
            loss = self._observer.loss_at(each)
            if claimed is not None and number in claimed.partitions:
                why = f"{each.partition}: its commit {each.commit} is missing" if loss is None else str(loss)
                problems.append(f"{why}; claims end at {claimed.partitions[number].end}")
            elif loss is not None:
                lost.append(str(loss))
            elif (sentence := self._observer.beginning(each)) is not None:
                begin.append(sentence)

    def _ends(self, keys: Sequence[PartitionKeys]) -> dict[TopicPartition, PartitionEnd]:
        """Return the ends of partitions that have a commit."""
        return {each.partition: end for each, end in self._observer.ends_of(keys).items()}


def known_of(state: TableState, one: Claimable) -> PartitionClaims | None:
    """Return the claims of a partition; None without any."""
    incarnation = state.incarnation(one.partition.topic, one.directory)
    return None if incarnation is None else incarnation.partitions.get(one.partition.partition)


def seen_of(
    store: ObjectStore, view: PartitionView, end: PartitionEnd, known: PartitionClaims, *, read_committed: bool
) -> Seen:
    """Return what the archive shows of a partition.

    Args:
        end: by its commit.
        known: its claims, as far as the log still has them.
        read_committed: whether transactions that are open at a hole are withheld.

    Raises:
        CorruptData, ObjectNotFound, StoreUnavailable, AccessDenied: from reading segments.
    """
    start = max(view.start, min([known.end, *(hole.first for hole in known.holes)]))
    holes = joined(part for part in view.runs(start, max(view.end, start)) if isinstance(part, Hole))
    passed = tuple(PassedHole(*each) for each in holes)
    seen = Seen(view.start, end.next_offset, end.shown, end.log, passed, view.floor)
    noted = {(hole.start, hole.end) for hole in known.holes if hole.start >= view.start}
    is_unchanged = noted == {*holes}
    if is_unchanged or not read_committed:  # else headers are read to find open transactions
        return seen
    cut_off = find_hidden(store, view, start, max(start, end.shown)).cut_off
    withheld = {
        hole: tuple((one.producer_id, one.first) for one in cut_off if hole[0] <= one.hole.start < hole[1])
        for hole in holes
    }
    return replace(seen, holes=tuple(PassedHole(*hole, tuple(sorted(withheld[hole]))) for hole in holes))


def joined(holes: Iterable[Hole]) -> list[tuple[int, int]]:
    """Return holes as ranges; adjoining ones, which differ in their records only, are one."""
    found: list[tuple[int, int]] = []
    for hole in holes:
        if found and found[-1][1] == hole.start:
            found[-1] = (found[-1][0], hole.end)
        else:
            found.append((hole.start, hole.end))
    return found
