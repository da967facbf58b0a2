"""What `tsctl verify` can find: each kind has a code that stays, a severity, a meaning and a way out.

The table below is what the commands, the JSON, the HTML report and docs/verify.md go by.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How bad a finding is; the higher, the worse."""

    INFORMATION = 1  # as the protocol allows it; nobody need act
    SUSPICIOUS = 2  # no record is missing or damaged, and somebody should know why it is so
    DAMAGED = 3  # what stands there is not what was shipped, or cannot be shown; the records may be had otherwise
    DATA_LOSS = 4  # records that no object holds

    @property
    def label(self) -> str:
        """As in output and on the command line: `data-loss`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding.

    Attributes:
        code: its name in output; stays the same in later releases.
        severity: of each such finding.
        meaning: one sentence.
        advice: what to do about it.
    """

    code: str
    severity: Severity
    meaning: str
    advice: str


_LOSS, _DAMAGED = Severity.DATA_LOSS, Severity.DAMAGED
_ODD, _INFORMATION = Severity.SUSPICIOUS, Severity.INFORMATION

HOLE = Kind(
    "hole",
    _LOSS,
    "Offsets below the next offset that no living copy answers for, and no gap record explains.",
    "Put the missing objects back from a version or a backup of the bucket. Where a broker still holds the offsets, "
    "ask "
    "with --bootstrap-server what it has; look for who removes objects (a lifecycle rule, a clean-up job).",
)
GAP = Kind(
    "gap",
    _INFORMATION,
    "Offsets that existed nowhere any more when the agent came to them; its gap record says why.",
    "Nothing, if the reason is known. The agent fills it where a broker still holds the range.",
)
GAP_RECORD_DAMAGED = Kind(
    "gap-record-damaged",
    _DAMAGED,
    "Offsets that no living copy answers for, with a gap record that cannot be read, so that nobody can say why.",
    "Put the last version of the record back. The agent's log of that time says the reason too.",
)
OVERLAP = Kind(
    "overlap",
    _INFORMATION,
    "Two living copies answer for the same offsets, as after a change of leaders; readers show each offset once.",
    "Nothing. --depth full compares the records of both.",
)
OVERLAP_DIFFERS = Kind(
    "overlap-differs",
    _DAMAGED,
    "Two living copies hold different records at one offset.",
    "Compare both with what a broker holds (tsctl get shows them), and keep both until it is known which is right.",
)
DEAD_TAIL = Kind(
    "dead-tail",
    _INFORMATION,
    "The end of a copy was written in a leader epoch that an election ended; the commit's epochs leave it out.",
    "Nothing: readers do not show it. These are the records that an unclean election lost.",
)
INDEX_MISSING = Kind(
    "index-missing",
    _DAMAGED,
    "A segment's .index or .timeindex, or the .txnindex that its metadata names, is not there.",
    "Readers do without it, more slowly. Put it back from a version or a backup of the bucket; look for who removed "
    "it.",
)
INDEX_WRONG = Kind(
    "index-wrong",
    _DAMAGED,
    "An index is not the one that belongs to its .log, or leads to where no batch begins.",
    "Readers do not believe it, and read on without. Put it back from a version or a backup of the bucket.",
)
ORPHAN_SEGMENT = Kind(
    "orphan-segment",
    _ODD,
    "A segment above the run that no commit reaches, older than anything that an agent has in flight.",
    "See whether an agent leads the partition and what it waits for (tsctl status). Its records are not shown until "
    "the "
    "run reaches it. Do not remove it before that is known.",
)
ORPHAN_INDEX = Kind(
    "orphan-index",
    _ODD,
    "An index whose .log is not there, older than anything that an agent has in flight.",
    "Where a hole is named at the same offsets, the .log was removed: put it back. Else an upload was given up "
    "half-way; "
    "the index does no harm and may be removed.",
)
ORPHAN_GAP = Kind(
    "orphan-gap",
    _ODD,
    "A gap record at or above the next offset, older than any commit that could be about to pass it.",
    "The agent that wrote it ended before its commit. Nothing, if an agent leads the partition: it goes on from there.",
)
ORPHAN_CACHE_OBJECT = Kind(
    "orphan-cache-object",
    _ODD,
    "A cache object (an object below segment-metadata/) of segments of which none is there.",
    "A cache object is a cache; it may be removed.",
)
CACHE_OBJECT_WRONG = Kind(
    "cache-object-wrong",
    _ODD,
    "A cache object (an object below segment-metadata/) cannot be read, or says something else of a segment than the "
    "segment's own metadata.",
    "A cache object is a cache: remove it, and its segments are asked one by one.",
)
FOREIGN_OBJECT = Kind(
    "foreign-object",
    _ODD,
    "An object in a directory of ours that is none of ours.",
    "Find out who writes there, and remove it once nobody needs it. Readers pass over it.",
)
NO_COMMIT = Kind(
    "no-commit",
    _DAMAGED,
    "A partition has segments and no offset.wm, so that readers are shown nothing of it.",
    "An agent that leads the partition writes it again after a look at all of the run. Where the topic has no "
    "leader any "
    "more, put offset.wm back from a version or a backup of the bucket.",
)
COMMIT_STUCK = Kind(
    "commit-stuck",
    _ODD,
    "Segments lie in the store above the commit, or without one, and nothing was committed for longer than "
    "ts.segment.uploader.stuck.after.ms; readers are not shown them.",
    "See what the partition waits for (tsctl status --partitions, the agent's page), and the runbook's "
    "TsUploaderPartitionStuck. Where no agent leads the partition, start one. Do not remove the segments.",
)
COMMIT_DAMAGED = Kind(
    "commit-damaged",
    _DAMAGED,
    "offset.wm or log.start is not what its format says.",
    "Put its last version back. Agents and readers refuse this partition until then.",
)
COMMIT_NAMES_MISSING = Kind(
    "commit-names-missing",
    _DAMAGED,
    "The commit names a segment that is not there.",
    "Put it back from a version or a backup of the bucket.",
)
LOG_START_WRONG = Kind(
    "log-start-wrong",
    _DAMAGED,
    "log.start is not there, or names an offset above the next offset.",
    "Until it is mended, readers are shown nothing, or what is left. The agent beside the leader writes a missing one "
    "again when it next reads the commit: start it. For one above the next offset, see the runbook, 'Records hidden "
    "below log.start', before an agent runs. It takes the commit back under a new lineage, and log.start down to the "
    "next offset only. An older version of log.start does not help.",
)
HIDDEN_BELOW_LOG_START = Kind(
    "hidden-below-log-start",
    _DAMAGED,
    "Living segments lie below log.start and were shipped after it was written. An election took the commit back below "
    "log.start, and an agent of before lineages left log.start where it was. Readers are not shown these records.",
    "Delete nothing, and stop what removes objects below log.start. Compare with what a broker holds "
    "(--bootstrap-server). Then write the first of these offsets to log.start, as the runbook shows. Keep this "
    "report: any later write of log.start ends it.",
)
LINEAGE_BEHIND = Kind(
    "lineage-behind",
    _ODD,
    "log.start is of an older lineage than the commit: an agent took the commit back and ended before it wrote "
    "log.start. Readers begin at the lower of log.start and the offset that the commit went back to.",
    "The agent beside the leader writes log.start when it next reads the commit, and commits nothing before. Start it; "
    "write neither object by hand.",
)
LINEAGE_AHEAD = Kind(
    "lineage-ahead",
    _DAMAGED,
    "log.start is of a lineage that the commit does not have. A late agent made the commit again, or somebody put "
    "back an older version of it. Readers end with an error.",
    "The agent beside the leader takes the commit back under a new lineage, or writes log.start where both are of one "
    "epoch. Start it, and look at its log; put no older version of either object back.",
)
NEWER_FORMAT = Kind(
    "newer-format",
    _ODD,
    "An object was written by a later release, in a way that this one does not know.",
    "Verify with that release.",
)
WRONG_ENTROPY = Kind(
    "wrong-entropy",
    _ODD,
    "A partition's directory lies under other entropy bits than its name has, where no reader looks.",
    "The right number stands in the archive's layout.json. Move the objects to where they belong, or remove the copy.",
)
INCARNATION_UNLISTED = Kind(
    "incarnation-unlisted",
    _DAMAGED,
    "The store holds a life of a topic that incarnations.json does not name; readers refuse the topic.",
    "Put back the last version of incarnations.json.",
)
INCARNATIONS_DAMAGED = Kind(
    "incarnations-damaged",
    _DAMAGED,
    "incarnations.json is not what its format says.",
    "Put back its last version. Readers refuse the topic until then.",
)
METADATA_MISSING = Kind(
    "metadata-missing",
    _ODD,
    "Segments without metadata of ours, in a partition that no Java uploader is known to have written to.",
    "They were copied here by something that drops metadata. Readers look into them, more slowly, and know nothing of "
    "their .txnindex. Copy them again with their metadata.",
)
JAVA_SEGMENTS = Kind(
    "java-segments",
    _INFORMATION,
    "Segments without metadata, as a Java uploader writes them.",
    "Nothing: readers look into them, more slowly.",
)
METADATA_WRONG = Kind(
    "metadata-wrong",
    _DAMAGED,
    "A segment's metadata is not what its batches say.",
    "Look at the segment (tsctl get). Readers go by its metadata, and may leave records out.",
)
SEGMENT_DAMAGED = Kind(
    "segment-damaged",
    _DAMAGED,
    "Bytes of a segment are not those that were shipped: a CRC does not fit, or a batch cannot be read.",
    "Put the object back from a version or a backup of the bucket; the records of the named batch are lost otherwise, "
    "unless another copy holds them.",
)
SHIPPED_CORRUPT = Kind(
    "shipped-corrupt",
    _DAMAGED,
    "A segment was corrupt on the broker's disk already, and was shipped as it was.",
    "Compare with another replica, while the brokers still hold the range.",
)
UNREADABLE = Kind(
    "unreadable",
    _DAMAGED,
    "An object that was listed cannot be read with this identity, or was removed while it was looked at.",
    "Give this identity the right to read, or run verify again.",
)

