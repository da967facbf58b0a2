"""DescribeConfigs answers what is true of an archive, in the form of a broker."""

import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import call, module_of, run, serving
from tests.made_archive import MadeArchive, batches
from ts_common.archive.snapshots import HOUR, ClusterSnapshot, Topic
from ts_endpoint.protocol.replies import encode_reply
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api

TOPIC, BROKER, GROUP = 2, 4, 32
LOWEST, NEWEST = SERVED[Api.DESCRIBE_CONFIGS]


def described(
    directory: Path, *resources: tuple[int, str, tuple[str, ...] | None], version: int = NEWEST, **options: bool
) -> list[Any]:
    """Return the results of a request."""
    archive = MadeArchive(directory / "archive")
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    types = module_of(Api.DESCRIBE_CONFIGS, version)
    named = tuple(
        types.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    )
    body = types.DescribeConfigsRequest(resources=named, **options)

    async def ask() -> Any:
        with serving(archive.store, archive.keys) as served:
            values = await call(served, Api.DESCRIBE_CONFIGS, body)
            assert encode_reply(Request(Api.DESCRIBE_CONFIGS, version, 1, None, body), values)
            return values["results"]

    found: list[Any] = run(ask)
    return found


@pytest.mark.parametrize("version", range(LOWEST, NEWEST + 1))
def test_only_the_settings_that_a_client_names_are_described(tmp_path: Path, version: int) -> None:
    """All of them without names. Unknown names are left out, as by a broker."""
    keys = ("retention.ms", "cleanup.policy", "no.such")
    (named,) = described(tmp_path / "named", (TOPIC, "t", keys), version=version)
    (everything,) = described(tmp_path / "everything", (TOPIC, "t", None), version=version)
    assert [each["name"] for each in named["configs"]] == ["cleanup.policy", "retention.ms"]
    assert len(everything["configs"]) == 6


def test_a_resource_that_a_request_repeats_is_described_once(tmp_path: Path) -> None:
    """With the settings of each mention. A request of 200 KB would otherwise make a reply of a gigabyte in memory."""
    mentions = [(TOPIC, "t", (each,)) for each in ("retention.ms", "cleanup.policy") for _ in range(5_000)]
    topic, broker, missing = described(
        tmp_path, *mentions, *[(BROKER, "1", None)] * 5_000, *[(TOPIC, "missing", None)] * 5_000
    )
    assert [each["name"] for each in topic["configs"]] == ["cleanup.policy", "retention.ms"]
    assert len(broker["configs"]) == 9
    assert missing["error_code"] is ErrorCode.unknown_topic_or_partition


def test_synonyms_and_documentation_are_described_on_request(tmp_path: Path) -> None:
    """The setting of a topic is before the broker's default, and its source is the entry's."""
    resource = (TOPIC, "t", ("retention.ms", "min.insync.replicas"))
    (plain,) = described(tmp_path / "plain", resource)
    assert {(each["documentation"], len(each["synonyms"])) for each in plain["configs"]} == {(None, 0)}
    ((least, retention),) = [
        each["configs"] for each in described(tmp_path, resource, include_synonyms=True, include_documentation=True)
    ]
    assert [(each["name"], each["source"]) for each in retention["synonyms"]] == [
        ("retention.ms", 1),
        ("log.retention.ms", 5),
    ]
    assert [(each["name"], each["source"]) for each in least["synonyms"]] == [("min.insync.replicas", 5)]
    assert (retention["config_source"], least["config_source"]) == (1, 5)
    assert (retention["config_type"], retention["documentation"]) == (5, "Age deletes nothing.")


def test_a_broker_describes_itself_alone(tmp_path: Path) -> None:
    """Without an id a client gets the dynamic defaults of all brokers, an empty list; groups have no settings here."""
    own, defaults, other, group = described(
        tmp_path, (BROKER, "1", None), (BROKER, "", None), (BROKER, "2", None), (GROUP, "g", None)
    )
    assert {each["read_only"] for each in own["configs"]} == {True}
    assert (defaults["error_code"], defaults["configs"]) == (ErrorCode.none, [])
    assert other["error_code"] is group["error_code"] is ErrorCode.invalid_request
    assert other["error_message"] == "unexpected broker id '2'; expected 1, or no id"


def test_a_topic_has_the_settings_of_the_newest_snapshot(tmp_path: Path) -> None:
    """A mirror gets them; retention and what concerns the cluster's brokers stay those of the archive."""
    archive = MadeArchive(tmp_path / "archive")
    now = int(time.time() * 1000)
    own = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "1000",
        "min.insync.replicas": "2",
        "leader.replication.throttled.replicas": "*",
    }
    for age, configs in ((2, {"cleanup.policy": "delete,compact"}), (1, own)):
        at = (now // HOUR - age) * HOUR
        topics = {"t": Topic("id", ((1,),), configs), "u": Topic("id", ((1,),), None)}
        ClusterSnapshot(at, 1, None, topics, {}, (), (), ()).put(archive.store, archive.keys, at)
    (result,) = described(tmp_path, (TOPIC, "t", None), include_synonyms=True)
    assert [each["name"] for each in result["configs"]] == sorted(each["name"] for each in result["configs"])
    found = {each["name"]: (each["value"], each["config_source"], each["read_only"]) for each in result["configs"]}
    assert found["cleanup.policy"] == ("compact", 1, False)
    assert found["message.timestamp.type"] == ("LogAppendTime", 1, False)
    assert (found["retention.ms"][0], found["min.insync.replicas"]) == ("-1", ("1", 5, True))
    assert "leader.replication.throttled.replicas" not in found
    (policy,) = [each for each in result["configs"] if each["name"] == "cleanup.policy"]
    assert [(each["name"], each["value"], each["source"]) for each in policy["synonyms"]] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]


def test_a_damaged_snapshot_leaves_the_settings_of_an_archive(tmp_path: Path) -> None:
    """It is logged, and clients get an answer."""
    archive = MadeArchive(tmp_path / "archive")
    at = int(time.time() * 1000) // HOUR * HOUR
    archive.store.put(ClusterSnapshot.key(archive.keys, at), b"damaged")
    with structlog.testing.capture_logs() as logs:
        (result,) = described(tmp_path, (TOPIC, "t", ("cleanup.policy",)))
    assert [(each["value"], each["read_only"]) for each in result["configs"]] == [("delete", True)]
    assert [each["event"] for each in logs] == ["snapshot_unreadable"]
