"""The policies of deploy/iam for retention, holds, repairs and thaws, with moto, which checks permissions."""

import json
import re
import shlex
from contextlib import closing
from pathlib import Path
from string import Template
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from dev.local.stores.moto import MotoServer
from tests.deploy.identities import BUCKET, DEPLOY, ENDED, KEYS, LOCATION, As, archive_of_one_topic, document, removed
from tests.docs.commands import blocks, commands
from tests.tsctl.seal.sealed import Keys
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES
from ts_common.archive.object_keys import FORMER_CACHE_DIRECTORY, PROBE_NAME, PartitionKeys, SegmentName
from ts_common.archive.small_objects import (
    COMMIT_BYTES,
    GAP_BYTES,
    INCARNATIONS_BYTES,
    INDEX_BYTES,
    LOG_START_BYTES,
)
from ts_common.archive.table_claims import claims_key
from ts_common.errors import AccessDenied
from ts_common.format_version import FORMATS
from ts_common.model import TopicPartition
from ts_common.store.contract import DeleteOutcome, IfAbsent, IfMatch
from ts_common.store.lifecycle import parse_rules
from ts_common.store.protection import Protection
from tsctl.cli import run as run_tsctl
from tsctl.exit_codes import ExitCode
from tsctl.gc.checks import PROBE_PREFIX, Verdict, run_checks

PLACE = ("--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5")


def test_a_thawer_may_thaw_segments_and_change_nothing_else(store_as: As, capfd: pytest.CaptureFixture[str]) -> None:
    """`tsctl thaw` sends its requests; a reader's identity may look, and gets the missing right by name."""
    store_as("uploader")
    archive = archive_of_one_topic("frozen")
    log = archive.partition("frozen").segment(SegmentName(0))
    archive.store.close()
    with closing(boto3.Session().client("s3")) as s3:
        key = f"base/prefix/{log}"
        found = s3.get_object(Bucket=BUCKET, Key=key)
        body, metadata = found["Body"].read(), found["Metadata"]
        s3.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata=metadata, StorageClass="GLACIER")
    command = ["thaw", "frozen", *PLACE]
    store_as("reader")
    assert run_tsctl(command) == ExitCode.REFUSED
    assert "allow this identity s3:RestoreObject on the key" in capfd.readouterr().err
    store = store_as("thawer")
    assert run_tsctl(command) == ExitCode.FINE, capfd.readouterr()
    assert store.get(log)[0]
    with pytest.raises(AccessDenied):
        store.put("new", b"x")
    assert not removed(log)


def test_a_cold_rule_moves_segments_alone() -> None:
    """No other object of an archive is as large, indexes included; a rule cannot select by a suffix."""
    (rule,) = parse_rules(json.loads(document("bucket/cold/glacier.json")), "base/prefix/")
    most = (INDEX_BYTES, COMMIT_BYTES, INCARNATIONS_BYTES, GAP_BYTES, LOG_START_BYTES, CACHE_OBJECT_BYTES)
    assert rule.above >= max(most)
    assert rule.applies_to("prod", 5, frozenset())
    assert rule.archives is not None


def collected_archive(store_as: As, topic: str) -> PartitionKeys:
    """Write an archive with every kind of object that a run deletes or keeps, as an uploader; return its keys."""
    store_as("uploader")
    archive = archive_of_one_topic(topic)
    archive.put_incarnations(topic, "an-id")
    keys = archive.partition(topic)
    with closing(archive.store) as store:
        for key in (keys.gap(1, 2), keys.cache_object(0), f"{keys.prefix}{FORMER_CACHE_DIRECTORY}0.json"):
            store.put(key, b"{}")
    return keys


