"""The policies of deploy/iam for agents, readers, endpoints and tables, and the bucket's settings, with moto."""

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dev.local import forks
from dev.local.ports import free_ports
from tests.deploy.identities import (
    ADMINISTRATOR,
    BUCKET,
    KEYS,
    LOCATION,
    POLICIES,
    WIDE_UPLOADER,
    As,
    archive_of_one_topic,
    document,
    removed,
)
from tests.spark.archives import Archive
from ts_common.archive.group_offsets import Committed
from ts_common.archive.object_keys import FORMER_CACHE_DIRECTORY, INDEX_SUFFIXES, ClusterKeys, SegmentName
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, ClusterSnapshot, GroupsSnapshot
from ts_common.archive.table_claims import claims_key
from ts_common.errors import AccessDenied, PreconditionFailed
from ts_common.model import TopicPartition
from ts_common.store.contract import IfAbsent, IfMatch
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.store.wrappers.deletable import DeletesBelow
from ts_endpoint.cli import run as run_endpoint
from ts_endpoint.groups.offsets import Unwritten
from ts_endpoint.groups.offsets_store import OffsetsStore
from ts_uploader.findings import Severity
from ts_uploader.stores.store_check import problems_of
from ts_uploader.stores.store_findings import deep_check
from tsctl.cli import run as run_tsctl
from tsctl.exit_codes import ExitCode

_ADDRESSES = ("--listen", "--http-address")


def test_an_uploader_may_do_what_an_agent_does_and_never_remove(store_as: As) -> None:
    """The checks at its start, `ts-uploader check`, conditional puts; no delete of segments, and no other prefix."""
    store = store_as("uploader")
    endpoint = Endpoint(LOCATION, StorageOptions())
    assert problems_of(store, KEYS, endpoint, lambda _: store_as("uploader"), conditional=True) == []
    found = deep_check(store_as("uploader"), KEYS, endpoint, has_tail=True)
    assert [each for each in found if each.severity is not Severity.OK] == []
    assert any("may not delete segments" in each.found for each in found)
    assert any("may put and delete below ts-uploader~cluster~prod/tail/" in each.found for each in found)
    assert any("versions of deleted packs are removed after 1 day" in each.found for each in found)
    with closing(archive_of_one_topic().store) as written:
        keys = Archive(LOCATION, KEYS.entropy_bits).partition("clicks")
        etag = written.put(keys.commit, b"2\n", condition=IfMatch(written.head(keys.commit).etag)).etag
        assert written.head(keys.commit).etag == etag
        written.put(keys.gap(7, 9), b"{}", condition=IfAbsent())
        assert len(list(written.list())) > 6
        for key in (keys.commit, keys.segment(SegmentName(0))):
            assert not removed(key)
            with pytest.raises(AccessDenied):
                written.delete([key])
            assert written.get(key)[0]
    outside = f"s3://{BUCKET}/base/other"
    with closing(open_store(outside)) as other, pytest.raises(AccessDenied):
        other.put("a", b"x")


def test_an_uploader_may_delete_packs_of_the_live_tail_and_nothing_else(
    store_as: As,
) -> None:
    """One object of each kind; also if another policy of the identity allows each deletion."""
    cluster = ClusterKeys("removals", 5)
    keys = cluster.partition(TopicPartition("clicks", 0))
    pack = cluster.tail("1.log") + "packs/ffffffffffff"
    segment = keys.segment(SegmentName(0))
    others = (
        *(segment, *(segment.replace(".log", suffix) for suffix in INDEX_SUFFIXES)),
        *(keys.commit, keys.log_start, keys.gap(7, 9), keys.seal_json, keys.cache_objects + "7.json"),
        *(f"{keys.prefix}{FORMER_CACHE_DIRECTORY}7.json", f"{keys.prefix}erased/1.bin"),
        *(
            cluster.incarnations("clicks"),
            cluster.layout,
            cluster.ends_of(1),
            cluster.positions_of(1),
            cluster.restored,
        ),
        *(
            cluster.log_start_copy(keys),
            f"{cluster.gc}gc-1.jsonl",
            claims_key(cluster, "export.t"),
            cluster.offsets_of("g"),
        ),
        *(cluster.hold("undo-1"), f"{cluster.repairs}1.json", f"{cluster.meta}cluster/x.json.gz"),
        *(cluster.cluster_prefix + name for name in ("erasures/1.json", "find/clicks/1/00.parquet", "seals/1.json")),
        cluster.partition(TopicPartition("tail", 0)).segment(SegmentName(0)),
    )
    administrator = store_as(ADMINISTRATOR)
    for key in (pack, *others):
        administrator.put(key, b"x")
    for user in ("uploader", WIDE_UPLOADER):
        store_as(user)
        assert [key for key in others if removed(key)] == []
    assert removed(pack)
    etag = store_as("uploader").put(pack, b"x", condition=IfAbsent()).etag
    store = DeletesBelow(store_as("uploader"), cluster.tails, threads=1)
    assert store.delete_matching({pack: etag}).removed == (pack,)


