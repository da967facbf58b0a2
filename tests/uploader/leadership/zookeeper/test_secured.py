"""An agent on a real broker that connects to ZooKeeper by TLS and SASL only, with `zookeeper.set.acl=true`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.kafka.zookeeper_security import PASSWORD, KeyStores, ZooKeeperSecurity, broker_properties, client_jaas
from tests.uploader.beside import BUCKET, PREFIX, archives
from tests.uploader.checking import URL, Check
from tests.uploader.conftest import ArchiveOf
from tests.uploader.leadership.kraft_records import records
from tests.uploader.process.confined import CONFINED
from ts_uploader.findings import EXIT_ACT, EXIT_FINE

SECRET = "Zq7x digest secret"
ZOOKEEPER = PREFIX + "zookeeper."


class Secured:
    """The cluster, its stores, and the broker's JAAS file."""

    def __init__(self, cluster: LocalCluster, stores: KeyStores, jaas: Path) -> None:
        self.cluster = cluster
        self.stores = stores
        self.jaas = jaas

    def surroundings(self, path: Path, changes: Mapping[str, str]) -> Path:
        """Copy the broker's own file with some settings changed."""
        lines = [f"{key}={value}\n" for key, value in {**self.cluster.brokers[1].properties, **changes}.items()]
        path.write_text("".join(lines))
        return path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    stores, jaas = KeyStores(directory), directory / "broker-jaas.conf"
    jaas.write_text(client_jaas("kafka", SECRET))
    security = ZooKeeperSecurity(stores.server, stores.trust["PKCS12"], client_auth="need", users={"kafka": SECRET})
    cluster = LocalCluster(
        s3=True,
        buckets=[BUCKET],
        properties={"log.segment.bytes": "60000", "zookeeper.set.acl": "true"},
        zookeeper_security=security,
        name="zookeeper-secured",
    )
    assert cluster.zookeeper is not None
    broker = cluster.brokers[1]
    own = broker_properties(cluster.zookeeper.secure_connect, stores.trust["JKS"], stores.client["JKS"], "JKS")
    broker.properties.update(own)
    broker.options.append(f"-Djava.security.auth.login.config={jaas}")
    with cluster:
        yield Secured(cluster, stores, jaas)


@pytest.fixture
def archive_of(secured: Secured, tmp_path: Path) -> Iterator[ArchiveOf]:
    with archives(secured.cluster, tmp_path) as archive:
        yield archive


def shipped(
    secured: Secured, archive_of: ArchiveOf, topic: str, properties: Mapping[str, str], prefix: Sequence[str] = ()
) -> str:
    """Ship a topic's closed segments with the broker's own file; return the agent's log."""
    archive = archive_of(topic, properties=properties)
    secured.cluster.create_topic(topic, assignment=[[1]])
    secured.cluster.produce(topic, records(100), partition=0)
    agent = archive.agent(prefix=prefix)
    end = archive.wait_until_shipped()
    assert end > 0
    assert archive.read() == archive.oracle(end=end)
    said = agent.log.read_text() + "".join(agent.page(path) for path in ("/", "/status.json", "/healthz", "/metrics"))
    assert SECRET not in said
    assert PASSWORD not in said
    assert agent.status()["leadership_trouble"] is None
    return agent.log.read_text()


def test_an_agent_ships_with_the_brokers_identity(secured: Secured, archive_of: ArchiveOf) -> None:
    """With the broker's file and JAAS file, in the unit's sandbox, it reads the nodes that only brokers may read."""
    assert secured.cluster.zookeeper is not None
    with secured.cluster.zookeeper.client() as stranger, pytest.raises(NoAuthError):
        stranger.set("/brokers/ids", b"")  # the ACLs are set
    log = shipped(secured, archive_of, "as-broker", {ZOOKEEPER + "jaas.file": str(secured.jaas)}, CONFINED)
    assert "warning" not in log


@pytest.mark.full
def test_an_agent_that_only_reads_needs_no_login(secured: Secured, archive_of: ArchiveOf) -> None:
    """If ZooKeeper accepts every client with a certificate, Kafka's ACLs let all of them read leadership."""
    shipped(secured, archive_of, "as-reader", {})


def test_an_agent_that_is_refused_stays_up_with_its_reason(
    secured: Secured, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """Not ready, nothing shipped, the reason on each page and in the log; once its JAAS file is mended, it ships."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(client_jaas("kafka", "guessed Zq7x"))
    archive = archive_of("mended", properties={ZOOKEEPER + "jaas.file": str(jaas)})
    secured.cluster.create_topic("mended", assignment=[[1]])
    secured.cluster.produce("mended", records(100), partition=0)
    agent = archive.agent()
    wait_for(lambda: agent.status()["leadership_trouble"] is not None, "the reason", 60, state=agent.status)
    trouble = agent.status()["leadership_trouble"]
    assert trouble.startswith("ZooKeeper rejects this identity: it does not accept this user")
    assert agent.status()["ready"] is False
    assert trouble in agent.page("/").replace("&#x27;", "'")
    wait_for(lambda: trouble in agent.log.read_text(), "the reason in the log", 60)
    assert archive.objects() == {}
    jaas.write_text(client_jaas("kafka", SECRET))
    archive.wait_until_shipped()
    assert agent.status()["leadership_trouble"] is None
    assert "Zq7x" not in agent.log.read_text()


@pytest.mark.full
def test_check_looks_at_tls_and_sasl(secured: Secured, tmp_path: Path) -> None:
    """A correct login, then several wrong ones: each has its exit code, and no output has a password."""
    check = Check(secured.cluster, tmp_path)
    keys = {URL: check.location, ZOOKEEPER + "jaas.file": str(secured.jaas)}
    fine = check.run(keys)
    assert fine.returncode == EXIT_FINE, fine.stdout
    assert "reached, and broker 1 is registered" in fine.stdout
    said = [fine.stdout]
    for keys_more, changes, text in (
        ({"sasl.password": "guessed Zq7x"}, {}, "ZooKeeper rejects this identity"),
        ({}, {"zookeeper.ssl.truststore.location": "/nowhere/t.jks"}, "/nowhere/t.jks (JKS): it cannot be read"),
        ({}, {"zookeeper.ssl.client.enable": "false"}, "requires TLS"),
        ({}, {"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable=true: the agent cannot check"),
        ({"jaas.section": "Nobody"}, {}, "no section Nobody; found Client"),
    ):
        file = secured.surroundings(tmp_path / "server.properties", changes)
        more = {ZOOKEEPER + name: value for name, value in keys_more.items()}
        ended = check.run({**keys, **more}, "--server-properties", str(file))
        assert ended.returncode == EXIT_ACT, ended.stdout
        assert text in ended.stdout
        said.append(ended.stdout + ended.stderr)
    assert not [text for text in said if "Zq7x" in text or PASSWORD in text]


def test_run_exits_with_2_for_an_error_that_no_retry_fixes(
    secured: Secured, archive_of: ArchiveOf, tmp_path: Path
) -> None:
    """A trust store with a wrong password: one message names it and the setting of its password."""
    archive = archive_of("never")
    changes = {"zookeeper.ssl.truststore.password": "guessed Zq7x"}
    file = secured.surroundings(tmp_path / "server.properties", changes)
    agent = archive.agent(surroundings=file, waits=False)
    wait_for(lambda: not agent.alive, "the agent to end", 60)
    assert agent._process is not None
    assert agent._process.returncode == 2
    said = agent.log.read_text()
    assert "the password is wrong, or the file is damaged; its password is from zookeeper.ssl.truststore" in said
    assert "Zq7x" not in said
    assert "Traceback" not in said