def test_a_collector_may_do_each_request_of_a_run_and_no_other(store_as: As) -> None:
    """Listing, reads, log.start, its copy, a report, a hold of an undo, conditional deletes; no commit, no segment."""
    keys = collected_archive(store_as, "collected")
    incarnations, copy, hold = KEYS.incarnations("collected"), KEYS.log_start_copy(keys), KEYS.hold("undo-1")
    store = store_as("collector")
    listed = {info.key: info.etag for info in store.list(keys.prefix)}
    assert store.get(keys.commit)[0]
    assert store.protection() == Protection(versioned=True, locks=False, default_retention=None)
    assert store.lifecycle_rules()
    store.put(keys.log_start, b"%020d\n" % 1, condition=IfMatch(store.head(keys.log_start).etag))
    store.put(f"{KEYS.gc}gc-1.jsonl", b"{}")
    store.put(hold, b"{}", condition=IfAbsent())
    etag = store.put(copy, b"%020d\n" % 1, condition=IfAbsent()).etag
    kept = {keys.commit, keys.log_start}
    etags = {key: etag for key, etag in listed.items() if key not in kept}
    assert len(etags) == 9
    assert store.delete_matching(etags) == DeleteOutcome(tuple(etags), (), {})
    assert store.delete_matching({copy: etag}) == DeleteOutcome((copy,), (), {})
    assert all(removed(key) for key in (f"{KEYS.repairs}old.json", f"{KEYS.meta}groups/old.json.gz", PROBE_NAME))
    assert [info.key for info in store.list(keys.prefix)] == sorted(kept)
    for key in (keys.commit, keys.log_start, incarnations, hold):
        outcome = store.delete_matching({key: store.head(key).etag})
        assert isinstance(outcome.failed[key], AccessDenied)
        assert not removed(key)
    others = (KEYS.hold("legal"), KEYS.removed_hold("undo-1", 5), claims_key(KEYS, "export.t"), KEYS.layout)
    for key in (keys.commit, keys.segment(SegmentName(9)), keys.gap(7, 9), incarnations, *others):
        with pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())
    with pytest.raises(AccessDenied):
        store.hidden_bytes()
    store_as("hold-remover")
    assert removed(hold)


def test_a_collector_may_remove_no_version_and_no_lock(store_as: As) -> None:
    """Not even one that it deleted: an operator can put everything back."""
    keys = collected_archive(store_as, "versions")
    segment = keys.segment(SegmentName(0))
    store = store_as("restorer")
    with closing(boto3.Session().client("s3")) as s3:
        (version,) = s3.list_object_versions(Bucket=BUCKET, Prefix=f"base/prefix/{segment}")["Versions"]
    store = store_as("collector")
    assert store.delete_matching({segment: store.head(segment).etag}).removed == (segment,)
    with closing(boto3.Session().client("s3")) as s3, pytest.raises(ClientError, match="AccessDenied"):
        s3.delete_object(Bucket=BUCKET, Key=f"base/prefix/{segment}", VersionId=version["VersionId"])


def test_the_checks_of_a_collector_find_nothing(store_as: As) -> None:
    """`tsctl gc check` proves each right, and that commits and segments are out of reach; others' lack rights."""
    checks = run_checks(store_as("collector"), KEYS)
    assert [each for each in checks if each.verdict is not Verdict.OK] == []
    assert len([each for each in checks if each.name == "rights"]) == 2
    assert list(store_as("collector").list(PROBE_PREFIX)) == []
    texts = {each.text for each in run_checks(store_as("uploader"), KEYS) if each.name == "conditional delete"}
    assert [f"not tried: this identity may not delete {PROBE_PREFIX}" in text for text in texts] == [True]