def test_an_uploader_may_write_metadata_snapshots_and_an_endpoint_may_not(store_as: As) -> None:
    """The right on `groups/` of the cluster is not one on `meta/groups/`."""
    now = int(time.time() * 1000)
    groups, hour = GroupsSnapshot(now // FIVE_MINUTES * FIVE_MINUTES, {}), now // HOUR * HOUR
    cluster = ClusterSnapshot(hour, 1, None, {}, {}, (), (), ())
    store = store_as("uploader")
    cluster.put(store, KEYS, hour)
    groups.put(store, KEYS, groups.time)
    with pytest.raises(PreconditionFailed):
        groups.put(store, KEYS, groups.time)
    assert GroupsSnapshot.newest(store, KEYS, now) == groups
    keys = (ClusterSnapshot.key(KEYS, hour), GroupsSnapshot.key(KEYS, groups.time))
    assert not any(map(removed, keys))
    endpoint = store_as("endpoint")
    assert ClusterSnapshot.newest(endpoint, KEYS, now) == cluster
    for key in keys:
        with pytest.raises(AccessDenied):
            endpoint.put(key, b"x")
        assert not removed(key)


def test_an_uploader_may_write_nothing_that_a_deletion_trusts(store_as: As) -> None:
    """Copies of log.start, reports, claims, holds, and objects of later releases; but a topic can be named erased."""
    store = store_as("uploader")
    keys = KEYS.partition(TopicPartition("clicks", 0))
    later = ("erasures/1.json", "find/clicks/1/00.parquet", "restored.json", "seals/1.json")
    for key in (
        *(KEYS.log_start_copy(keys), f"{KEYS.gc}gc-1.jsonl", f"{KEYS.gc}absent.json"),
        *(claims_key(KEYS, "export.t"), KEYS.offsets_of("g"), KEYS.hold("undo-1"), f"{keys.prefix}erased/1.bin"),
        *(KEYS.cluster_prefix + name for name in later),
    ):
        with pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())
    archive = archive_of_one_topic("erased")
    archive.put_incarnations("erased", "an-id")
    archive.store.close()


def test_a_reader_may_read_all_of_it_and_change_nothing(store_as: As, capfd: pytest.CaptureFixture[str]) -> None:
    """`tsctl verify` sends all requests of readers; puts of old and new keys and a delete are rejected."""
    store_as("uploader")
    archive_of_one_topic().store.close()
    store = store_as("reader")
    code = run_tsctl(
        ["verify", "--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5", "--depth", "full", "clicks"]
    )
    assert code == ExitCode.FINE, capfd.readouterr()
    commit = Archive(LOCATION, KEYS.entropy_bits).partition("clicks").commit
    for key in (commit, "new"):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
    assert not removed(commit)


def test_an_endpoint_may_write_offsets_of_groups_and_nothing_else(store_as: As) -> None:
    """It reads the archive; reads, merges, lists and deletes groups. Puts and deletes of other keys are rejected."""
    store_as("uploader")
    archive = archive_of_one_topic("served")
    keys = archive.partition("served")
    archive.store.close()
    store = store_as("endpoint")
    assert store.get(keys.commit)[0]
    groups = OffsetsStore(store, KEYS, lambda: 1)
    orders = TopicPartition("orders", 0)
    written = Unwritten("a/b", {orders: Committed(1, -1, 1, "")}, frozenset({orders}), 0, None, is_read=True)
    base = groups.write(written)
    later = replace(written, offsets={orders: Committed(2, -1, 2, "")}, etag=base.etag)
    assert groups.write(later) == groups.read("a/b")
    assert groups.write(written) == groups.read("a/b")  # its condition does not hold
    assert [name for name, _ in groups.groups()] == ["a/b"]
    assert removed(KEYS.offsets_of("a/b"))
    assert list(groups.groups()) == []
    for key in (
        keys.commit,
        keys.segment(SegmentName(0)),
        keys.log_start,
        KEYS.layout,
        KEYS.ends_of(1),
        "groups/a.json",
    ):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
        assert not removed(key)


