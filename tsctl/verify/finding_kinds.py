"""Kinds of findings of `tsctl verify`: each has a stable code, a severity, a meaning and advice.

Command output, JSON, the HTML report and docs/tsctl.md use this table.
"""

from dataclasses import dataclass
from enum import IntEnum

from ts_common.archive.commit_state import CommitState


class Severity(IntEnum):
    """The severity of a finding; a higher value is worse."""

    INFORMATION = 1
    SUSPICIOUS = 2
    DAMAGED = 3
    DATA_LOSS = 4

    @property
    def label(self) -> str:
        """The name in output and on the command line, such as `data-loss`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding.

    Attributes:
        code: its name in output; later releases keep it.
        meaning: what is wrong, and what it means for readers.
    """

    code: str
    severity: Severity
    meaning: str
    advice: str


_LOSS, _DAMAGED = Severity.DATA_LOSS, Severity.DAMAGED
_SUSPICIOUS, _INFORMATION = Severity.SUSPICIOUS, Severity.INFORMATION

HOLE = FindingKind(
    "hole",
    _LOSS,
    "No live copy contains these offsets below the next offset, and no gap record explains it. Readers cannot return "
    "them.",
    "Run tsctl repair: it puts them back from an older version in the bucket, or from the leader's broker. Find what "
    "removes objects (a lifecycle rule, a clean-up job).",
)
GAP = FindingKind(
    "gap",
    _INFORMATION,
    "No broker had these offsets any more when the agent reached them, or the topic was deleted. The gap record has "
    "the reason.",
    "If the reason is a deleted topic, nothing puts the offsets back: no broker keeps them. Otherwise no action is "
    "needed if the reason is expected, and tsctl repair --gaps puts them back if a broker has them again.",
)
GAP_RECORD_DAMAGED = FindingKind(
    "gap-record-damaged",
    _DAMAGED,
    "No live copy contains these offsets, and their gap record is malformed, so the reason is unknown.",
    "Restore the newest version of the gap record that is not damaged. The agent's log of that time has the reason "
    "too.",
)
OVERLAP = FindingKind(
    "overlap",
    _INFORMATION,
    "Two live copies contain the same offsets, for example after a change of leader. Readers return each offset once.",
    "No action is needed. --depth full compares the records of both copies.",
)
OVERLAP_DIFFERS = FindingKind(
    "overlap-differs",
    _DAMAGED,
    "Two live copies contain different records at one offset. Readers return one of them.",
    "Keep both copies. Compare them (tsctl get) with the records of a broker to find the right one.",
)
DEAD_TAIL = FindingKind(
    "dead-tail",
    _INFORMATION,
    "The end of a copy has records of a leader epoch that an election ended. The commit's epochs exclude them, and "
    "readers do not return them.",
    "No action is needed. These are the records that an unclean election lost.",
)
FROZEN = FindingKind(
    "frozen",
    _INFORMATION,
    "Segments are in an archive class, such as Glacier, and cannot be read until they are thawed. Their metadata was "
    "checked, their bytes were not.",
    "No action is needed if the class is intended. To read or check the bytes, thaw them first: tsctl thaw. Readers of "
    "these offsets get an error until then.",
)
INDEX_MISSING = FindingKind(
    "index-missing",
    _DAMAGED,
    "A segment has no .index or .timeindex, or lacks the .txnindex that its metadata names. Readers work without it, "
    "but more slowly.",
    "Run tsctl repair: it puts the index back from an older version in the bucket. Find what removed it.",
)
INDEX_WRONG = FindingKind(
    "index-wrong",
    _DAMAGED,
    "An index does not belong to its .log, or points to a position where no batch begins. Readers ignore it, and read "
    "more slowly.",
    "Restore it from an older version or a backup of the bucket.",
)
ORPHAN_SEGMENT = FindingKind(
    "orphan-segment",
    _SUSPICIOUS,
    "A segment is above the commit, and older than any upload in progress. Readers do not return its records until the "
    "commit covers it.",
    "Check whether an agent leads the partition and what it waits for (tsctl status). Do not remove the segment before "
    "that.",
)
ORPHAN_INDEX = FindingKind(
    "orphan-index",
    _SUSPICIOUS,
    "An index has no .log, and is older than any upload in progress.",
    "If a hole is reported at the same offsets, the .log was removed: run tsctl repair. Otherwise an upload was "
    "interrupted; the index is harmless and may be removed.",
)
ORPHAN_GAP = FindingKind(
    "orphan-gap",
    _SUSPICIOUS,
    "A gap record is at or above the next offset, and older than any commit in progress. The agent that wrote it "
    "stopped before its commit.",
    "No action is needed if an agent leads the partition: it continues from the commit.",
)
ORPHAN_CACHE_OBJECT = FindingKind(
    "orphan-cache-object",
    _SUSPICIOUS,
    "A cache object (below segment-metadata/) describes segments that do not exist. Readers do not need it.",
    "Remove it, if you like.",
)
CACHE_OBJECT_WRONG = FindingKind(
    "cache-object-wrong",
    _SUSPICIOUS,
    "A cache object (below segment-metadata/) is malformed, or contradicts the metadata of a segment or the listing.",
    "Remove it: readers then list, and read the metadata of its segments one by one.",
)
TOKEN_LEFT = FindingKind(
    "token-left",
    _SUSPICIOUS,
    "A repair entered a token in seal.json, and was killed or got no answer. Readers list its offsets, which costs "
    "requests.",
    "Wait until no repair of the partition is in progress. Then run tsctl verify --remove-tokens.",
)
FOREIGN_OBJECT = FindingKind(
    "foreign-object",
    _SUSPICIOUS,
    "An object in the archive's directories has a name that no agent writes. Readers ignore it.",
    "Find out which program writes there. Remove the object if it is not needed.",
)
TAIL_DAMAGED = FindingKind(
    "tail-damaged",
    _DAMAGED,
    "An object of a live tail is missing, malformed or not as the index describes it. Readers return none of the "
    "records from there on until their segment was shipped.",
    "No action is needed while the cluster runs. If it is lost, restore an older version of the object.",
)
TAIL_BEHIND = FindingKind(
    "tail-behind",
    _SUSPICIOUS,
    "The live tail of a partition ends below a high watermark that an agent recorded long ago. A lost cluster would "
    "lose what is between.",
    "See what the agent next to the leader reports of its tail (tsctl status, its log).",
)
TAIL_LEFT = FindingKind(
    "tail-left",
    _INFORMATION,
    "No index of a live tail leads to some of its objects, or no commit names the log of an agent that put nothing for "
    "a week: an agent was killed during a merge, or its broker was removed. Readers ignore them.",
    "No action is needed: an agent of that broker deletes them. If the broker is removed and no commit is lost or "
    "damaged, delete them below tail/: they can have records of deleted topics.",
)
KEY_INDEX_DAMAGED = FindingKind(
    "key-index-damaged",
    _SUSPICIOUS,
    "A run of an index of keys cannot be read, lacks a file, or has another file in its place. Look-ups read the "
    "segments instead, so they need more time and return the same records.",
    "Run tsctl find index: it indexes these segments again. If a run without a readable objects.parquet is reported "
    "after that, delete its directory. If this repeats, find out which other program writes below find/.",
)
KEY_INDEX_LEFT = FindingKind(
    "key-index-left",
    _INFORMATION,
    "A run of an index of keys is not finished, was merged into another one, or its incarnation has no object any "
    "more, for more than a day. Look-ups do not use it.",
    "Run tsctl find index: it deletes the run.",
)
KEY_INDEX_OLD = FindingKind(
    "key-index-old",
    _INFORMATION,
    "A run of an index of keys names segments that the archive does not have. Look-ups ignore these entries.",
    "No action is needed if retention or tsctl erase removed them: a merge of the run leaves them out.",
)
SNAPSHOT_DAMAGED = FindingKind(
    "snapshot-damaged",
    _DAMAGED,
    "A metadata snapshot is malformed, or was written at another time than its name has. A restore and tsctl meta "
    "cannot use it; no record is concerned.",
    "Restore an older version of the object, or remove it: agents write the next one within an hour.",
)
SNAPSHOT_OLD = FindingKind(
    "snapshot-old",
    _SUSPICIOUS,
    "Agents write to the store, and the newest metadata snapshot is more than three hours old. A restore would use old "
    "topics, configurations and groups' offsets.",
    "Run ts-uploader check next to a broker: it names the right or the connection that is missing. The log has "
    "snapshot_not_written.",
)
BEGINNING = FindingKind(
    CommitState.BEGINNING.value,
    _INFORMATION,
    "A partition has segments, the newest of the last 15 minutes, and no offset.wm yet. Its first upload may be under "
    "way. Readers return none of its records.",
    "No action is needed if the partition is new. Otherwise offset.wm was removed: verify reports no-commit when the "
    "newest segment is 15 minutes old.",
)
PARTITION_MISSING = FindingKind(
    "partition-missing",
    _LOSS,
    "The store has no object of a partition that has records: an agent recorded its high watermark in ends/. Or "
    "incarnations.json lists a topic, and no partition of it has an object. Readers return none of the records, and "
    "report no loss.",
    "Find what removed the objects, and stop that. Then restore all of them: see 'A lost partition' in docs/repair.md.",
)
NO_COMMIT = FindingKind(
    CommitState.MISSING.value,
    _LOSS,
    "A partition has segments, none of the last 15 minutes, and no offset.wm. Each reader fails with data loss, or "
    "returns none of its records where losses are allowed.",
    "Find what removed offset.wm and stop that. If the topic has a leader, restart its agent: it reads the segments "
    "and writes the commit again. If it has none, restore the newest offset.wm from an older version or a backup of "
    "the bucket. See 'A missing commit' in docs/repair.md.",
)
COMMIT_STUCK = FindingKind(
    "commit-stuck",
    _SUSPICIOUS,
    "The store has segments above the commit, and nothing was committed for longer than "
    "ts.segment.uploader.stuck.after.ms. Readers do not return these segments.",
    "See what the partition waits for (tsctl status --partitions, the agent's page), and TsUploaderPartitionStuck in "
    "the runbook. If no agent leads the partition, start one. Do not remove the segments.",
)
COMMIT_DAMAGED = FindingKind(
    CommitState.DAMAGED.value,
    _LOSS,
    "offset.wm, log.start or the list of erased offsets is malformed. Agents reject a partition for the first two. "
    "Each reader fails with data loss, or returns none of its records where losses are allowed.",
    "Restore the newest version of the object that is not damaged. See 'Putting an object back' in docs/repair.md.",
)
COMMIT_NAMES_MISSING = FindingKind(
    "commit-names-missing",
    _DAMAGED,
    "The commit names a segment that does not exist.",
    "Run tsctl repair: it puts the segment back from an older version in the bucket, or from the leader's broker.",
)
LOG_START_WRONG = FindingKind(
    "log-start-wrong",
    _DAMAGED,
    "log.start is missing, or is above the next offset. Readers return no records, or not all of them.",
    "If log.start is missing, start the agent next to the leader: it writes log.start when it next reads the commit. "
    "If log.start is above the next offset, read 'Records hidden below log.start' in docs/repair.md before an agent "
    "runs. An agent begins a new lineage then, and lowers log.start to the next offset only. An older version of "
    "log.start does not help.",
)
FORMER_PLACE_MISSING = FindingKind(
    "former-place-missing",
    _LOSS,
    "The partition was restored from another directory, which no longer exists, or is in another store. Readers return "
    "no records below the partition's own log.start.",
    "Put the directory back from an older version in the bucket, or copy it from another one; then its url in "
    "restored.json is null. If it was removed, find what did: a hold on its topic stops tsctl gc.",
)
FORMER_PLACE_DAMAGED = FindingKind(
    "former-place-damaged",
    _DAMAGED,
    "restored.json, or log.start of a directory that the partition was restored from, is malformed. Or the directories "
    "form a circle. Readers return no records of the partition.",
    "Put back an older version of the object.",
)
HIDDEN_BELOW_LOG_START = FindingKind(
    "hidden-below-log-start",
    _DAMAGED,
    "Live segments are below log.start, and retention did not hide them: log.start was raised by hand. Or they were "
    "shipped after it was written: an election moved the commit back, and an agent without lineages did not move "
    "log.start. Readers do not return these records.",
    "Delete nothing, and stop what removes objects below log.start. Compare with the records of a broker "
    "(--bootstrap-server). Then write the first of these offsets to log.start, as docs/repair.md shows. Keep this "
    "report: after a later write of log.start, verify may no longer find the records.",
)
LINEAGE_BEHIND = FindingKind(
    "lineage-behind",
    _SUSPICIOUS,
    "log.start has an older lineage than the commit: an agent moved the commit back, and stopped before it wrote "
    "log.start. Readers begin at the lower of log.start and the offset that the commit moved back to.",
    "Start the agent next to the leader: it writes log.start when it next reads the commit, before any other commit. "
    "Write neither object by hand.",
)
LINEAGE_AHEAD = FindingKind(
    "lineage-ahead",
    _DAMAGED,
    "log.start has a lineage that the commit does not have: a late agent created the commit again, or an operator "
    "restored an older version of it. Readers fail with an error.",
    "Start the agent next to the leader and watch its log. It moves the commit back under a new lineage, or writes "
    "log.start if both have the same leader epoch. Restore no older version of either object.",
)
NEWER_FORMAT = FindingKind(
    "newer-format",
    _SUSPICIOUS,
    "An object has a format of a later release, which this release cannot read.",
    "Run verify of that release.",
)
WRONG_ENTROPY = FindingKind(
    "wrong-entropy",
    _SUSPICIOUS,
    "A partition's directory is under entropy bits that its name does not have. Readers do not look there.",
    "The archive's layout.json has the right number of bits. Move the objects to the right directory, or remove them.",
)
INCARNATION_UNLISTED = FindingKind(
    "incarnation-unlisted",
    _DAMAGED,
    "The store contains an incarnation of a topic that incarnations.json does not list. Readers reject the topic.",
    "Restore the newest version of incarnations.json that lists it.",
)
INCARNATIONS_DAMAGED = FindingKind(
    "incarnations-damaged",
    _DAMAGED,
    "incarnations.json is malformed. Readers reject the topic.",
    "Restore its newest version that is not damaged.",
)
METADATA_MISSING = FindingKind(
    "metadata-missing",
    _SUSPICIOUS,
    "Segments have no metadata, in a partition where no Java uploader wrote. Readers read the segments instead, more "
    "slowly, and ignore their .txnindex.",
    "A tool copied them without their metadata. Run tsctl repair: it puts the metadata back from an earlier version in "
    "the bucket, or binds it again where a directory was copied. Without either, copy them again with it.",
)
JAVA_SEGMENTS = FindingKind(
    "java-segments",
    _INFORMATION,
    "A Java uploader wrote segments without metadata. Readers read the segments instead, more slowly.",
    "No action is needed.",
)
METADATA_WRONG = FindingKind(
    "metadata-wrong",
    _DAMAGED,
    "A segment's metadata contradicts its batches, or names an index that does. Readers use the metadata: they may "
    "omit records or return aborted ones.",
    "Run tsctl repair: if the object is damaged, it puts a good copy next to it. Otherwise inspect the segment (tsctl "
    "get).",
)
SEGMENT_DAMAGED = FindingKind(
    "segment-damaged",
    _DAMAGED,
    "A segment has other bytes than were shipped: a CRC does not match, a batch cannot be read, or the object is "
    "another segment's. Readers need another copy for these records.",
    "Run tsctl repair: it puts a good copy next to the object, from an older version in the bucket or from the "
    "leader's broker. Without either, the batch's records are lost, unless another copy contains them.",
)
WRONG_PRODUCER = FindingKind(
    "wrong-producer",
    _INFORMATION,
    "A segment is intact, and records of some batches have other offsets than their headers: a producer wrote them so. "
    "Readers return what Kafka's Java consumer returns: the first of several records with one offset. Found with "
    "--depth full.",
    "Nothing. Upgrade the producer, if it still runs. If the metadata has a number of records, it does not show the "
    "mistake: counts by metadata or headers, and rows from an offset inside the segment, can differ from all its rows.",
)
SHIPPED_CORRUPT = FindingKind(
    "shipped-corrupt",
    _DAMAGED,
    "A segment was corrupt on the broker's disk already, and was shipped with the same bytes.",
    "While another replica has the offsets undamaged, let it lead, and run tsctl repair.",
)
REPLACED = FindingKind(
    "replaced",
    _INFORMATION,
    "A damaged object was repaired, or rewritten without erased records: another object names it and has its offsets. "
    "Readers no longer read the damaged one.",
    "No action is needed. The damaged object stays until retention or tsctl erase run removes it.",
)
ERASED_STORED = FindingKind(
    "erased-stored",
    _INFORMATION,
    "Segments can have erased records. Readers do not return them, and the bytes are still stored. A rewritten segment "
    "that lacks them can be among these after a later request. Not found with --depth listing.",
    "Run tsctl erase run: it rewrites these segments, and removes them after the grace. It names what waits, and why.",
)
UNREADABLE = FindingKind(
    "unreadable",
    _DAMAGED,
    "A listed object cannot be read by this identity, or was removed during the check.",
    "Grant this identity the right to read, or run verify again.",
)

