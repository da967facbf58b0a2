"""The comparison with a cluster that requires TLS and SASL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.ports import LOOPBACK
from tests.made_archive import CLUSTER
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from tests.uploader.leadership.kraft.secured_brokers import PASSWORD, make_certificates, secured

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    return directory


@pytest.fixture(scope="module")
def kraft(certificates: Path) -> Iterator[LocalCluster]:
    """Start one broker; `secret` is its listener for SASL_SSL with PLAIN."""
    cluster = LocalCluster(mode="kraft", name="audit-secured")
    cluster.brokers[1].properties.update(secured(cluster, certificates))
    with cluster:
        yield cluster


def bootstrap(cluster: LocalCluster) -> str:
    listeners = cluster.brokers[1].properties["listeners"].split(",")
    return next(each.removeprefix("SECRET://") for each in listeners if each.startswith("SECRET://"))


def client(path: Path, certificates: Path, password: str, user: str = "agent") -> Path:
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password={password}\nssl.ca.location={certificates / 'ca.pem'}\n"
    )
    return path


def test_both_sides_are_compared_over_sasl_and_tls(
    kraft: LocalCluster, certificates: Path, run: Run, tmp_path: Path
) -> None:
    """Offsets and records are compared with librdkafka's settings from a file; a rejected client gets one message."""
    archive = Archive(tmp_path / "store")
    kraft.create_topic("t", config={"segment.bytes": "1048576"})
    kraft.produce("t", [Record(b"%06d" % n + bytes(5000), key=b"k") for n in range(700)], partition=0)
    end = archive.ship(kraft.brokers[1].partition_directory("t", 0))
    named = ("--url", archive.location, "--cluster", CLUSTER, "--bootstrap-server", bootstrap(kraft))
    settings = client(tmp_path / "client.properties", certificates, PASSWORD)
    ended = run("verify", *named, "--command-config", settings, "--depth", "full", "--json")
    assert (ended.code, ended.err) == (0, "")
    (side,) = ended.document["cluster_sides"]
    assert (side["cluster_end"], side["store_end"]) == (700, end)
    assert end > 0

    for wrong, told in (
        (client(tmp_path / "wrong.properties", certificates, "guessed"), "uthentication failed"),
        (client(tmp_path / "nobody.properties", certificates, PASSWORD, "guest"), "Describe"),
    ):
        ended = run("verify", *named, "--command-config", wrong)
        assert (ended.code, ended.out) == (2, ""), ended.err
        assert told in ended.err
        assert len(ended.err.splitlines()) == 1
        assert "guessed" not in ended.err
        assert PASSWORD not in ended.err

    make_certificates(tmp_path)  # another authority
    ended = run("verify", *named, "--command-config", client(tmp_path / "other.properties", tmp_path, PASSWORD))
    assert (ended.code, ended.out) == (2, "")
    assert "certificate verify failed" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert LOOPBACK in ended.err