def test_an_endpoint_that_may_only_read_ends_with_both_ways_out(
    store_as: As, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would serve groups, and lose their offsets."""
    store_as("uploader")
    archive_of_one_topic("served").store.close()
    store_as("reader")
    addresses = [f"{option}=127.0.0.1:{port}" for option, port in zip(_ADDRESSES, free_ports(2), strict=True)]
    named = ["--url", LOCATION, "--cluster", "prod", "--entropy-bits", str(KEYS.entropy_bits)]
    assert run_endpoint(["serve", *named, *addresses]) == 2
    said = capsys.readouterr().err
    assert "--groups store: " in said
    assert "allow this identity s3:PutObject, or set --groups memory" in said


def test_tables_may_write_their_claims_and_nothing_else(store_as: As, tmp_path: Path) -> None:
    """A reader's run adds rows and warns, and its drop names what it left; puts and deletes of other keys fail."""
    store_as("uploader")
    archive = archive_of_one_topic("tabled")
    commit = archive.partition("tabled").commit
    archive.store.close()
    tables = "{export.t: {topics: tabled, isolation: read_uncommitted, format: json, location: 'file://%s/lake'}}"
    file = tmp_path / "tables.yaml"
    file.write_text(
        f"archive: {{url: '{LOCATION}', cluster: prod, prefix_entropy_bits: 5}}\ntables: {tables % tmp_path}\n"
    )

    def run(*arguments: str) -> tuple[int, str]:  # a process of its own: this one keeps clients of the first user
        command = ["tsctl", "tables", *arguments, "--file", str(file)]
        ended = forks.run(command, cwd=tmp_path, env=os.environ, timeout=60)
        return ended.returncode, ended.stderr

    claims = claims_key(KEYS, "export.t")
    for user, written in (("tables", True), ("reader", False)):
        store = store_as(user)
        if written:
            assert run("create")[0] == ExitCode.FINE
        code, err = run("run", "--workers", "1")
        assert (code, "table_claims_not_written" in err) == (ExitCode.FINE, not written), err
        assert [info.key for info in store.list(claims)] == [claims] * written
        for key in (commit, KEYS.layout, "claims/a.json"):
            with pytest.raises(AccessDenied):
                store.put(key, b"x")
            assert not removed(key)
        assert removed(claims) == written
        if not written:
            code, err = run("drop", "export.t", "--yes", "--purge")
            assert code == ExitCode.REFUSED
            assert "table export.t was removed, but not its claims in the archive" in err


def test_no_policy_allows_more_than_it_names() -> None:
    """No action by a pattern, no resource `*`; the collector deletes segments, agents packs, the restorer markers."""
    known = (
        "auditor",
        "collector",
        "collector-ended-incarnations",
        "endpoint",
        "eraser",
        "finder",
        "hold-remover",
        "holder",
        "legal-holds-lift",
        "legal-holds-set",
        "reader",
        "reader-kms",
        "repairer",
        "restore-cluster",
        "restorer",
        "sealer",
        "tables",
        "thawer",
        "uploader",
        "uploader-kms",
        "uploader-object-lock",
        "version-eraser",
    )
    assert tuple(POLICIES) == known
    for name in POLICIES:
        for statement in json.loads(document(f"iam/{name}.json"))["Statement"]:
            actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            assert not any("*" in action for action in actions)
            assert statement["Resource"] != "*"
            if statement["Effect"] == "Allow" and any("Delete" in action for action in actions):
                assert (name, statement["Sid"]) in {
                    ("collector", "KeepReportsAndCopies"),
                    ("collector", "RemoveWhatExpired"),
                    ("collector-ended-incarnations", "RemoveMarksOfEndedIncarnations"),
                    ("hold-remover", "RemoveHolds"),
                    ("endpoint", "KeepOffsetsOfGroups"),
                    ("finder", "RemoveMergedRuns"),
                    ("eraser", "RemoveFormerLists"),
                    ("eraser", "RemoveWhatWasReplaced"),
                    ("tables", "KeepClaimsOfTables"),
                    ("uploader", "RemovePacksOfTheLiveTail"),
                    ("restorer", "RemoveDeleteMarkers"),
                    ("version-eraser", "RemoveVersionsOfSegmentsAndIndexesOfKeys"),
                }


def test_the_policy_of_the_bucket_rejects_what_no_agent_does() -> None:
    """A put of a `.log` without `If-None-Match`, and requests without TLS; moto lacks these conditions."""
    tls, overwritten = json.loads(document("bucket/policy.json"))["Statement"]
    assert {tls["Effect"], overwritten["Effect"]} == {"Deny"}
    assert tls["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert overwritten["Resource"].endswith(".log")
    assert overwritten["Condition"]["Null"] == {"s3:if-none-match": "true"}
