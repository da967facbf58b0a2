"""What `ts-uploader check` finds of the right to request high watermarks, which the live tail needs."""

from dataclasses import replace

from dev.local.kafka.cluster import LocalCluster
from tests.uploader.leadership.kraft.secured_brokers import LISTENERS, PASSWORD
from ts_common.config.cluster_config import ClusterConfig, parse_config
from ts_uploader.environment import Environment, ServerPropertiesEnvironment
from ts_uploader.findings import Severity
from ts_uploader.preflight.tail_check import tail_findings

_PREFIX = "ts.segment.uploader."
_URL = {"storage.service.endpoint.url": "file:///tmp", _PREFIX + "tail.topics.exclude": "quiet"}


def config_of(interval: int = 700, **client: str) -> ClusterConfig:
    given = {f"{_PREFIX}kafka.client.{key.replace('_', '.')}": value for key, value in client.items()}
    return parse_config({**_URL, _PREFIX + "tail.interval.ms": str(interval), **given}, "a test")[0]


def environment_of(cluster: LocalCluster) -> Environment:
    return ServerPropertiesEnvironment(cluster.brokers[1].server_properties, "prod").load()


def test_the_right_to_request_high_watermarks_is_tried(secured_kraft: LocalCluster) -> None:
    """For the topics here that have a tail, or without one for any; each denied topic is named."""
    secured_kraft.create_topic("tailed", assignment=[[1]])
    environment = environment_of(secured_kraft)
    for topics in (["tailed"], []):
        (fine,) = tail_findings(environment, config_of(), topics)
        assert fine.severity is Severity.OK
    listener = {"inter.broker.listener.name": "SECRET", **LISTENERS["SECRET"]}
    guest = config_of(sasl_username="guest2", sasl_password=PASSWORD)
    as_guest = replace(environment, broker_properties={**environment.broker_properties, **listener})
    for topics, named in (
        (["tailed", "quiet"], "of tailed"),
        ([], "of ts-uploader-check"),
        (list("abcd"), "c and 1 more"),
    ):
        (found,) = tail_findings(as_guest, guest, topics)
        assert (found.severity, found.found.endswith(named)) == (Severity.WARNING, True)
        assert "allow this identity DESCRIBE on the topics" in found.way_out


def test_a_broker_that_cannot_be_reached_is_named(secured_kraft: LocalCluster) -> None:
    """Without a listener in its file, or without an answer; both leave the checkpoint."""
    environment = environment_of(secured_kraft)
    (found,) = tail_findings(replace(environment, broker_properties={}), config_of(), [])
    assert (found.severity, "no high watermarks of the broker" in found.found) == (Severity.WARNING, True)
    assert tail_findings(environment, config_of(0), ["t"]) == []
