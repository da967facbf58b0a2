"""The agent connects to the broker's own listener: TLS with a client certificate, SCRAM, and PLAIN over TLS."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, imported without `as`
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from dev.local.kafka.cluster import LocalCluster, wait_for
from tests.matrix import cases
from tests.uploader.beside import PREFIX, archives
from tests.uploader.checking import URL, Check
from tests.uploader.conftest import ArchiveOf
from tests.uploader.leadership.kraft.secured_brokers import LISTENERS, PASSWORD, TOKEN, make_certificates
from tests.uploader.leadership.kraft_records import records
from ts_uploader.findings import EXIT_ACT, EXIT_FINE, EXIT_UNANSWERED


@pytest.fixture
def kraft(secured_kraft: LocalCluster) -> LocalCluster:
    """One broker with every kind of listener."""
    return secured_kraft


@pytest.fixture
def archive_of(kraft: LocalCluster, tmp_path: Path) -> Iterator[ArchiveOf]:
    with archives(kraft, tmp_path) as archive:
        yield archive


def surroundings(cluster: LocalCluster, path: Path, changes: Mapping[str, str]) -> Path:
    """Copy the broker's own file with some settings changed."""
    lines = [f"{key}={value}\n" for key, value in {**cluster.brokers[1].properties, **changes}.items()]
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("listener", cases((*LISTENERS, "TOKEN"), quick=["MUTUAL", "TOKEN"]))
def test_a_segment_is_shipped_through_each_security_protocol(
    kraft: LocalCluster, archive_of: ArchiveOf, tmp_path: Path, listener: str
) -> None:
    """The credentials and certificates of the broker's own file are enough; only librdkafka logs in with a token."""
    topic = f"over-{listener.lower()}"
    client = TOKEN if listener == "TOKEN" else {}
    archive = archive_of(topic, properties={PREFIX + "kafka.client." + key: value for key, value in client.items()})
    kraft.create_topic(topic, assignment=[[1]])
    kraft.produce(topic, records(700), partition=0)
    changes = {"inter.broker.listener.name": listener, **LISTENERS.get(listener, {})}
    archive.agent(surroundings=surroundings(kraft, tmp_path / "server.properties", changes))
    end = archive.wait_until_shipped()
    assert end > 0
    assert archive.read() == archive.oracle(end=end)


@pytest.mark.parametrize(
    ("listener", "wrong", "text"),
    [
        pytest.param("SCRAM", {"sasl.password": "guessed"}, "Authentication failed", marks=pytest.mark.full),
        ("MUTUAL", {"ssl.ca.location": "CA"}, "its certificate is rejected"),
    ],
)
def test_an_agent_that_the_broker_rejects_reads_nothing_and_reports_it(
    kraft: LocalCluster, archive_of: ArchiveOf, tmp_path: Path, listener: str, wrong: Mapping[str, str], text: str
) -> None:
    """The operator's settings have precedence over the file; the reason is logged once, without a password."""
    topic = f"refused-{listener.lower()}"
    make_certificates(tmp_path)  # another authority
    given = {PREFIX + "kafka.client." + key: value for key, value in wrong.items()}
    given = {key: str(tmp_path / "ca.pem") if value == "CA" else value for key, value in given.items()}
    archive = archive_of(topic, properties=given)
    kraft.create_topic(topic, assignment=[[1]])
    kraft.produce(topic, records(700), partition=0)
    changes = {"inter.broker.listener.name": listener, **LISTENERS[listener]}
    agent = archive.agent(surroundings=surroundings(kraft, tmp_path / "server.properties", changes))
    wait_for(lambda: "broker_unavailable" in agent.log.read_text(), "the agent to say so", 60)
    said = agent.log.read_text()
    assert text in said
    assert PASSWORD not in said
    assert "guessed" not in said
    assert agent.health()["leadership"] == "unknown"
    assert archive.objects() == {}


def test_the_acls_that_an_identity_lacks_are_reported(
    kraft: LocalCluster, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """One message for all topics, with the broker's reason and the ACLs to add; with those the agent ships."""
    guest = {"sasl.username": "guest", "sasl.password": PASSWORD}
    archive = archive_of(
        "forbidden",
        properties={
            PREFIX + "kafka.topics.include": "forbidden.*",
            **{PREFIX + "kafka.client." + key: value for key, value in guest.items()},
        },
    )
    for topic in ("forbidden", "forbidden-too"):
        kraft.create_topic(topic, assignment=[[1]])
        kraft.produce(topic, records(700), partition=0)
    changes = {"inter.broker.listener.name": "SECRET", **LISTENERS["SECRET"]}
    agent = archive.agent(surroundings=surroundings(kraft, tmp_path / "server.properties", changes))
    refused = "topics_denied"
    wait_for(lambda: refused in agent.log.read_text(), "the agent to say so", 60)
    (line,) = [line for line in agent.log.read_text().splitlines() if refused in line]
    assert [
        text for text in ("'forbidden', 'forbidden-too'", "guest", "DESCRIBE", "kafka-acls") if text not in line
    ] == []
    assert "uthorization failed" in line
    assert PASSWORD not in agent.log.read_text()
    assert archive.objects() == {}
    allow(kraft, "guest")
    end = archive.wait_until_shipped()
    assert archive.read() == archive.oracle(end=end)


@pytest.mark.full
def test_check_reports_which_identities_the_broker_accepts_and_what_it_withholds(
    kraft: LocalCluster, tmp_path: Path
) -> None:
    """The identity of the broker's file may read everything, a guest no topic, and an unknown user nothing."""
    kraft.create_topic("examined", assignment=[[1]])
    check = Check(kraft, tmp_path)
    file = surroundings(
        kraft, tmp_path / "server.properties", {"inter.broker.listener.name": "SECRET", **LISTENERS["SECRET"]}
    )
    arguments = ("--server-properties", str(file))
    properties = {URL: check.location, PREFIX + "kafka.topics.include": "examined"}

    def of_broker(more: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        given = {PREFIX + "kafka.client." + key: value for key, value in more.items()}
        code, findings = check.findings({**properties, **given}, *arguments)
        assert PASSWORD not in str(findings)
        told = [each for each in findings if each["about"].startswith("broker 1 at")]
        return code, {each["severity"]: f"{each['found']} {each['way_out']}" for each in told}

    wait_for(lambda: kraft.leader("examined", 0) == 1, "the topic to be led")
    code, told = of_broker({})
    assert (code, set(told)) == (EXIT_FINE, {"ok"})
    code, told = of_broker({"sasl.username": "guest2", "sasl.password": PASSWORD})
    assert (code, set(told)) == (EXIT_ACT, {"error", "warning"})
    assert "who leads examined" in told["error"]
    assert "DESCRIBE_CONFIGS on the cluster" in told["warning"]
    code, told = of_broker({"sasl.password": "guessed"})
    assert (code, set(told)) == (EXIT_UNANSWERED, {"unanswered"})
    assert "uthentication failed" in told["unanswered"]


def allow(cluster: LocalCluster, user: str) -> None:
    """Add the ACLs that the message names, on every topic."""
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            "*",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    admin = cluster.admin()
    for done in admin.create_acls(bindings).values():
        done.result(30)
