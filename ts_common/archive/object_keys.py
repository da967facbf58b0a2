"""The keys of all objects in the store. No other module spells keys.

::

    <bits>/<cluster>/<topic>-<partition>/00000000000000000100.log              a segment
    <bits>/<cluster>/<topic>-<partition>/00000000000000000100.index            (.timeindex .txnindex)
    <bits>/<cluster>/<topic>-<partition>/00000000000000000100.e7.1a2b3c4d.log  a variant of it
    <bits>/<cluster>/<topic>-<partition>/00000000000000000100.e7.1a2b3c4d.r1.log  the repair of a variant
    <bits>/<cluster>/<topic>-<partition>/offset.wm                             the commit
    <bits>/<cluster>/<topic>-<partition>/log.start
    <bits>/<cluster>/<topic>-<partition>/gaps/<from>-<to>.json
    <bits>/<cluster>/<topic>-<partition>/erased/<n>.bin                        a list of erased offsets
    <bits>/<cluster>/<topic>-<partition>/segment-metadata/00000000000000000100.json    for segments from 100 on
    <bits>/<cluster>/<topic>-<partition>/segment-metadata/0-5000.1a2b3c4d.seal  for all segments of these offsets
    <bits>/<cluster>/<topic>-<partition>/segment-metadata/seal.json         the sealed ranges that count
    <bits>/<cluster>/<topic>/incarnations.json                 under the entropy bits of partition 0
    <bits>/<cluster>/<topic>~<topic id>-<partition>/...        a later incarnation; entropy bits of the plain name
    ts-uploader~cluster~<cluster>/layout.json                          the number of entropy bits
    ts-uploader~cluster~<cluster>/ends/<broker>.json                   the high watermarks of a broker's partitions
    ts-uploader~cluster~<cluster>/positions/<broker>.json.gz           where their archives ended
    ts-uploader~cluster~<cluster>/groups/<group, percent-encoded>.json the committed offsets of a consumer group
    ts-uploader~cluster~<cluster>/gc/<run>.jsonl                       what a run of retention did
    ts-uploader~cluster~<cluster>/gc/log-start/<topic>-<partition>     the copy of a partition's log.start
    ts-uploader~cluster~<cluster>/holds/<name>.json                    a hold, which stops retention
    ts-uploader~cluster~<cluster>/holds/removed/<name>-<time>.json     a hold that was removed
    ts-uploader~cluster~<cluster>/meta/cluster/20261129T1500Z.json.gz  a snapshot of the cluster's metadata; or groups/
    ts-uploader~cluster~<cluster>/repairs/<id>.json                    a request to repair; <id>.done.json its answer
    ts-uploader~cluster~<cluster>/erasures/<id>.json                   a request to erase
    ts-uploader~cluster~<cluster>/tail/<log>/packs/<12 hex>            a pack of the live tail; merged/<n>-<nonce>
    ts-uploader~cluster~<cluster>/find/<topic>[~<topic id>]/<run>/     an index of keys: <xx>.parquet, objects.parquet
    ts-uploader~cluster~<cluster>/seals/<n>.json                       signed hashes of what the archive has; <n>.tsr
    ts-uploader~cluster~<cluster>/restored.json                        which topics a restore continued from elsewhere
    ts-uploader~probe                                                  the probe object, written at an agent's start

The layout, the entropy bits and the 20-digit names are those of the Java uploader; `tests/data/entropy.csv` has the
values that the Java original computed.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from ts_common.model import TopicPartition

COMMIT_NAME = "offset.wm"
LOG_START_NAME = "log.start"
GAPS_DIRECTORY = "gaps/"
ERASED_DIRECTORY = "erased/"
CACHE_DIRECTORY = "segment-metadata/"
# Agents before lineages wrote the same cache here. No component reads it any more, and it can be removed.
FORMER_CACHE_DIRECTORY = "chapters/"
SEAL_NAME = "seal.json"
INCARNATIONS_NAME = "incarnations.json"
# `~` is not allowed in a cluster id, and this is not a directory: no listing of clusters or topics contains it.
PROBE_NAME = "ts-uploader~probe"
# For objects of a whole cluster, whatever its entropy width. Because of the `~`, no cluster can have this name.
CLUSTER_DIRECTORY = "ts-uploader~cluster~"
LAYOUT_NAME = "layout.json"
ENDS_DIRECTORY = "ends/"
POSITIONS_DIRECTORY = "positions/"
GROUPS_DIRECTORY = "groups/"
GC_DIRECTORY = "gc/"
LOG_START_COPIES = "log-start/"
HOLDS_DIRECTORY = "holds/"
REMOVED_HOLDS_DIRECTORY = "removed/"
META_DIRECTORY = "meta/"
RESTORED_NAME = "restored.json"
TAIL_DIRECTORY = "tail/"
PACKS_DIRECTORY = "packs/"
FIND_DIRECTORY = "find/"
REPAIRS_DIRECTORY = "repairs/"
SEALS_DIRECTORY = "seals/"
ERASURES_DIRECTORY = "erasures/"
LOG_SUFFIX = ".log"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

OFFSET_DIGITS = 20
MAX_ENTROPY_BITS = 128  # the length of MD5
MAX_REPAIRS = 9999  # four digits in a name
MAX_PACK = (1 << 48) - 1
_MAX_OFFSET = (1 << 63) - 1
_BELOW_EPOCHS = -2  # of the plain name; magic 0 and 1 have the epoch -1

_PACK = re.compile("[0-9a-f]{12}")
_MERGED = re.compile(r"merged/[0-9]{1,15}-[0-9a-f]{1,32}")
_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})"
    r"(?:\.e(?P<epoch>-1|0|[1-9][0-9]{0,9})\.(?P<crc>[0-9a-f]{8})(?:\.r(?P<repair>[1-9][0-9]{0,3}))?)?"
    r"(?P<suffix>\.log|\.index|\.timeindex|\.txnindex)"
)


def entropy(cluster: str, partition: TopicPartition, bits: int) -> str:
    """Return the leftmost `bits` bits of MD5 over `<cluster>-<topic>-<partition>`, as `0` and `1`.

    The text is empty if `bits` is below 1. MD5 spreads keys here; it does not protect data.

    Raises:
        ValueError: more bits than MD5 has.
    """
    if bits > MAX_ENTROPY_BITS:
        raise ValueError(f"{bits} entropy bits: MD5 has {MAX_ENTROPY_BITS}")
    if bits < 1:
        return ""
    digest = hashlib.md5(f"{cluster}-{partition}".encode(), usedforsecurity=False).digest()
    return format(int.from_bytes(digest, "big") >> (MAX_ENTROPY_BITS - bits), f"0{bits}b")


def partition_of(directory: str) -> TopicPartition | None:
    """Return the partition of a directory's name in the store, of any incarnation; None for another name."""
    topic, tilde, later = directory.partition("~")
    return TopicPartition.parse(f"{topic}-{later.rpartition('-')[2]}" if tilde else directory)


