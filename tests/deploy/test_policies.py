"""The policies of deploy/iam and the settings of deploy/bucket, with moto, which checks permissions."""

import http.client
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.common.log_format.build import batch, record
from tests.docs.commands import blocks, commands
from tests.spark.archives import Archive
from tests.tsctl.running import PROGRAM
from ts_common.archive.group_offsets import Committed
from ts_common.archive.metadata_cache import CACHE_OBJECT_BYTES
from ts_common.archive.object_keys import FORMER_CACHE_DIRECTORY, PROBE_NAME, ClusterKeys, PartitionKeys, SegmentName
from ts_common.archive.small_objects import (
    COMMIT_BYTES,
    GAP_BYTES,
    INCARNATIONS_BYTES,
    INDEX_BYTES,
    LOG_START_BYTES,
)
from ts_common.archive.table_claims import claims_key
from ts_common.errors import AccessDenied
from ts_common.model import TopicPartition
from ts_common.store.contract import DeleteOutcome, IfAbsent, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.lifecycle import parse_rules
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.store.protection import Protection
from ts_endpoint.cli import run as run_endpoint
from ts_endpoint.groups.offsets import Unwritten
from ts_endpoint.groups.offsets_store import OffsetsStore
from ts_local.ports import LOOPBACK, free_ports
from ts_local.stores.moto import MotoServer
from ts_uploader.findings import Severity
from ts_uploader.stores.store_check import problems_of
from ts_uploader.stores.store_findings import deep_check
from tsctl.cli import run as run_tsctl
from tsctl.exit_codes import ExitCode
from tsctl.gc.checks import PROBE_PREFIX, Verdict, run_checks

DEPLOY = Path(__file__).parents[2] / "deploy"
POLICIES = sorted(path.stem for path in (DEPLOY / "iam").glob("*.json"))
# The names in the files.
BUCKET = "example-archive"
LOCATION = f"s3://{BUCKET}/base/prefix"
KEYS = ClusterKeys("prod", 5)
ENDED = "collector-ended-incarnations"
# AWS requires s3:ListBucket for it, and has no such action.
_HEAD_BUCKET = json.dumps(
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:HeadBucket", "Resource": "*"}}
)
As = Callable[[str], ObjectStore]
_ADDRESSES = ("--listen", "--http-address")


def document(name: str) -> str:
    return (DEPLOY / name).read_text()


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """Start a server that checks permissions, with the bucket and a user for each policy."""
    directory = tmp_path_factory.mktemp("aws")
    server = MotoServer(directory, directory)
    server.start()
    try:
        with closing(server.client()) as s3:
            s3.create_bucket(Bucket=BUCKET)
            set_up(s3)
        yield server
    finally:
        server.kill()


def set_up(s3: object) -> None:
    """Configure the bucket as docs/deploy.md does by the AWS command line, with the same files."""
    given = {path.stem: path.read_text() for path in (DEPLOY / "bucket").glob("*.json")}
    calls: Mapping[str, tuple[str, str]] = {
        "versioning": ("put_bucket_versioning", "VersioningConfiguration"),
        "encryption": ("put_bucket_encryption", "ServerSideEncryptionConfiguration"),
        "public-access-block": ("put_public_access_block", "PublicAccessBlockConfiguration"),
        "lifecycle": ("put_bucket_lifecycle_configuration", "LifecycleConfiguration"),
    }
    assert given.keys() == calls.keys() | {"policy"}
    for name, (call, argument) in calls.items():
        getattr(s3, call)(Bucket=BUCKET, **{argument: json.loads(given[name])})