# Of the audit against a running cluster.
LOST_BEFORE_SHIPPED = Kind(
    "lost-before-shipped",
    _LOSS,
    "The cluster deleted offsets that the store does not hold.",
    "They are gone unless a broker that was away holds them. Raise the topic's retention; see why the agent was behind "
    "(tsctl status, its metrics).",
)
ABOUT_TO_BE_LOST = Kind(
    "about-to-be-lost",
    _ODD,
    "Retention will soon delete offsets that the store does not hold.",
    "Raise retention.ms (or segment.ms down, so that segments close), and see why the agent is behind.",
)
TOPIC_NOT_SHIPPED = Kind(
    "topic-not-shipped",
    _ODD,
    "The configuration ships a topic or a partition of which the store holds nothing, although it has records.",
    "See whether an agent runs beside its leader. A partition whose first segment has not closed yet has nothing to "
    "ship.",
)
INCARNATION_NOT_SHIPPED = Kind(
    "incarnation-not-shipped",
    _ODD,
    "The cluster's topic was made again under its name, and the store holds an earlier life only.",
    "See whether an agent runs beside its leader.",
)
STORE_AHEAD = Kind(
    "store-ahead",
    _ODD,
    "The store's next offset is above the cluster's high watermark.",
    "An election lost records; the agent of the new leader takes the commit back. Else these are two clusters.",
)
STORE_BEGINS_LATER = Kind(
    "store-begins-later",
    _INFORMATION,
    "The cluster holds offsets below where the store's view begins.",
    "Nothing, where the archive began with LATEST or its retention is the shorter one.",
)
TOPIC_GONE = Kind(
    "topic-gone",
    _INFORMATION,
    "The store holds a topic that the cluster does not know any more.",
    "Nothing: the archive outlives the topic.",
)
RECORDS_DIFFER = Kind(
    "records-differ",
    _DAMAGED,
    "A record in the store is not the one that the cluster holds at that offset, or one of them has none.",
    "Keep both, and find out which is right: see whether an unclean election lies between them.",
)

KINDS: tuple[Kind, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Kind))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        kind: what it is.
        where: what it is about: `<topic>-<partition>` as in the keys, a topic, or a key's directory.
        key: of the object, or of the directory, relative to the store's location; None where there is none.
        start: first offset that it is about; None where it is about none.
        end: the offset after the last.
        detail: one line: what was expected, and what was found.
    """

    kind: Kind
    where: str
    detail: str
    key: str | None = None
    start: int | None = None
    end: int | None = None

    @property
    def severity(self) -> Severity:
        """Of its kind."""
        return self.kind.severity

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON shows it."""
        return {
            "code": self.kind.code,
            "severity": self.severity.label,
            "where": self.where,
            "key": self.key,
            "from": self.start,
            "to": self.end,
            "detail": self.detail,
            "advice": self.kind.advice,
        }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by what they are about and where in it."""
    return sorted(
        findings, key=lambda found: (-found.severity, found.where, found.start or 0, found.kind.code, found.key or "")
    )


def severity_of(label: str) -> Severity | None:
    """The severity that a label names; None for what is none."""
    return next((severity for severity in Severity if severity.label == label), None)
