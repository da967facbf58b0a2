"""`verify` on archives that tests put together: it reports each kind of damage, and nothing else."""

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, batches, steps
from tests.made_wrong_indexes import CASES, IndexCase
from tests.spark.archives import Archive
from tests.tsctl.running import runner
from tests.tsctl.verify.verified import READING, codes, only, put, verify
from ts_common.archive.gap_records import Gap
from ts_common.archive.high_watermarks import End, Ends
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.metadata_cache import CacheEntry, encode_cache_object
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.segment_metadata import decode_metadata
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.model import TopicPartition
from tsctl.verify.finding_kinds import Severity
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verifier

ALL_DEPTHS = pytest.mark.parametrize("depth", list(Depth))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Return three committed segments of topic `t`, `[0,100) [100,200) [200,300)`."""
    made = Archive(tmp_path / "store", entropy_bits=3)
    for base in (0, 100, 200):
        put(made, base, base + 100)
    made.commit("t", 300, highest_base=200)
    return made


def remove(archive: Archive, name: str) -> str:
    key = archive.partition("t").prefix + name
    archive.store.delete([key])
    return key


def key_of(base: int, suffix: str = ".log") -> str:
    return SegmentName(base).stem + suffix


def put_cache_object(archive: Archive, *bases: int) -> None:
    """Put a cache object of the segments with these base offsets."""
    keys = archive.partition("t")
    entries = []
    for info in archive.store.list(keys.prefix):
        parsed = SegmentName.parse(info.key.removeprefix(keys.prefix))
        if parsed is not None and parsed[1] == ".log" and parsed[0].base in bases:
            metadata = decode_metadata(archive.store.head(info.key).metadata, info.key)
            entries.append(CacheEntry(parsed[0], info.size, info.etag, metadata))
    archive.store.put(keys.cache_object(bases[0]), encode_cache_object(keys, entries))


@ALL_DEPTHS
def test_an_archive_without_fault_has_no_finding(archive: Archive, depth: Depth) -> None:
    """Its coverage is what was committed."""
    found = verify(archive, depth)
    assert found.all_findings == []
    (coverage,) = found.coverages
    assert (coverage.where, coverage.start, coverage.end, coverage.segments) == ("t-0", 0, 300, 3)
    assert coverage.held == ((0, 300),)


@READING
def test_a_missing_segment_is_a_hole(archive: Archive, depth: Depth) -> None:
    """It is data loss with its offsets; its indexes are left without a log."""
    remove(archive, key_of(100))
    found = verify(archive, depth)
    assert codes(found) == ["hole", "orphan-index"]
    hole = next(finding for finding in found.all_findings if finding.kind.code == "hole")
    assert (hole.where, hole.start, hole.end, hole.severity) == ("t-0", 100, 200, Severity.DATA_LOSS)
    (coverage,) = found.coverages
    assert (coverage.held, coverage.holes) == (((0, 100), (200, 300)), ((100, 200),))


def test_a_cache_object_reveals_a_hole_at_the_depth_of_the_listing(archive: Archive) -> None:
    """If a cache object has the end of a segment, no other request is needed to find the missing one."""
    put_cache_object(archive, 0, 100, 200)
    assert codes(verify(archive, Depth.LISTING)) == []
    for suffix in (".index", ".timeindex", ".log"):
        remove(archive, key_of(100, suffix))
    hole = only(verify(archive, Depth.LISTING))
    assert (hole.kind.code, hole.start, hole.end) == ("hole", 100, 200)


def test_a_dead_segment_in_a_cache_object_cuts_no_live_segment_at_the_depth_of_the_listing(archive: Archive) -> None:
    """A segment of unknown end is assumed to end at the next live base offset: the dead one between is no hole."""
    put(archive, 150, 400, epoch=0, variant=True)
    put(archive, 300, 350, epoch=2)
    archive.commit("t", 350, highest_base=300, epochs=((0, 0), (2, 100)))
    for base in (100, 200):
        put(archive, base, base + 100, epoch=2)
    put_cache_object(archive, 150, 300)
    dead = only(verify(archive, Depth.LISTING))
    assert (dead.kind.code, dead.start, dead.end) == ("dead-tail", 150, 400)


@ALL_DEPTHS
def test_a_recorded_gap_is_no_hole(archive: Archive, depth: Depth) -> None:
    """It is information, with the reason of its record."""
    keys = archive.partition("t")
    put(archive, 350, 400)
    archive.store.put(keys.gap(300, 350), Gap(300, 350, "retention took it", 1, 1).encode())
    archive.commit("t", 400, highest_base=350)
    if depth is Depth.LISTING:  # it assumes that each segment ends at the next base offset
        assert verify(archive, depth).all_findings == []
        return
    gap = only(verify(archive, depth))
    assert (gap.kind.code, gap.start, gap.end, gap.severity) == ("gap", 300, 350, Severity.INFORMATION)
    assert "retention took it" in gap.detail
    assert gap.key == keys.gap(300, 350)


@READING
def test_an_overlap_is_reported_and_harmless(archive: Archive, depth: Depth) -> None:
    """Two leaders rolled at different offsets."""
    put(archive, 250, 320)
    archive.commit("t", 320, highest_base=250)
    overlap = only(verify(archive, depth))
    assert (overlap.kind.code, overlap.start, overlap.end) == ("overlap", 250, 300)
    assert overlap.severity is Severity.INFORMATION


def test_copies_that_disagree_are_found_by_reading_both(archive: Archive) -> None:
    """Both copies are live at one offset, with different values."""
    log = batches((250, 260)) + batches((260, 270), value=b"other") + batches((270, 320))
    archive.put_segment("t", 250, log, index=b"", timeindex=b"")
    archive.commit("t", 320, highest_base=250)
    found = verify(archive, Depth.FULL)
    assert codes(found) == ["overlap", "overlap-differs"]
    differs = next(finding for finding in found.all_findings if finding.kind.code == "overlap-differs")
    assert (differs.start, differs.severity) == (260, Severity.DAMAGED)


@READING
def test_a_dead_tail_is_reported_and_harmless(archive: Archive, depth: Depth) -> None:
    """An unclean election ended offsets 250 to 300 of the old leader."""
    put(archive, 250, 320, epoch=1)
    archive.commit("t", 320, highest_base=250, epochs=((0, 0), (1, 250)))
    dead = only(verify(archive, depth))
    assert (dead.kind.code, dead.start, dead.end, dead.severity) == ("dead-tail", 250, 300, Severity.INFORMATION)
    assert dead.key == archive.partition("t").segment(SegmentName(200))


@ALL_DEPTHS
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_named(archive: Archive, depth: Depth, suffix: str) -> None:
    """The finding has its own key."""
    key = remove(archive, key_of(100, suffix))
    missing = only(verify(archive, depth))
    assert (missing.kind.code, missing.key, missing.severity) == ("index-missing", key, Severity.DAMAGED)


@READING
def test_a_missing_transaction_index_is_named_where_metadata_binds_one(archive: Archive, depth: Depth) -> None:
    """A segment that never had one is in order."""
    archive.put_segment("t", 300, batches((300, 310)), index=b"", timeindex=b"", txnindex=b"\0" * 34)
    archive.commit("t", 310, highest_base=300)
    key = remove(archive, key_of(300, ".txnindex"))
    missing = only(verify(archive, depth))
    assert (missing.kind.code, missing.key) == ("index-missing", key)


@ALL_DEPTHS
def test_segments_above_the_run_are_orphans_when_they_are_old(archive: Archive, depth: Depth) -> None:
    """Young ones may be in flight."""
    put(archive, 400, 500)
    assert verify(archive, depth, in_flight_seconds=3600).all_findings == []
    orphan = only(verify(archive, depth))
    assert (orphan.kind.code, orphan.start, orphan.severity) == ("orphan-segment", 400, Severity.SUSPICIOUS)


@ALL_DEPTHS
def test_what_belongs_to_nothing_is_named(archive: Archive, depth: Depth) -> None:
    """These are indexes without a log, uncommitted gap records, cache objects without segments, foreign objects."""
    keys = archive.partition("t")
    strays = {
        keys.segment(SegmentName(700), ".index"): "orphan-index",
        keys.gap(700, 800): "orphan-gap",
        keys.cache_object(900): "orphan-cache-object",
        keys.prefix + "README.txt": "foreign-object",
        keys.prefix + "gaps/notes": "foreign-object",
    }
    for key in strays:
        archive.store.put(key, encode_cache_object(keys, []) if "segment-metadata" in key else b"x")
    found = verify(archive, depth)
    assert {finding.key: finding.kind.code for finding in found.all_findings} == strays


@ALL_DEPTHS
def test_a_partition_without_a_commit_is_named(archive: Archive, depth: Depth) -> None:
    """Readers do not see its segments."""
    remove(archive, "offset.wm")
    missing = only(verify(archive, depth))
    assert (missing.kind.code, missing.key) == ("no-commit", archive.partition("t").commit)
    assert missing.severity is Severity.DATA_LOSS


@ALL_DEPTHS
def test_an_invalid_commit_or_log_start_is_named(archive: Archive, depth: Depth) -> None:
    """The finding has its key; the rest of the store is verified all the same."""
    keys = archive.partition("t")
    archive.store.put(keys.commit, b"what is this")
    put(archive, 0, 10, topic="u")
    archive.commit("u", 10)
    found = verify(archive, depth)
    damaged = only(found)
    assert (damaged.kind.code, damaged.key) == ("commit-damaged", keys.commit)
    assert damaged.severity is Severity.DATA_LOSS
    assert [coverage.where for coverage in found.coverages] == ["t-0", "u-0"]


@ALL_DEPTHS
def test_a_lost_log_start_is_named(archive: Archive, depth: Depth) -> None:
    """A lifecycle rule may remove it."""
    key = remove(archive, "log.start")
    missing = only(verify(archive, depth))
    assert (missing.kind.code, missing.key) == ("log-start-wrong", key)


@READING
def test_a_commit_that_names_what_is_not_there(archive: Archive, depth: Depth) -> None:
    """Its first line is the base offset of a segment."""
    archive.commit("t", 300, highest_base=240)
    wrong = only(verify(archive, depth))
    assert (wrong.kind.code, wrong.start) == ("commit-names-missing", 240)


@ALL_DEPTHS
def test_directories_in_the_wrong_place_are_named(archive: Archive, depth: Depth) -> None:
    """They have other bits, another number of bits, or a name that no topic can have."""
    right = archive.partition("t").prefix
    other = "111" if not right.startswith("111") else "000"
    wrong = [f"{other}/{CLUSTER}/t-0/", f"{CLUSTER}/t-0/", f"10/{CLUSTER}/t-0/"]
    for prefix in wrong:
        archive.store.put(prefix + "offset.wm", b"00000000000000000000")
    archive.store.put(f"{other}/{CLUSTER}/some thing/x", b"")
    found = verify(archive, depth)
    assert {finding.key: finding.kind.code for finding in found.all_findings} == {
        **dict.fromkeys(wrong, "wrong-entropy"),
        f"{other}/{CLUSTER}/some thing/": "foreign-object",
    }


@ALL_DEPTHS
def test_an_incarnation_that_the_list_does_not_name_is_found(archive: Archive, depth: Depth) -> None:
    """An operator restored an old list of incarnations."""
    archive.put_incarnations("t", "first")
    assert verify(archive, depth).all_findings == []
    later = archive.keys.partition(TopicPartition("t", 0), "t~second")
    archive.store.put(later.log_start, b"%020d\n" % 0)
    unlisted = only(verify(archive, depth))
    assert (unlisted.kind.code, unlisted.key) == ("incarnation-unlisted", archive.keys.incarnations("t"))
    archive.put_incarnations("t", "first", "second")
    assert verify(archive, depth).all_findings == []


def put_ends(archive: Archive, broker: int, *ends: tuple[str, int, int], days: int = 0) -> None:
    """Write topic, number and high watermark of partitions as a broker's agent does, some days after the first one."""
    written = 1_700_000_000_000 + days * 86_400_000
    partitions = {TopicPartition(topic, number): End(end, written) for topic, number, end in ends}
    archive.store.put(archive.keys.ends_of(broker), Ends(broker, written, partitions).encode())


