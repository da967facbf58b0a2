from pathlib import Path

import pytest

from ts_common.errors import ConfigurationError
from ts_uploader.environment import Environment, ServerPropertiesEnvironment


def broker_file(directory: Path, text: str) -> Path:
    path = directory / "server.properties"
    path.write_text(text, encoding="iso-8859-1")
    return path


def log_dir(directory: Path, name: str, meta: str = "") -> Path:
    path = directory / name
    path.mkdir()
    if meta:
        (path / "meta.properties").write_text(meta)
    return path


def test_the_brokers_own_file_tells_its_surroundings(tmp_path: Path) -> None:
    """Id, log directories and ZooKeeper as the broker reads them; the cluster id from meta.properties."""
    first, second = log_dir(tmp_path, "a"), log_dir(tmp_path, "b", "cluster.id=xyz\nbroker.id=3\n")
    path = broker_file(
        tmp_path,
        f"# Kommentar für Müller\nbroker.id=3\nlog.dirs={first}, {second}\nzookeeper.connect=z1:2181,z2:2181/k\n",
    )
    environment = ServerPropertiesEnvironment(path, None).load()
    assert environment == Environment("xyz", 3, (first, second), "z1:2181,z2:2181/k", kraft=False)


def test_a_given_cluster_id_wins_and_a_generated_broker_id_is_found(tmp_path: Path) -> None:
    """`--cluster-id` names the file; with `broker.id=-1` the broker keeps its id in meta.properties."""
    where = log_dir(tmp_path, "a", "cluster.id=xyz\nbroker.id=1001\n")
    path = broker_file(tmp_path, f"broker.id=-1\nlog.dir={where}\nzookeeper.connect=z:2181\n")
    environment = ServerPropertiesEnvironment(path, "prod").load()
    assert (environment.cluster_id, environment.broker_id) == ("prod", 1001)


def test_a_kraft_brokers_file_says_so(tmp_path: Path) -> None:
    """`process.roles` and `node.id` make it one."""
    where = log_dir(tmp_path, "a", "cluster.id=xyz\nnode.id=2\n")
    path = broker_file(tmp_path, f"process.roles=broker\nnode.id=2\nlog.dirs={where}\n")
    environment = ServerPropertiesEnvironment(path, None).load()
    assert (environment.kraft, environment.broker_id, environment.zookeeper_connect) == (True, 2, "")


def test_no_file_at_all_names_both_ways_out() -> None:
    """The option for the file, and the one for a class."""
    with pytest.raises(ConfigurationError, match=r"--server-properties PATH.*--environment-provider"):
        ServerPropertiesEnvironment(None, None).load()