@pytest.fixture(scope="module")
def users(aws: MotoServer) -> dict[str, dict[str, str]]:
    """Return the environment of a user of each policy."""
    found = {}
    with closing(aws.client("iam")) as iam:
        for name in POLICIES:
            iam.create_user(UserName=name)
            # moto reads a resource as a regular expression whose `*` is `.*`; it has no `?`.
            allowed = document(f"iam/{name}.json").replace("?", ".")
            iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=allowed)
            iam.put_user_policy(UserName=name, PolicyName="moto", PolicyDocument=_HEAD_BUCKET)
            if name == ENDED:  # it is added to the other one
                iam.put_user_policy(UserName=name, PolicyName="q", PolicyDocument=document("iam/collector.json"))
            key = iam.create_access_key(UserName=name)["AccessKey"]
            found[name] = {
                **aws.environment(),
                "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            }
    connection = http.client.HTTPConnection(LOOPBACK, aws.port, timeout=20)
    with closing(connection):
        connection.request("POST", "/moto-api/reset-auth", b"0")
        assert connection.getresponse().status == http.client.OK
    return found


@pytest.fixture
def store_as(users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[As]:
    """Return a function that opens the store as one of the users, and sets the environment to that user."""
    opened: list[ObjectStore] = []

    def store_of(name: str, location: str = LOCATION) -> ObjectStore:
        for variable, value in users[name].items():
            monkeypatch.setenv(variable, value)
        opened.append(open_store(location, timeout_seconds=20))
        return opened[-1]

    yield store_of
    for store in opened:
        store.close()


def removed(key: str) -> bool:
    """Return whether the environment's user may delete an object.

    It is a request for one object: for a DeleteObjects moto checks the bucket, and AWS each key.
    """
    try:
        _client(os.environ["AWS_ACCESS_KEY_ID"]).delete_object(Bucket=BUCKET, Key=f"base/prefix/{key}")
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDenied":
            return False
        raise
    return True


@cache
def _client(access_key: str) -> Any:
    return boto3.Session().client("s3")  # the default session would keep the first user's keys


def archive_of_one_topic(topic: str = "clicks") -> Archive:
    """Write an archive with a commit and two segments, as the environment's user."""
    archive = Archive(LOCATION, KEYS.entropy_bits)
    for base in (0, 1):
        archive.put_segment(topic, base, batch(base, [record(0)]), index=b"", timeindex=b"")
    archive.commit(topic, 2, highest_base=1)
    return archive


def test_an_uploader_may_do_what_an_agent_does_and_never_remove(store_as: As) -> None:
    """The checks at its start, `ts-uploader check`, conditional puts; no delete, and no other prefix."""
    store = store_as("uploader")
    endpoint = Endpoint(LOCATION, StorageOptions())
    assert problems_of(store, KEYS, endpoint, lambda _: store_as("uploader"), conditional=True) == []
    found = deep_check(store_as("uploader"), KEYS, endpoint)
    assert [each for each in found if each.severity is not Severity.OK] == []
    assert any("may not delete" in each.found for each in found)
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
    command = ["thaw", "frozen", "--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5"]
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
    """Listing, reads, log.start, plan and log, conditional deletes; no commit, no segment, no list of incarnations."""
    keys = collected_archive(store_as, "collected")
    incarnations, plan = KEYS.incarnations("collected"), f"{KEYS.gc_runs}20260101T000000Z/plan.json"
    store = store_as("collector")
    listed = {info.key: info.etag for info in store.list(keys.prefix)}
    assert store.get(keys.commit)[0]
    assert store.protection() == Protection(versioned=True, locks=False, default_retention=None)
    assert store.lifecycle_rules()
    store.put(keys.log_start, b"1\n", condition=IfMatch(store.head(keys.log_start).etag))
    etag = store.put(plan, b"{}", condition=IfAbsent()).etag
    kept = {keys.commit, keys.log_start}
    etags = {key: etag for key, etag in listed.items() if key not in kept}
    assert len(etags) == 9
    assert store.delete_matching(etags) == DeleteOutcome(tuple(etags), (), {})
    assert store.delete_matching({plan: etag}) == DeleteOutcome((plan,), (), {})
    assert all(removed(key) for key in (f"{KEYS.repairs}old.json", PROBE_NAME))
    assert [info.key for info in store.list(keys.prefix)] == sorted(kept)
    for key in (keys.commit, keys.log_start, incarnations):
        outcome = store.delete_matching({key: store.head(key).etag})
        assert isinstance(outcome.failed[key], AccessDenied)
        assert not removed(key)
    hold, layout = f"{KEYS.cluster_prefix}holds/legal.json", KEYS.layout
    for key in (keys.commit, keys.segment(SegmentName(9)), keys.gap(7, 9), incarnations, hold, layout):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
    with pytest.raises(AccessDenied):
        store.hidden_bytes()


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
        command = [PROGRAM, "tables", *arguments, "--file", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
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
    named = ["--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5", "--reason", "audit"]
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
    place = ["--url", LOCATION, "--cluster", "prod", "--entropy-bits", "5", "--depth", "full", "mended"]
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
    for key in (keys.commit, keys.log_start, KEYS.layout, KEYS.offsets_of("g")):
        with pytest.raises(AccessDenied):
            store.put(key, b"x")
    assert not any(removed(key) for key in (second, keys.commit))
    store_as("reader")
    assert run_tsctl(["repair", *place, "--wait", "0s"]) == ExitCode.TRY_AGAIN  # the request is there already
    said = capfd.readouterr().err
    assert "earlier versions are not used" in said
    assert re.search(r"allow this identity s3:(ListBucketVersions|GetObjectVersion)", said)


def test_no_policy_allows_more_than_it_names() -> None:
    """No action by a pattern, no resource `*`; only the collector deletes segments, only the restorer versions."""
    known = (
        "collector",
        "collector-ended-incarnations",
        "endpoint",
        "hold-remover",
        "holder",
        "reader",
        "reader-kms",
        "repairer",
        "restorer",
        "tables",
        "thawer",
        "uploader",
        "uploader-kms",
    )
    assert tuple(POLICIES) == known
    for name in POLICIES:
        for statement in json.loads(document(f"iam/{name}.json"))["Statement"]:
            actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            assert not any("*" in action for action in actions)
            assert statement["Resource"] != "*"
            if statement["Effect"] == "Allow" and any("Delete" in action for action in actions):
                assert (name, statement["Sid"]) in {
                    ("collector", "KeepPlansAndLogs"),
                    ("collector", "RemoveWhatExpired"),
                    ("collector-ended-incarnations", "RemoveMarksOfEndedIncarnations"),
                    ("hold-remover", "RemoveHolds"),
                    ("endpoint", "KeepOffsetsOfGroups"),
                    ("tables", "KeepClaimsOfTables"),
                    ("restorer", "RemoveDeleteMarkers"),
                }


def test_holds_are_put_only_if_absent() -> None:
    """An overwritten hold is a removed one; moto lacks the condition."""
    for name, sid in (("holder", "SetHolds"), ("hold-remover", "LeaveTraces")):
        (found,) = (each for each in json.loads(document(f"iam/{name}.json"))["Statement"] if each["Sid"] == sid)
        assert found["Condition"] == {"Null": {"s3:if-none-match": "false"}}


def test_the_policy_of_the_bucket_rejects_what_no_agent_does() -> None:
    """A put of a `.log` without `If-None-Match`, and requests without TLS; moto lacks these conditions."""
    tls, overwritten = json.loads(document("bucket/policy.json"))["Statement"]
    assert {tls["Effect"], overwritten["Effect"]} == {"Deny"}
    assert tls["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert overwritten["Resource"].endswith(".log")
    assert overwritten["Condition"]["Null"] == {"s3:if-none-match": "true"}