@ALL_DEPTHS
def test_a_partition_that_an_agent_recorded_and_the_store_lacks_is_found(archive: Archive, depth: Depth) -> None:
    """A partition without a record is in order, and so is one that a broker named two days before the others."""
    put_ends(archive, 1, ("t", 3, 5))
    put_ends(archive, 2, ("t", 0, 300), ("t", 1, 5), ("t", 2, 0), ("u", 0, 7), days=2)
    archive.put_incarnations("u", "first", "second")
    put(archive, 0, 10, topic="u")
    archive.commit("u", 10)
    found = verify(archive, depth).all_findings
    assert [(each.kind.code, each.where, each.severity) for each in found] == [
        ("partition-missing", where, Severity.DATA_LOSS) for where in ("t-1", "u~second-0")
    ]
    assert found[0].key == archive.partition("t", 1).prefix
    one = Verifier(archive.store, archive.keys, Scope(depth, lambda topic, number: (topic, number or 0) == ("t", 0)))
    assert (one.find(), codes(one.run()), sorted(one.topics)) == (1, [], ["t", "u"])


@pytest.mark.parametrize("has_ends", [False, True])
def test_a_topic_that_has_only_its_list_is_found(archive: Archive, has_ends: bool) -> None:
    """Where agents record high watermarks, a topic that they do not name was deleted, and retention left the list."""
    archive.put_incarnations("gone", "first")
    newest = Incarnations("new").opened("first", int(time.time() * 1000), archive.keys)
    archive.store.put(archive.keys.incarnations("new"), newest.encode())  # its agent writes `log.start` next
    if has_ends:
        put_ends(archive, 1, ("t", 0, 300))
    found = [(each.kind.code, each.where) for each in verify(archive, Depth.HEADERS).all_findings]
    assert found == [("partition-missing", "gone")] * (not has_ends)


