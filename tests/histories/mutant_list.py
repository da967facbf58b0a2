"""The mutants: m1 to m12 are those of the first review of the protocol; the others break later rules."""

from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ts_common.archive.commit import LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_uploader.committing import divergence, going_back, log_start, next_commit, position_recovery
from ts_uploader.committing.commit_writer import CommitWriter
from ts_uploader.committing.incarnation import IncarnationLog
from ts_uploader.committing.position_recovery import PositionRecovery
from ts_uploader.log_dirs import directory_scan as scan
from ts_uploader.log_dirs import hanging, leader_epoch, local_log
from ts_uploader.shipping import coverage, segment_names, uploader
from ts_uploader.shipping.deleted_directory import DeletedShipper
from ts_uploader.shipping.uploader import Uploader
from ts_uploader.tracking.high_watermarks import Counting
from ts_uploader.tracking.partition_state import PartitionState
from ts_uploader.tracking.task_selection import TaskSelection
from ts_uploader.tracking.tracker import Tracker


@dataclass(frozen=True)
class Edit:
    """One text of one function, and its replacement."""

    function: FunctionType
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault in the agent.

    Attributes:
        name: short.
        does: the fault, in a sentence.
        edits: of production code.
    """

    name: str
    does: str
    edits: tuple[Edit, ...]


def _mutant(name: str, does: str, *edits: tuple[Any, str, str]) -> Mutant:
    return Mutant(name, does, tuple(Edit(*edit) for edit in edits))


MUTANTS = (
    _mutant(
        "m1",
        "The commit is written without a condition.",
        (CommitWriter.write, "IfAbsent() if position.etag is None else IfMatch(position.etag)", "None"),
    ),
    _mutant(
        "m2",
        "The broker's own leader epoch is not compared with the leadership source's.",
        (leader_epoch.check_leader_epoch, "if local is not None and", "if False and"),
    ),
    _mutant(
        "m3",
        "What follows a segment that lost its tail is not looked at again.",
        (coverage._live_end, "if (task.base, task.next_base) not in pairwise(now.bases):", "if False:"),
        (coverage._live_end, "if task.next_base not in now.bases:", "if False:"),
    ),
    _mutant(
        "m4",
        "Any figure of a high watermark counts, also one of before the leadership.",
        (Counting.counts, "return count >= self.before + OTHER_FILES", "return True"),
    ),
    _mutant(
        "m5",
        "The file is not looked at again after it was read.",
        (
            coverage.coverage_end,
            "    if not log.deleted:\n",
            "    if True:\n        return task.next_base if by_neighbour else reach\n    if not log.deleted:\n",
        ),
    ),
    _mutant(
        "m6",
        "Segments above the high watermark are shipped.",
        (TaskSelection._ships, "if state.high_watermark is None or next_base > state.high_watermark:", "if False:"),
    ),
    _mutant(
        "m7",
        "Any object under the segment's name counts as the segment.",
        (segment_names._existing, "theirs = decode_metadata(info.metadata, key)", "return Existing.COVERS"),
    ),
    _mutant(
        "m8",
        "The last stable offset is always the end.",
        (local_log.last_stable_offset, "return end if unstable is None else min(unstable, end)", "return end"),
    ),
    _mutant(
        "m9",
        "The `.log` is put though an index was not.",
        (Uploader._put, "_wait_for(puts)", "pass"),
    ),
    _mutant(
        "m10",
        "A gap is recorded after one listing.",
        (TaskSelection._gap, " or listing.taken_at - state.gap_seen_at < interval", ""),
    ),
    _mutant(
        "m11",
        "An archive begins one segment too high.",
        (
            position_recovery._first_log_start,
            "return min([task.first_base, *named])",
            "return task.listing.bases[:2][-1]",
        ),
    ),
    _mutant(
        "m12",
        "The cleaner's renames are not noticed.",
        (scan.list_partition, "swapping = True", "swapping = False"),
    ),
    _mutant(
        "first-file-counts",
        "The first other checkpoint file counts, whose figures may be of before.",
        (Counting.counts, "return count >= self.before + OTHER_FILES", "return count > self.before"),
    ),
    # --- the live tail
    _mutant(
        "ahead-of-another-leadership",
        "A later commit has the epochs above the next offset of the leadership that it replaces.",
        (next_commit.with_live, "if local is None and before.epoch == commit.epoch:", "if True:"),
    ),
    _mutant(
        "former-of-any-log",
        "Former leaderships stay named where the leader's list shows nothing of them (tail rule 4, clause 5).",
        (next_commit.with_live, "if ahead.at(commit.next_offset) is None:", "if False:"),
    ),
    # --- lineage
    _mutant(
        "lineage-not-compared",
        "Readers join a `log.start` of any lineage to a commit, by its number alone.",
        (LogStart.shown_from, "if lineage is None or self.lineage == lineage:", "if True:"),
    ),
    _mutant(
        "log-start-not-settled",
        "After going back `log.start` is not written.",
        (
            PositionRecovery._settle,
            "if position.lineage is None or start.content.lineage == position.lineage:",
            "if True:",
        ),
    ),
    _mutant(
        "log-start-too-high",
        "After going back `log.start` stays where it was, under the new lineage.",
        (going_back.settle_log_start, "min(start.content.offset, held)", "start.content.offset"),
    ),
    _mutant(
        "not-lowered",
        "What an election lost is not noticed: the commit never goes back.",
        (divergence.past_end, "return end", "return next_offset"),
    ),
    _mutant(
        "epochs-not-cut",
        "A commit that goes back keeps the epochs of what was lost.",
        (divergence.rewound, "return epochs.continued(local or EpochHistory(), end)", "return epochs"),
    ),
    _mutant(
        "empty-archive-not-lowered",
        "Where `log.start` is all that stands, and lies above the log, it stays.",
        (
            going_back.begins_below,
            "return listing.bases[0] if start.offset > listing.bases[0] else None",
            "return None",
        ),
    ),
    _mutant(
        "contradiction-overlooked",
        "Only ends are compared: what this log has otherwise below the run's last epoch is not seen.",
        (divergence.past_end, "contradicted_from(store, _gone_back(position, end, listing), listing)", "None"),
    ),
    # --- fencing
    _mutant(
        "not-fenced",
        "A commit of a later leader epoch does not make an agent step back.",
        (PositionRecovery._go_on, "if commit.epoch > task.leadership.epoch:", "if False:"),
        (CommitWriter._follow, "if theirs.epoch > mine.epoch:", "if False:"),
    ),
    _mutant(
        "lost-answer-believed",
        "A commit whose condition failed, or without an answer, counts as written.",
        (CommitWriter._follow, "if theirs.nonce == mine.nonce and etag is not None:", "if etag is not None:"),
    ),
    _mutant(
        "later-records-committed",
        "An agent commits batches of a later leader epoch than its own.",
        (next_commit.check_own, "if later:", "if False:"),
    ),
    _mutant(
        "old-results-count",
        "Results of before a new leadership count.",
        (Tracker.conclude, "if state is None or state.generation != result.generation:", "if state is None:"),
    ),
    _mutant(
        "log-start-overwritten",
        "The first `log.start` is written without a condition.",
        (log_start.write_log_start, "condition=IfAbsent()", "condition=None"),
    ),
    # --- files
    _mutant(
        "listing-of-many-instants",
        "Any listing counts where the neighbour of a segment has to tell its coverage, or that a gap is one.",
        (coverage.coverage_end, "whole_listing(task.listing) if by_neighbour else _listing(task)", "_listing(task)"),
        (TaskSelection._gap, "not listing.whole or ", ""),
        (TaskSelection._gap, "if listing.whole and (", "if ("),
    ),
    _mutant(
        "plain-names-below-lineage",
        "Below the third element of its lineage an agent ships under plain names.",
        (segment_names._names, "if task.base >= task.variants_below:", "if True:"),
    ),
    _mutant(
        "variants-by-batches",
        "A variant's name bears the leader epoch of its last batch.",
        (segment_names._names, "epoch = task.leadership.epoch", "epoch = scan.epochs[-1][0] if scan.epochs else -1"),
    ),
    _mutant(
        "deleted-in-any-order",
        "A `.deleted` file hangs though a lower one was renamed later.",
        (hanging.hanging, "if (above > last or last == NO_EPOCH) and any(", "if False and any("),
    ),
    _mutant(
        "deleted-from-below-only",
        "A `.deleted` file hangs though one that begins inside it was renamed later.",
        (hanging.hanging, "other.base < end and", "other.base < file.base and"),
    ),
    _mutant(
        "deleted-of-any-line",
        "A `.deleted` file hangs whatever epochs the commit gives its offsets.",
        (hanging._agrees, "if said is not None and said != stretch.epoch:", "if False:"),
    ),
    _mutant(
        "stale-txnindex",
        "The `.txnindex.deleted` of another segment counts for a live one.",
        (
            uploader._indexes,
            "            indexes = read_indexes(task.listing.directory, task.base)\n",
            "            indexes = read_indexes(task.listing.directory, task.base)\n"
            "            with suppress(SegmentChanged):\n"
            "                indexes = read_indexes(task.listing.directory, task.base, deleted=True) | indexes\n",
        ),
    ),
    # --- the run
    _mutant(
        "run-jumps",
        "The commit moves over a segment that is not shipped yet.",
        (PartitionState.run, "if done.base > next_offset:", "if False:"),
    ),
    _mutant(
        "names-above-only",
        "An agent goes on with names above the next offset, not with the segment that holds it (protocol rule 4).",
        (
            PartitionState.segments_from,
            "max(0, bisect_right(bases, offset) - 1)",
            "max(0, bisect_right(bases, offset - 1))",
        ),
    ),
    _mutant(
        "gaps-not-shipped",
        "What a gap record stands for is not shipped, though a segment here holds it.",
        (TaskSelection._ships, "if not ahead and not gaps:", "if not ahead:"),
    ),
    _mutant(
        "dead-tails-live",
        "Readers take every batch of a copy for alive.",
        (EpochHistory.live_end, "if not starts:", "if True:"),
    ),
    _mutant(
        "deleted-above",
        "A deleted topic is shipped up to its log's end, whatever its high watermark is (protocol rule 14).",
        (DeletedShipper._ship_files, "min(task.high_watermark or 0, end)", "end"),
    ),
    _mutant(
        "deleted-silent",
        "What a deleted topic leaves is not recorded.",
        (DeletedShipper._end, "if task.log is not None and", "if False and"),
    ),
    _mutant(
        "deleted-successor",
        "A deleted topic is stored in the newest incarnation.",
        (IncarnationLog.directory, "return found.directory", "return known.newest_directory"),
    ),
)