# Kinds that only a comparison with a running cluster finds.
LOST_BEFORE_SHIPPED = FindingKind(
    "lost-before-shipped",
    _LOSS,
    "The cluster deleted offsets that the store does not contain.",
    "They are lost unless a broker that was offline has them. Increase the topic's retention. Find out why the agent "
    "was behind (tsctl status, its metrics).",
)
ABOUT_TO_BE_LOST = FindingKind(
    "about-to-be-lost",
    _SUSPICIOUS,
    "Retention will soon delete offsets that the store does not contain.",
    "Increase retention.ms, or decrease segment.ms so that segments close. Find out why the agent is behind.",
)
TOPIC_NOT_SHIPPED = FindingKind(
    "topic-not-shipped",
    _SUSPICIOUS,
    "The configuration ships a topic, but the store has no directory for partitions that have records.",
    "Check whether an agent runs next to the leader. If a partition's first segment has not closed, there is nothing "
    "to ship yet.",
)
INCARNATION_NOT_SHIPPED = FindingKind(
    "incarnation-not-shipped",
    _SUSPICIOUS,
    "The cluster's topic was deleted and created again, and the store contains an earlier incarnation only.",
    "Check whether an agent runs next to the leader.",
)
STORE_AHEAD = FindingKind(
    "store-ahead",
    _SUSPICIOUS,
    "The store's next offset is above the cluster's high watermark.",
    "If an election lost records, the agent of the new leader moves the commit back. Otherwise these are two clusters.",
)
STORE_BEGINS_LATER = FindingKind(
    "store-begins-later",
    _INFORMATION,
    "The cluster has offsets below the first offset of the archive.",
    "No action is needed if the archive began with LATEST or has the shorter retention.",
)
TOPIC_GONE = FindingKind(
    "topic-gone",
    _INFORMATION,
    "The store contains a topic that the cluster no longer has.",
    "No action is needed: the archive keeps deleted topics. A gap finding names the records that were not shipped "
    "before the files were removed, with that reason. An agent that was down until then records none.",
)
RECORDS_DIFFER = FindingKind(
    "records-differ",
    _DAMAGED,
    "Store and cluster have different records at an offset, or only one of them has a record there.",
    "Keep both, and find the right one. Check whether an unclean election is the cause.",
)

