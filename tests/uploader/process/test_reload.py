"""The log lines of a configuration that was read again: which keys apply at once, and which need a restart."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ts_common.config.cluster_config import ClusterConfig, parse_config
from ts_common.endpoints.provider import EndpointProvider, open_provider
from ts_uploader.process.reload import _KEYS_BELOW, _UNUSED, reload

S3 = "storage.service.endpoint.s3."
SECRET = "hunter2"
TOPICS = ["payments", "audit"]


@pytest.fixture
def agent(tmp_path: Path) -> "Reading":
    return Reading(tmp_path)


class Reading:
    """A cluster's files, as an agent reads them at its start and on SIGHUP."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.properties: dict[str, str] = {"storage.service.endpoint.provider.class": "json"}

    def say(self, topics: dict[str, object], endpoints: dict[str, object]) -> None:
        """Write the endpoints file."""
        said = {"default": {"bucket": "archive"}, "topics": topics, "endpoints": endpoints}
        (self.directory / "c.endpoints.json").write_text(json.dumps(said))

    def read(self) -> tuple[ClusterConfig, EndpointProvider]:
        """Both files."""
        config, _ = parse_config(self.properties, "c.properties")
        return config, open_provider(config.endpoint_provider, "c", self.directory, config.endpoint_properties)

    def log_of(self, running: tuple[ClusterConfig, EndpointProvider]) -> list[Any]:
        """What SIGHUP leaves in the log."""
        with capture_logs() as lines:
            reload(*running, TOPICS, self.read)
        return lines


def test_options_of_s3_that_differ_are_named_one_by_one(agent: Reading) -> None:
    """New, changed and removed ones, and no other; without their values."""
    agent.say({}, {})
    agent.properties |= {f"{S3}region": "eu-west-1", f"{S3}proxy": f"http://me:{SECRET}@proxy:1", f"{S3}acl": "private"}
    agent.properties |= {"ts.segment.uploader.kafka.client.sasl.password": SECRET}
    running = agent.read()
    agent.properties |= {f"{S3}proxy": f"http://me:{SECRET}{SECRET}@proxy:1", f"{S3}storage.class": "STANDARD_IA"}
    agent.properties |= {"ts.segment.uploader.kafka.client.sasl.password": SECRET * 2}
    del agent.properties[f"{S3}acl"]
    lines = agent.log_of(running)
    assert lines[0]["keys"] == [
        "ts.segment.uploader.kafka.client.sasl.password",
        f"{S3}acl",
        f"{S3}proxy",
        f"{S3}storage.class",
    ]
    assert SECRET not in str(lines)


@pytest.mark.parametrize(
    ("topics", "endpoints", "locations", "moved"),
    [
        ({"payments": "other"}, {"other": {"bucket": "other"}}, ["s3://other"], ["payments"]),
        ({"payments": {"bucket": "first", "s3": {"acl": "private"}}}, {}, ["s3://first"], ["payments"]),
        ({"payments": "first", "audit": "first"}, {"first": {"bucket": "first"}}, [], ["audit"]),
        (
            {"payments": "first", "elsewhere": {"bucket": "far-away"}},
            {"first": {"bucket": "first"}},
            ["s3://far-away"],
            [],
        ),
    ],
    ids=["another place", "other options", "another of the same places", "a topic that is not here"],
)
def test_an_endpoints_file_that_differs_is_reported(
    agent: Reading, topics: dict[str, object], endpoints: dict[str, object], locations: list[str], moved: list[str]
) -> None:
    """It needs a restart, as every other key that is not changeable."""
    agent.say({"payments": "first"}, {"first": {"bucket": "first"}})
    running = agent.read()
    agent.say(topics, endpoints)
    (line,) = [line for line in agent.log_of(running) if line.get("message") == "endpoints changed"]
    assert set(locations) <= set(line["locations"])
    assert line["topics"] == moved


def test_nothing_is_reported_where_nothing_differs(agent: Reading) -> None:
    """The same content, read again."""
    agent.say({"payments": "first"}, {"first": {"bucket": "first"}})
    assert [line["event"] for line in agent.log_of(agent.read())] == ["configuration_reloaded"]


def test_an_endpoints_file_with_errors_changes_nothing(agent: Reading) -> None:
    """Also nothing of the properties file in the same directory."""
    agent.say({}, {})
    running = agent.read()
    agent.properties |= {"ts.segment.uploader.upload.max.bytes.per.second": "2048"}
    agent.say({"payments": "nowhere"}, {})
    with capture_logs() as lines:
        assert reload(*running, TOPICS, agent.read) == running[0]
    assert "no endpoint 'nowhere'" in str(lines[0]["problems"])


def test_keys_of_zookeeper_that_differ_are_named_one_by_one(agent: Reading) -> None:
    """Without their values, as those of S3."""
    agent.say({}, {})
    below = "ts.segment.uploader.zookeeper."
    running = agent.read()
    agent.properties |= {f"{below}sasl.username": "me", f"{below}sasl.password": SECRET}
    lines = agent.log_of(running)
    assert lines[0]["keys"] == [f"{below}sasl.password", f"{below}sasl.username"]
    assert SECRET not in str(lines)


def test_every_key_that_differs_has_a_name() -> None:
    """The log names each key of a field that holds several."""
    fields = {name for name, info in ClusterConfig.model_fields.items() if info.alias is None}
    assert fields <= {*_KEYS_BELOW, *_UNUSED}