@ALL_DEPTHS
def test_a_malformed_list_of_incarnations_is_named(archive: Archive, depth: Depth) -> None:
    """Readers reject the topic; its partitions are verified all the same."""
    key = archive.keys.incarnations("t")
    archive.store.put(key, b"what is this")
    found = verify(archive, depth)
    damaged = only(found)
    assert (damaged.kind.code, damaged.where, damaged.key) == ("incarnations-damaged", "t", key)
    assert [coverage.where for coverage in found.coverages] == ["t-0"]


@ALL_DEPTHS
def test_objects_of_a_later_format_are_not_called_damaged(archive: Archive, depth: Depth) -> None:
    """These are a list of incarnations, a commit and a cache object, each in a topic of its own."""
    for topic in ("list", "commit", "cache"):
        put(archive, 0, 100, topic=topic)
        archive.commit(topic, 100)
    commit = archive.partition("commit").commit
    data, _ = archive.store.get(commit)
    cache_object = archive.partition("cache").cache_object(0)
    written = {
        archive.keys.incarnations("list"): Incarnations("list").encode(),
        commit: data,
        cache_object: encode_cache_object(archive.partition("cache"), []),
    }
    for key, content in written.items():
        before, _, fields = content.partition(b"{")
        later = b'{"version":99,' + fields
        if key == cache_object:
            before = b"%08x\n" % crc32c(later.rstrip())
        archive.store.put(key, before + later)
    found = verify(archive, depth)
    assert {finding.key: finding.kind.code for finding in found.all_findings} == dict.fromkeys(written, "newer-format")


