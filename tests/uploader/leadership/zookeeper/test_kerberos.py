"""`ts-uploader check` against a real ZooKeeper with SASL by Kerberos, and a real KDC."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster
from dev.local.kafka.kerberos import Kerberos
from dev.local.kafka.zookeeper_security import ZooKeeperSecurity
from tests.uploader.checking import CHECKOUT, URL, Check
from tests.uploader.leadership.zookeeper.jaas_files import JAAS
from ts_common.config.zookeeper_options import PREFIX
from ts_uploader.findings import EXIT_ACT, EXIT_FINE

pytestmark = pytest.mark.full

SERVER = """
Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false
         keyTab="%s" principal="zookeeper/localhost@TEST"; };
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberos]:
    directory = tmp_path_factory.mktemp("kerberos")
    with Kerberos(directory / "kdc", directory) as server:
        yield server


@pytest.fixture(scope="module")
def secured(realm: Kerberos) -> Iterator[LocalCluster]:
    """A broker without SASL; ZooKeeper accepts clients without a login, and rejects a wrong ticket."""
    security = ZooKeeperSecurity(
        jaas=SERVER % realm.keytab("zookeeper/localhost"),
        options=(f"-Djava.security.krb5.conf={realm.configuration}",),
    )
    with LocalCluster(s3=True, buckets=["archive"], zookeeper_security=security, name="kerberos") as cluster:
        yield cluster


def test_a_keytab_of_the_brokers_jaas_file_logs_in(realm: Kerberos, secured: LocalCluster, tmp_path: Path) -> None:
    """The KDC logs the client and the service; without a ticket the reason is Kerberos' own. No ticket is on a disk."""
    assert secured.zookeeper is not None
    check, keytab = Check(secured, tmp_path), realm.keytab("agent")
    jaas = JAAS.replace("/etc/kafka.keytab", str(keytab)).replace("kafka/b1@R", "agent@TEST")
    (tmp_path / "jaas.conf").write_text(jaas)
    connect = f"localhost:{secured.zookeeper.port}"
    file = check.broker_file(zookeeper__connect=connect)
    properties = {
        URL: check.location,
        PREFIX + "jaas.file": str(tmp_path / "jaas.conf"),
        PREFIX + "jaas.section": "Kerberos",
    }
    variables = realm.environment()
    environment = {**variables, "PYTHONPATH": f"{CHECKOUT}:{variables['PYTHONPATH']}"}
    ended = check.run(properties, "--server-properties", str(file), environment=environment)
    assert ended.returncode == EXIT_FINE, ended.stdout
    assert "agent@TEST for zookeeper/localhost@TEST" in realm.log.read_text()
    assert not Path(f"/tmp/krb5cc_{os.getuid()}").exists()
    properties[PREFIX + "sasl.keytab"] = "/nowhere/agent.keytab"
    ended = check.run(properties, "--server-properties", str(file), environment=environment)
    assert ended.returncode == EXIT_ACT, ended.stdout
    assert "ZooKeeper rejects this identity: Kerberos: " in ended.stdout