def encoded_group(group: str) -> str:
    """Return the id of a consumer group as a part of a key: all but letters, digits and `_.-~` is percent-encoded."""
    return quote(group, safe="")


def pack_name(number: int) -> str:
    """Return the name of a pack below its log: a listing has the newest first."""
    return f"{PACKS_DIRECTORY}{MAX_PACK - number:012x}"


def pack_number(name: str) -> int | None:
    """Return the number of a pack, by its name below the log; None for another name."""
    digits = name.removeprefix(PACKS_DIRECTORY)
    if len(name) != len(PACKS_DIRECTORY) + len(digits) or not _PACK.fullmatch(digits):
        return None
    return MAX_PACK - int(digits, 16)


def is_tail_object(name: str) -> bool:
    """Return whether an agent gives an object of its log of packs this name, below the log."""
    return pack_number(name) is not None or _MERGED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """A segment's name in the store: its base offset and, for a variant, its epoch, CRC-32C and number of the repair.

    Attributes:
        base: base offset.
        epoch: leader epoch of the agent that shipped it, never of its batches; None for the plain name.
        crc32c: CRC-32C of the whole `.log`; None for the plain name.
        repair: from 1 to `MAX_REPAIRS`, where a damaged object has the same epoch and CRC-32C in its name; else None.
    """

    base: int
    epoch: int | None = None
    crc32c: int | None = None
    repair: int | None = None

    @property
    def stem(self) -> str:
        """The name without a suffix, which is common to the four objects."""
        plain = f"{self.base:020d}"
        if self.epoch is None:
            return plain
        repaired = "" if self.repair is None else f".r{self.repair}"
        return f"{plain}.e{self.epoch}.{self.crc32c:08x}{repaired}"

    @property
    def rank(self) -> tuple[int, int]:
        """Among equally good copies, readers use the one with the greatest: the later name of the same records.

        A repair is above all names without one, and a variant above the plain name.
        """
        return self.repair or 0, _BELOW_EPOCHS if self.epoch is None else self.epoch

    @classmethod
    def parse(cls, file_name: str) -> tuple[Self, str] | None:
        """Return the name and suffix in a segment object's file name; None for any other name.

        >>> SegmentName.parse("00000000000000000100.log")
        (SegmentName(base=100, epoch=None, crc32c=None, repair=None), '.log')
        """
        match = _SEGMENT_FILE.fullmatch(file_name)
        if match is None or int(match["base"]) > _MAX_OFFSET:
            return None
        if match["epoch"] is None:
            return cls(int(match["base"])), match["suffix"]
        repair = None if match["repair"] is None else int(match["repair"])
        return cls(int(match["base"]), int(match["epoch"]), int(match["crc"], 16), repair), match["suffix"]


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition in one incarnation of its topic.

    Attributes:
        prefix: the part of each key before the object's own name, with the final slash.
    """

    partition: TopicPartition
    prefix: str

    @property
    def commit(self) -> str:
        """Key of `offset.wm`."""
        return self.prefix + COMMIT_NAME

    @property
    def log_start(self) -> str:
        """Key of `log.start`."""
        return self.prefix + LOG_START_NAME

    @property
    def directory(self) -> str:
        """The name of the partition's directory, which differs between incarnations."""
        return self.prefix.rstrip("/").rpartition("/")[2]

    @property
    def cluster(self) -> "ClusterKeys":
        """The keys of the cluster."""
        *bits, cluster, _ = self.prefix.rstrip("/").split("/")
        return ClusterKeys(cluster, len("".join(bits)))

    @property
    def incarnation(self) -> str:
        """The directory of the topic's incarnation, as `Incarnation.directory`: without the partition's number."""
        return self.directory.rpartition("-")[0]

    def name_in(self, cluster: "ClusterKeys") -> str:
        """Return the name of the directory among those of a cluster: its path, if it is of another one."""
        return self.directory if self.cluster == cluster else self.prefix.rstrip("/")

    @property
    def cache_objects(self) -> str:
        """The common prefix of all cache objects."""
        return self.prefix + CACHE_DIRECTORY

    @property
    def erased(self) -> str:
        """The common prefix of the lists of erased offsets."""
        return self.prefix + ERASED_DIRECTORY

    @property
    def marks(self) -> str:
        """A key between those of segments and those of `gaps/`, `log.start` and commit, to begin a listing after.

        It has two characters because some drivers list from the key with the last character removed
        (`ts_common.store.listing`).
        """
        return self.prefix + "dd"

    def cache_object(self, first_base: int) -> str:
        """Return the key of the cache object whose first segment begins at `first_base`."""
        return f"{self.cache_objects}{first_base:020d}.json"

    @property
    def seal_json(self) -> str:
        """Key of the list of sealed ranges."""
        return self.cache_objects + SEAL_NAME

    def gap(self, start: int, end: int) -> str:
        """Return the key of the gap record for the offsets `[start, end)`."""
        return f"{self.prefix}{GAPS_DIRECTORY}{start}-{end}.json"

    def segment(self, name: SegmentName, suffix: str = LOG_SUFFIX) -> str:
        """Return the key of one of a segment's four objects."""
        return self.prefix + name.stem + suffix


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The keys of one cluster.

    Attributes:
        cluster: the cluster's id, as in the name of its properties file.
        entropy_bits: number of leading MD5 bits in each key; below 1 for keys without them.
    """

    cluster: str
    entropy_bits: int = 0

    def partition(self, partition: TopicPartition, directory: str | None = None) -> PartitionKeys:
        """Return the keys of a partition; `directory` is that of its incarnation, by default the topic's name."""
        name = f"{directory or partition.topic}-{partition.partition}"
        return PartitionKeys(partition, f"{self._prefix_of(partition)}{name}/")

    def incarnations(self, topic: str) -> str:
        """Return the key of the list of a topic's incarnations."""
        return f"{self._prefix_of(TopicPartition(topic, 0))}{topic}/{INCARNATIONS_NAME}"

    def later_incarnation(self, topic: str, topic_id: str) -> str:
        """Return the directory of an incarnation after the first; no topic name can contain `~`."""
        return f"{topic}~{topic_id}"

    @property
    def cluster_prefix(self) -> str:
        """The common prefix of objects of the whole cluster."""
        return f"{CLUSTER_DIRECTORY}{self.cluster}/"

    @property
    def in_text(self) -> re.Pattern[str]:
        """Matches the beginning of each key of the cluster in a text, unless something precedes it as in a URL.

        Group 1 is the directory of a topic or partition; None for objects of the whole cluster.
        """
        cluster = re.escape(self.cluster)
        directory = rf'(?:[01]+/)?{cluster}/([^/\n"]+)/'
        return re.compile(rf"(?<![\w/.~%-])(?:{re.escape(self.cluster_prefix)}|{directory})")

    @property
    def layout(self) -> str:
        """Key of the layout."""
        return self.cluster_prefix + LAYOUT_NAME

    @property
    def ends(self) -> str:
        """The common prefix of all brokers' ends."""
        return self.cluster_prefix + ENDS_DIRECTORY

    def ends_of(self, broker: int) -> str:
        """Return the key of a broker's ends."""
        return f"{self.ends}{broker}.json"

    def positions_of(self, broker: int) -> str:
        """Return the key of a broker's positions (`ts_common.archive.positions`)."""
        return f"{self.cluster_prefix}{POSITIONS_DIRECTORY}{broker}.json.gz"

    @property
    def groups(self) -> str:
        """The common prefix of the committed offsets of all groups."""
        return self.cluster_prefix + GROUPS_DIRECTORY

    @property
    def gc(self) -> str:
        """The common prefix of what `tsctl gc` writes: reports, copies of `log.start`, absent topics."""
        return self.cluster_prefix + GC_DIRECTORY

    @property
    def log_start_copies(self) -> str:
        """The common prefix of the copies of all `log.start`; agents may only read them."""
        return self.gc + LOG_START_COPIES

    def log_start_copy(self, keys: PartitionKeys) -> str:
        """Return the key of the copy of a partition's `log.start`."""
        return self.log_start_copies + keys.directory

    @property
    def meta(self) -> str:
        """The common prefix of all metadata snapshots (`ts_common.archive.snapshots`)."""
        return self.cluster_prefix + META_DIRECTORY

    @property
    def restored(self) -> str:
        """Key of the record of restored topics; agents may only read it."""
        return self.cluster_prefix + RESTORED_NAME

    @property
    def tails(self) -> str:
        """The common prefix of all logs of packs; agents delete below it, and nowhere else."""
        return self.cluster_prefix + TAIL_DIRECTORY

    def tail(self, log: str) -> str:
        """Return the common prefix of a log of packs."""
        return f"{self.tails}{log}/"

    def find(self, incarnation: str) -> str:
        """Return the common prefix of the index of an incarnation's keys; agents may not write below it.

        Args:
            incarnation: its directory, as `PartitionKeys.incarnation`.
        """
        return f"{self.finds}{incarnation}/"

    @property
    def finds(self) -> str:
        """The common prefix of the indexes of keys of all incarnations."""
        return self.cluster_prefix + FIND_DIRECTORY

    @property
    def repairs(self) -> str:
        """The common prefix of requests to repair and of their answers."""
        return self.cluster_prefix + REPAIRS_DIRECTORY

    def offsets_of(self, group: str) -> str:
        """Return the key of a group's committed offsets."""
        return f"{self.groups}{encoded_group(group)}.json"

    def group_of(self, key: str) -> str | None:
        """Return the group whose committed offsets have this key; None for any other key."""
        group = unquote(key.removeprefix(self.groups).removesuffix(".json"))
        return group if self.offsets_of(group) == key else None

    @property
    def seals(self) -> str:
        """The common prefix of all seals, and of their timestamp tokens; agents may not write below it."""
        return self.cluster_prefix + SEALS_DIRECTORY

    def seal(self, number: int) -> str:
        """Return the key of a seal."""
        return f"{self.seals}{number}.json"

    def seal_token(self, number: int) -> str:
        """Return the key of the timestamp token of a seal."""
        return f"{self.seals}{number}.tsr"

    @property
    def erasures(self) -> str:
        """The common prefix of the records of erasures; agents may not write below it."""
        return self.cluster_prefix + ERASURES_DIRECTORY

    @property
    def holds(self) -> str:
        """The common prefix of all holds, and of the traces of removed ones."""
        return self.cluster_prefix + HOLDS_DIRECTORY

    def hold(self, name: str) -> str:
        """Return the key of a hold."""
        return f"{self.holds}{name}.json"

    @property
    def removed_holds(self) -> str:
        """The common prefix of the traces of removed holds."""
        return self.holds + REMOVED_HOLDS_DIRECTORY

    def removed_hold(self, name: str, time: int) -> str:
        """Return the key of the trace of a hold that was removed at a time, in milliseconds since the epoch."""
        return f"{self.removed_holds}{name}-{time}.json"

    def _prefix_of(self, partition: TopicPartition) -> str:
        bits = entropy(self.cluster, partition, self.entropy_bits)
        return f"{bits}/{self.cluster}/" if bits else f"{self.cluster}/"