@READING
def test_a_segment_of_a_later_format_is_not_called_damaged(archive: Archive, depth: Depth) -> None:
    """Its metadata has the version."""
    key = archive.partition("t").segment(SegmentName(100))
    data, _ = archive.store.get(key)
    archive.store.put(key, data, metadata={**archive.store.head(key).metadata, "ts-version": "99"})
    newer = only(verify(archive, depth))
    assert (newer.kind.code, newer.key, newer.severity) == ("newer-format", key, Severity.SUSPICIOUS)


@ALL_DEPTHS
def test_a_segment_that_was_corrupt_on_the_brokers_disk_is_named(archive: Archive, depth: Depth) -> None:
    """Its bytes are those that were shipped; its metadata, and that in a cache object, count the corrupt places."""
    log = bytearray(batches(*steps(100, 200)))
    log[len(batches(*steps(100, 150))) + HEADER_SIZE] ^= 1  # the first record of a batch
    archive.put_segment("t", 100, bytes(log), index=b"", timeindex=b"")
    put_cache_object(archive, 100)
    corrupt = only(verify(archive, depth))
    key = archive.partition("t").segment(SegmentName(100))
    assert (corrupt.kind.code, corrupt.key, corrupt.start) == ("shipped-corrupt", key, 100)


@READING
def test_another_segments_object_under_a_name_is_named(archive: Archive, depth: Depth) -> None:
    """A tool put it there with its metadata: no object has the offsets of the name, and both its indexes do not fit."""
    one, other = (archive.partition("t").segment(SegmentName(base)) for base in (100, 200))
    for base in (100, 200):
        index = struct.pack(">ii", 19, len(batches((base, base + 10))))
        times = struct.pack(">qi", 1000 + base + 99, 99)
        archive.put_segment("t", base, batches(*steps(base, base + 100)), index=index, timeindex=times)
    assert codes(verify(archive, depth)) == []
    archive.store.put(one, archive.store.get(other)[0], metadata=archive.store.head(other).metadata)
    found = verify(archive, depth)
    assert codes(found) == ["overlap", "segment-damaged"]
    damaged = next(each for each in found.all_findings if each.kind.code == "segment-damaged")
    assert (damaged.key, damaged.start, damaged.end) == (one, 100, None)
    assert "another segment's: it begins at offset 200; expected 100" in damaged.detail