# Kinds that only `--sealed` finds.
SEALED_MISSING = FindingKind(
    "sealed-missing",
    _LOSS,
    "A seal has an object that no longer exists, and no later seal explains that.",
    "If the bucket has the version that the finding names, put it back: see 'Putting an object back' in "
    "docs/repair.md. Find what removed it.",
)
OVERWRITTEN = FindingKind(
    "overwritten",
    _DAMAGED,
    "An object has other bytes than when it was sealed, or a later version that no seal has. Readers read that one.",
    "Put back the version that the finding names: see 'Putting an object back' in docs/repair.md. Find what wrote "
    "the other.",
)
SEAL_BROKEN = FindingKind(
    "seal-broken",
    _DAMAGED,
    "A seal is missing, damaged, signed by a key that --public-key does not name, or does not continue the one "
    "before. What only it has is not proven.",
    "Give the public keys of all sealers. Put the seal back from its versions. Then look for who may write below "
    "seals/.",
)
UNSEALED = FindingKind(
    "unsealed",
    _SUSPICIOUS,
    "Segments are older than --in-flight-hours, committed, and in no seal that counts.",
    "Run tsctl seal run: once a day is enough. Its message names what it leaves out.",
)
ADDED_LATER = FindingKind(
    "added-later",
    _INFORMATION,
    "A segment was sealed after another one with the same offsets. An election that lost records, a repair, an erasure "
    "or a forgery can be the cause. Readers use one of the two, by their leader epochs.",
    "If no election, repair or erasure explains it, compare the two: tsctl prove writes both.",
)
LIFECYCLE_HARM = FindingKind(
    "lifecycle-harm",
    _SUSPICIOUS,
    "A lifecycle rule of the bucket removes objects of the archive, moves them to a class that must be restored before "
    "it can be read, or removes their earlier versions too early for a repair.",
    "Remove the rule or narrow its filter, as docs/retention.md describes. tsctl gc applies retention.",
)

KINDS: tuple[FindingKind, ...] = tuple(value for value in list(globals().values()) if isinstance(value, FindingKind))