def test_a_collector_hides_and_shows_again_and_an_agent_can_do_neither(
    store_as: As, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`tsctl gc run` and `undo` send their requests as the collector; a hold of a holder shows the records too."""
    store_as("uploader")
    archive = archive_of_one_topic("retained")
    archive.store.close()
    policy = tmp_path / "retention.yaml"
    rule = "{topics: retained, max_age: 1d, least_time: 0s}"
    policy.write_text(f"{{cluster: prod, fuse: {{share: 100%}}, rules: [{rule}]}}")
    run, undo = ["gc", "run", "--policy", str(policy), *PLACE], ["gc", "undo", "retained", "--reason", "audit", *PLACE]
    for command in (run, undo):
        assert run_tsctl(command) == ExitCode.REFUSED
        assert "allow this identity s3:PutObject" in capfd.readouterr().err
    for shows in (undo, ["hold", "add", "audit", "--topic", "retained", "--reason", "audit", *PLACE]):
        store = store_as("collector")
        assert run_tsctl(run) == ExitCode.FINE, capfd.readouterr()
        assert "hidden: 3 objects" in capfd.readouterr().out
        store = store_as("collector" if shows is undo else "holder")
        assert run_tsctl(shows) == ExitCode.FINE, capfd.readouterr()
        store = store_as("collector")
        assert run_tsctl(run) == ExitCode.FINE
        assert store.get(archive.partition("retained").log_start)[0].startswith(b"0" * 20)
        holds = [info.key for info in store.list(KEYS.holds) if not info.key.startswith(KEYS.removed_holds)]
        store_as("hold-remover")
        assert [removed(key) for key in holds] == [True]


def test_marks_of_an_incarnation_that_ended_need_a_policy_that_names_it(store_as: As) -> None:
    """With collector-ended-incarnations.json the collector deletes those marks, and no marks of living topics."""
    over, later = (f"example-topic{end}" for end in ("", "~AAAAAAAAAAAAAAAAAAAAAA"))
    living = ("example-topic-eu", "example-topic~BBBBBBBBBBBBBBBBBBBBBB", "clicks")
    partition = TopicPartition("example-topic", 0)
    marks = {
        directory: [f"1/prod/{directory}-{partition.partition}/{name}" for name in ("offset.wm", "log.start")]
        for directory in (over, later, *living)
    }
    for user, may in (("collector", set[str]()), (ENDED, {over, later})):
        store_as(user)
        for directory, keys in marks.items():
            assert [removed(key) for key in keys] == [directory in may] * 2


class Aws:
    """The AWS command line as docs/repair.md uses it: `aws s3api OPERATION --MEMBER VALUE`, by the SDK's names."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables
        self.client = boto3.Session().client("s3")

    def run(self, command: str) -> Any:
        """Return the answer to a command of the page, with these values of its variables.

        Raises:
            KeyError: the operation has no such option, or a variable has no value.
            ClientError: it was denied.
        """
        _aws, _s3api, operation, *options = shlex.split(Template(command).substitute(self._variables))
        model: Any = self.client.meta.service_model
        name = next(each for each in model.operation_names if xform_name(each, "-") == operation)
        members = {f"--{xform_name(each, '-')}": each for each in model.operation_model(name).input_shape.members}
        given = {members[option]: value for option, value in zip(options[::2], options[1::2], strict=True)}
        return getattr(self.client, xform_name(name))(**given)


def test_a_restorer_puts_back_what_was_deleted_or_overwritten_with_its_metadata(
    store_as: As, aws: MotoServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands of docs/repair.md remove the marker and copy the right version; `tsctl verify` finds nothing."""
    listed, unmark, copy = (
        command
        for block in blocks(DEPLOY.parent / "docs" / "repair.md", "Putting an object back", language="sh")
        for command in commands(block)
        if command.startswith("aws ")
    )
    store_as("uploader")
    archive = archive_of_one_topic("restored")
    keys = archive.partition("restored")
    deleted, overwritten = f"base/prefix/{keys.segment(SegmentName(0))}", f"base/prefix/{keys.segment(SegmentName(1))}"
    archive.store.close()
    verify = ["verify", "--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5", "--depth", "full", "restored"]
    store_as("reader")
    assert run_tsctl(verify) == ExitCode.FINE, capfd.readouterr()
    store_as("collector")
    assert removed(keys.segment(SegmentName(0)))
    right = store_as("uploader").head(keys.segment(SegmentName(1))).metadata
    store_as("uploader").put(keys.segment(SegmentName(1)), b"not what was shipped")
    store_as("reader")
    assert run_tsctl(verify) == ExitCode.FOUND, capfd.readouterr()
    store_as("restorer")
    (marker,) = (each for each in Aws(BUCKET=BUCKET, KEY=deleted).run(listed)["DeleteMarkers"] if each["IsLatest"])
    Aws(BUCKET=BUCKET, KEY=deleted, MARKER=marker["VersionId"]).run(unmark)
    (version,) = (each for each in Aws(BUCKET=BUCKET, KEY=overwritten).run(listed)["Versions"] if not each["IsLatest"])
    Aws(BUCKET=BUCKET, KEY=overwritten, VERSION=version["VersionId"]).run(copy)
    assert not removed(keys.commit)  # it may remove a version, but delete no object
    store = store_as("reader")
    assert store.head(keys.segment(SegmentName(1))).metadata == right != {}
    assert run_tsctl(verify) == ExitCode.FINE, capfd.readouterr()


def test_one_person_sets_a_hold_and_another_one_removes_it(store_as: As, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither can do the other's part, and no policy with wider rights touches holds and traces."""
    store_as("uploader")
    archive_of_one_topic("held").store.close()
    named = [*PLACE, "--reason", "audit"]
    key, trace = KEYS.hold("case"), KEYS.removed_hold("case", 5)
    holder = store_as("holder")
    assert run_tsctl(["hold", "add", "case", "--topic", "held", "--two-people", *named]) == ExitCode.FINE
    assert not removed(key)
    for other in (trace, KEYS.layout, "holds/a.json"):
        with pytest.raises(AccessDenied):
            holder.put(other, b"x", condition=IfAbsent())
    data = holder.get(key)[0]
    for user in ("collector", "restorer", "uploader"):
        store = store_as(user)
        assert not removed(key)
        for each in (key, trace):
            with pytest.raises(AccessDenied):
                store.put(each, b"x")
    remover = store_as("hold-remover")
    for other in (key, KEYS.hold("mine"), KEYS.layout):
        with pytest.raises(AccessDenied):
            remover.put(other, b"x", condition=IfAbsent())
    assert remover.get(key)[0] == data
    assert run_tsctl(["hold", "rm", "case", *named]) == ExitCode.FINE, capfd.readouterr()
    (left,) = (info.key for info in remover.list(KEYS.holds))
    assert left.startswith(KEYS.removed_holds + "case-")
    assert not removed(left)
    assert not removed(KEYS.partition(TopicPartition("held", 0)).commit)


def test_a_repairer_puts_back_versions_requests_the_rest_and_deletes_nothing(
    store_as: As, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a deleted segment and a damaged one; without versions it sends a request. It writes no commit."""
    store_as("uploader")
    archive = archive_of_one_topic("mended")
    keys = archive.partition("mended")
    archive.store.close()
    first, second = (keys.segment(SegmentName(base)) for base in (0, 1))
    place = [*PLACE, "--depth", "full", "mended"]
    store_as("collector")
    assert removed(first)
    right = store_as("uploader").head(second).metadata
    store_as("uploader").put(second, b"not what was shipped", metadata=right)
    store = store_as("repairer")
    assert run_tsctl(["repair", *place]) == ExitCode.FINE, capfd.readouterr()
    assert run_tsctl(["verify", *place]) == ExitCode.FINE, capfd.readouterr()
    store_as("collector")
    assert removed(first)
    store = store_as("repairer")
    assert run_tsctl(["repair", *place, "--no-versions", "--wait", "0s"]) == ExitCode.TRY_AGAIN, capfd.readouterr()
    assert [info.key.count("/repairs/") for info in store.list(KEYS.repairs)] == [1]
    decides = (KEYS.log_start_copy(keys), f"{KEYS.gc}1.log", claims_key(KEYS, "export.t"), KEYS.hold("h"))
    for key in (keys.commit, keys.log_start, KEYS.layout, KEYS.offsets_of("g"), *decides):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
    assert not any(removed(key) for key in (second, keys.commit))
    store_as("reader")
    assert run_tsctl(["repair", *place, "--wait", "0s"]) == ExitCode.TRY_AGAIN  # the request is there already
    said = capfd.readouterr().err
    assert "earlier versions are not used" in said
    assert re.search(r"allow this identity s3:(ListBucketVersions|GetObjectVersion)", said)


def test_a_finder_keeps_an_index_and_changes_nothing_else(store_as: As, capfd: pytest.CaptureFixture[str]) -> None:
    """No other identity writes the index: a forged one can hide rows from look-ups."""
    store_as("uploader")
    archive = archive_of_one_topic("found")
    keys = archive.partition("found")
    archive.store.close()
    store = store_as("finder")
    assert run_tsctl(["find", "index", "found", *PLACE]) == ExitCode.FINE, capfd.readouterr()
    written = [info.key for info in store.list(KEYS.find("found"))]
    assert written[-1].endswith("/objects.parquet")
    for key in (keys.commit, keys.log_start, keys.segment(SegmentName(0)), KEYS.layout, KEYS.hold("h")):
        with pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())
        assert not removed(key)
    for user in ("uploader", "collector", "reader", "repairer", "tables", "endpoint"):
        other = store_as(user)
        with pytest.raises(AccessDenied):
            other.put(f"{KEYS.find('found')}2026-00000000/objects.parquet", b"x", condition=IfAbsent())
        assert not removed(written[-1])
    store_as("finder")
    assert removed(written[-1])


def requested(store_as: As, topic: str, name: str, path: Path) -> PartitionKeys:
    """Ship a topic as an agent does, and add a request for its first record as the eraser; return its partition."""
    store = store_as("uploader")
    archive = archive_of_one_topic(topic)
    archive.store.close()
    store.put(KEYS.ends_of(1), Ends(1, 1, {}, "0.4.0", FORMATS).encode())
    offsets = path / "offsets"
    offsets.write_text(f"{topic}-0 0\n")
    terms = ["--topic", topic, "--offsets", str(offsets), "--reference", "r", "--due", "2090-01-31"]
    store_as("eraser")
    assert run_tsctl(["erase", "add", name, *terms, *PLACE]) == ExitCode.FINE
    return archive.partition(topic)


def test_an_eraser_removes_objects_and_a_version_eraser_their_versions(
    store_as: As, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither may do what the other one does. The first puts names of rewritten segments only, the second none."""
    # moto has no literal dot: `*.e*.log` would match any name with an e.
    keys = requested(store_as, "by-law", "case-1", tmp_path)
    first, second = (keys.segment(SegmentName(base)) for base in (0, 1))
    store = store_as("eraser")
    before = {info.key for info in store.list(keys.prefix)}
    for _ in range(2):
        assert run_tsctl(["erase", "run", "--grace", "0s", *PLACE]) == ExitCode.FINE, capfd.readouterr()
    capfd.readouterr()
    assert run_tsctl(["erase", "status", *PLACE, "--json"]) == ExitCode.FINE
    (request,) = json.loads(capfd.readouterr().out)["requests"]
    assert [(each["surface"], each["where"].split(",")[0]) for each in request["remains"]] == [("version", first)]
    assert "unknown" not in request["remains"][0]["reason"]
    after = {info.key for info in store.list(keys.prefix)}
    assert first in before - after
    assert any(".e" in key.removeprefix(keys.prefix) for key in after - before)
    for key in (keys.commit, keys.gap(7, 9), first, KEYS.layout, KEYS.hold("h"), f"{KEYS.gc}gc-1.jsonl"):
        with pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())
    assert not any(
        map(removed, (keys.commit, keys.log_start, keys.seal_json, f"{KEYS.erasures}case-1.json", KEYS.layout))
    )
    versions = ["erase", "versions", "--grace", "0s", "--json", *PLACE]
    assert run_tsctl(versions) == ExitCode.REFUSED
    assert re.search(
        r"allow this identity s3:(ListBucketVersions|GetObjectVersion|DeleteObjectVersion)", capfd.readouterr().err
    )
    store = store_as("version-eraser")
    assert run_tsctl(versions) == ExitCode.FINE, capfd.readouterr()
    (found,) = (each for each in json.loads(capfd.readouterr().out)["versions"] if each["key"] == first)
    assert (found["did"], found["partition"]) == ("removed", "by-law-0")
    assert [each.is_delete_marker for each in store.versions(first) or ()] == [True]
    assert not any(map(removed, (second, keys.commit, keys.log_start, KEYS.layout, f"{KEYS.erasures}case-1.json")))
    for key in (second, first, keys.log_start, KEYS.hold("h"), f"{KEYS.erasures}case-1.done.json"):
        with pytest.raises(AccessDenied):
            store.put(key, b"x", condition=IfAbsent())


def test_a_sealer_signs_and_an_auditor_verifies_and_neither_changes_anything_else(
    store_as: As, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`tsctl seal`, `verify --sealed` and `prove` send their requests; an agent may not write a seal."""
    store_as("uploader")
    archive_of_one_topic("sealed").store.close()
    made = Keys(tmp_path)
    public = ["--public-key", str(made.public), *PLACE]
    run = ["seal", "run", "--key", str(made.private), *PLACE]
    assert run_tsctl(run) == ExitCode.REFUSED
    capfd.readouterr()
    sealer = store_as("sealer")
    assert run_tsctl(run) == ExitCode.FINE, capfd.readouterr()
    key, segment = KEYS.seal(1), KEYS.partition(TopicPartition("sealed", 0)).segment(SegmentName(0))
    assert sealer.get(key)[0]
    store_as("auditor")
    assert run_tsctl(run) == ExitCode.FINE, capfd.readouterr()  # nothing is new, so nothing is written
    assert run_tsctl(["verify", "sealed", "--sealed", "--depth", "full", *public]) == ExitCode.FINE, capfd.readouterr()
    folder = str(tmp_path / "proof")
    assert run_tsctl(["prove", folder, "--topic", "sealed", *public]) == ExitCode.FINE, capfd.readouterr()
    for user in ("uploader", "auditor", "sealer"):
        store = store_as(user)
        assert not removed(key), user
        assert not removed(segment), user
        for other in (segment, KEYS.layout, *([] if user == "sealer" else [KEYS.seal(2)])):
            if user != "uploader" or other == KEYS.seal(2):
                with pytest.raises(AccessDenied):
                    store.put(other, b"x", condition=IfAbsent())


def test_holds_and_runs_are_put_only_if_absent() -> None:
    """An overwritten hold is a removed one; moto lacks the condition."""
    named = (
        ("collector", "HoldWhatIsShownAgain"),
        ("eraser", "PutListsRequestsAndRewrittenSegments"),
        ("finder", "PutRuns"),
        ("hold-remover", "LeaveTraces"),
        ("holder", "SetHolds"),
        ("sealer", "PutSeals"),
        ("version-eraser", "PutEvidence"),
    )
    for name, sid in named:
        (found,) = (each for each in json.loads(document(f"iam/{name}.json"))["Statement"] if each["Sid"] == sid)
        assert found["Condition"] == {"Null": {"s3:if-none-match": "false"}}


def test_locks_are_set_by_one_identity_and_lifted_by_another() -> None:
    """Agents retain for at most a year, in governance mode; the collector sets legal holds. moto lacks the keys."""

    def conditions(name: str, action: str) -> list[tuple[str, object]]:
        statements = json.loads(document(f"iam/{name}.json"))["Statement"]
        return [(each["Effect"], each.get("Condition")) for each in statements if action in each["Action"]]

    hold, mode = "s3:object-lock-legal-hold", "s3:object-lock-mode"
    assert conditions("legal-holds-set", "s3:PutObjectLegalHold") == [("Allow", {"StringEquals": {hold: "ON"}})]
    assert conditions("legal-holds-lift", "s3:PutObjectLegalHold") == [("Allow", {"StringEquals": {hold: "OFF"}})]
    assert conditions("collector", "s3:PutObjectLegalHold") == [("Deny", {"StringNotEquals": {hold: "ON"}})]
    assert conditions("uploader-object-lock", "s3:PutObjectRetention") == [
        ("Allow", None),
        ("Deny", {"NumericGreaterThan": {"s3:object-lock-remaining-retention-days": "366"}}),
        ("Deny", {"StringEquals": {mode: "COMPLIANCE"}}),
    ]
    for name in ("collector", "uploader-object-lock"):
        assert conditions(name, "s3:BypassGovernanceRetention") == [("Deny", None)]


def test_a_restore_may_record_itself_and_hold_what_it_restored(store_as: As) -> None:
    """Segments, commits and other holds it only reads; it removes nothing."""
    store_as("uploader")
    archive = archive_of_one_topic()
    keys = archive.partition("clicks")
    archive.store.close()
    store = store_as("restore-cluster")
    assert store.get(keys.commit)[0]
    etag = store.put(KEYS.restored, b"{}", condition=IfAbsent()).etag
    store.put(KEYS.restored, b"{} ", condition=IfMatch(etag))
    store.put(KEYS.hold("restored-5f0c91d2a1b3c4d5"), b"{}", condition=IfAbsent())
    for key in (keys.commit, keys.log_start, keys.segment(SegmentName(0)), KEYS.hold("case-17"), KEYS.layout):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
    assert not removed(KEYS.restored)