def test_a_flipped_bit_is_found_by_reading_every_byte(archive: Archive) -> None:
    """The segment, the position and the batch are reported; reading headers cannot find it."""
    ahead = len(batches(*steps(100, 190)))
    index = (90).to_bytes(4, "big") + ahead.to_bytes(4, "big")  # of the last batch; `headers` reads it
    archive.store.put(archive.partition("t").segment(SegmentName(100), ".index"), index)
    key = flip(archive, 100, lambda size: size // 2 + 30)
    assert verify(archive, Depth.HEADERS).all_findings == []
    damaged = only(verify(archive, Depth.FULL))
    assert (damaged.kind.code, damaged.key, damaged.start) == ("segment-damaged", key, 100)
    assert "CRC" in damaged.detail


def test_a_bit_that_no_batch_covers_is_found_by_the_objects_crc(archive: Archive) -> None:
    """The batch CRC does not include the leader epoch."""
    key = flip(archive, 100, lambda _: 15)
    found = verify(archive, Depth.FULL)
    assert {(finding.kind.code, finding.key) for finding in found.all_findings} == {("segment-damaged", key)}
    wrong = only(verify(archive, Depth.HEADERS))  # it is visible in the first batch
    assert (wrong.kind.code, wrong.key) == ("metadata-wrong", key)


@READING
def test_damage_in_the_last_batches_is_found_by_their_headers(archive: Archive, depth: Depth) -> None:
    """Everything after the last entry of the index is read."""
    key = flip(archive, 100, lambda size: size - 3)
    damaged = only(verify(archive, depth)) if depth is Depth.FULL else verify(archive, depth).all_findings[0]
    assert (damaged.kind.code, damaged.key) == ("segment-damaged", key)


@READING
def test_an_index_that_leads_nowhere_is_named(archive: Archive, depth: Depth) -> None:
    """Its entry points into the middle of a batch."""
    keys = archive.partition("t")
    archive.store.put(keys.segment(SegmentName(100), ".index"), (50).to_bytes(4, "big") + (33).to_bytes(4, "big"))
    wrong = only(verify(archive, depth))
    assert (wrong.kind.code, wrong.key) == ("index-wrong", keys.segment(SegmentName(100), ".index"))


@READING
def test_metadata_that_cannot_be_right_is_named(archive: Archive, depth: Depth) -> None:
    """The metadata covers fewer offsets than the batches contain."""
    archive.put_segment("t", 200, batches(*steps(200, 300)), index=b"", timeindex=b"", end=290)
    found = verify(archive, depth)
    assert codes(found) == ["hole", "metadata-wrong"]


@pytest.mark.parametrize("made", CASES)
def test_metadata_that_names_a_wrong_index_is_named(archive: Archive, made: Callable[[int, int], IndexCase]) -> None:
    """Every byte is read to compare the index with the batches; the right index has no finding."""
    case, keys = made(300, 0), archive.partition("t")
    archive.commit("t", 310, highest_base=300)
    case.put(archive.store, keys, case.right)
    assert codes(verify(archive, Depth.FULL)) == []
    case.put(archive.store, keys, case.wrong)
    wrong = only(verify(archive, Depth.FULL))
    assert (wrong.kind.code, wrong.key) == ("metadata-wrong", keys.segment(SegmentName(300)))
    assert case.suffix in wrong.detail


def test_segments_of_a_java_uploader_are_one_finding(archive: Archive) -> None:
    """A copy of the bucket lost their metadata, or a Java uploader wrote them: the commit shows which."""
    keys = archive.partition("t")
    for base in (0, 100, 200):
        archive.store.put(keys.segment(SegmentName(base)), batches(*steps(base, base + 100)))
    assert codes(verify(archive, Depth.HEADERS)) == ["metadata-missing"] * 3
    archive.store.put(keys.commit, b"%020d" % 200)
    assert only(verify(archive, Depth.FULL)).kind.code == "java-segments"


def test_records_that_do_not_decode_are_found(archive: Archive) -> None:
    """Their batch has the right CRC, and a length in it exceeds the batch."""
    bad = batch(300, [b"\x7f" + record(0, b"k", b"v")[1:]])
    archive.put_segment("t", 300, bad, index=b"", timeindex=b"")
    archive.commit("t", 301, highest_base=300)
    assert verify(archive, Depth.HEADERS).all_findings == []
    damaged = only(verify(archive, Depth.FULL))
    assert damaged.kind.code == "segment-damaged"
    assert "300" in damaged.detail


def test_only_what_is_selected_is_verified(archive: Archive) -> None:
    """Other topics and partitions are not checked."""
    put(archive, 0, 10, topic="u")
    scope = Scope(Depth.LISTING, lambda topic, partition: topic == "t" and partition in {None, 0}, all_topics=False)
    verifier = Verifier(archive.store, archive.keys, scope)
    assert verifier.find() == 1
    found = verifier.run()
    assert [coverage.where for coverage in found.coverages] == ["t-0"]


def flip(archive: Archive, base: int, place: Callable[[int], int]) -> str:
    """Flip a bit of a `.log`, without changing its metadata."""
    key = archive.partition("t").segment(SegmentName(base))
    data, info = archive.store.get(key)
    at = place(len(data))
    archive.store.put(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], metadata=info.metadata)
    return key


def test_findings_of_one_kind_in_a_partition_are_one_row(archive: Archive, capfd: pytest.CaptureFixture[str]) -> None:
    """A compacted topic has hundreds of overlaps; `--each` and JSON have every one."""
    for base in range(0, 200, 10):
        put(archive, base, base + 10, topic="u")
        archive.put_segment("u", base, batches((base, base + 10)), variant=True, index=b"", timeindex=b"")
    archive.commit("u", 200, highest_base=190)
    place = ("--url", archive.location, "--cluster", "prod", "--entropy-bits", "3")
    run = runner(capfd)
    table = [line for line in run("verify", *place).out.splitlines() if line.startswith("information overlap ")]
    assert len(table) == 1
    assert table[0].split()[2:5] == ["u-0", "0", "200"]
    assert "(and 19 more: --each)" in table[0]
    ended = run("verify", *place, "--each")
    assert sum(line.startswith("information overlap ") for line in ended.out.splitlines()) == 20
    ended = run("verify", *place, "--severity", "damaged", "--fail-on", "information")
    assert (ended.code, "overlap" in ended.out, "; 20 not shown" in ended.out) == (1, False, True)
    assert run("verify", *place, "--severity", "damaged", "--json").document["findings"] == []
    assert len(run("verify", *place, "--json").document["findings"]) == 20
    assert "--severity=bad: expected one of" in run("verify", *place, "--severity", "bad").err
