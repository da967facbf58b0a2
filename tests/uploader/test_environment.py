from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ts_common.errors import ConfigurationError
from ts_uploader.environment import Environment, ServerPropertiesEnvironment
from ts_uploader.retention.topic_retention import BrokerDefaults, TopicRetention


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


def test_the_brokers_own_file_names_its_environment(tmp_path: Path) -> None:
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


def test_a_kraft_broker_is_recognized_from_its_file(tmp_path: Path) -> None:
    """`process.roles` and `node.id` make it one."""
    where = log_dir(tmp_path, "a", "cluster.id=xyz\nnode.id=2\n")
    path = broker_file(tmp_path, f"process.roles=broker\nnode.id=2\nlog.dirs={where}\n")
    environment = ServerPropertiesEnvironment(path, None).load()
    assert (environment.kraft, environment.broker_id, environment.zookeeper_connect) == (True, 2, "")


def test_the_brokers_retention_is_read(tmp_path: Path) -> None:
    """What the file sets counts, and Kafka's defaults do for the rest."""
    where = log_dir(tmp_path, "a", "cluster.id=xyz\n")
    text = f"broker.id=3\nlog.dirs={where}\nzookeeper.connect=z:2181\n"
    assert ServerPropertiesEnvironment(broker_file(tmp_path, text), None).load().defaults == BrokerDefaults()
    text += "log.retention.hours=1\nlog.retention.bytes=1000 \nreplica.high.watermark.checkpoint.interval.ms=500\n"
    defaults = ServerPropertiesEnvironment(broker_file(tmp_path, text), None).load().defaults
    assert defaults == BrokerDefaults(TopicRetention(retention_ms=3_600_000, retention_bytes=1_000), 500)


def test_a_setting_of_retention_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    """With Kafka's config providers a value can be a reference: the agent starts, and logs what it could not read."""
    where = log_dir(tmp_path, "a", "cluster.id=xyz\n")
    value = "${file:/etc/kafka/secrets:bytes}"
    text = f"broker.id=3\nlog.dirs={where}\nzookeeper.connect=z:2181\nlog.retention.bytes={value}\n"
    path = broker_file(tmp_path, text)
    with capture_logs() as logs:
        environment = ServerPropertiesEnvironment(path, None).load()
    assert environment.defaults.retention == TopicRetention()
    (warning,) = logs
    assert (warning["log_level"], warning["file"]) == ("warning", str(path))
    (problem,) = warning["problems"]
    assert problem.startswith(f"log.retention.bytes={value!r} ")


def test_no_file_at_all_names_both_ways_out() -> None:
    """The option for the file, and the one for a class."""
    with pytest.raises(ConfigurationError, match=r"--server-properties PATH.*--environment-provider"):
        ServerPropertiesEnvironment(None, None).load()


def test_a_log_dir_on_a_disk_that_failed_is_a_warning(tmp_path: Path) -> None:
    """The broker continues without a missing or unreadable one, so the agent starts, and tries it again."""
    healthy, absent, unreadable = log_dir(tmp_path, "a", "cluster.id=xyz\n"), tmp_path / "b", tmp_path / "c"
    unreadable.write_text("no directory")
    log_dirs = (absent, unreadable, healthy)
    text = f"broker.id=3\nlog.dirs={','.join(map(str, log_dirs))}\nzookeeper.connect=z:2181\n"
    with capture_logs() as logs:
        environment = ServerPropertiesEnvironment(broker_file(tmp_path, text), None).load()
    assert (environment.log_dirs, environment.cluster_id) == (log_dirs, "xyz")
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert [problem.split()[1] for problem in warning["problems"]] == [str(absent), str(unreadable)]


def test_no_log_dir_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    """Each is named, with what is wrong with it."""
    text = f"broker.id=3\nlog.dirs={tmp_path / 'b'},{tmp_path / 'c'}\nzookeeper.connect=z:2181\n"
    with pytest.raises(ConfigurationError) as refused:
        ServerPropertiesEnvironment(broker_file(tmp_path, text), "xyz").load()
    assert refused.value.problems == tuple(
        f"log.dirs: {tmp_path / name} cannot be read: No such file or directory" for name in "bc"
    )


@pytest.mark.parametrize(
    ("own", "metas", "named"),
    [
        ("broker.id=2", ["broker.id=1"], ["broker.id=2", "broker.id=1"]),
        ("process.roles=broker\nnode.id=2", ["node.id=1"], ["node.id=2", "node.id=1"]),
        ("node.id=1\nbroker.id=2", [], ["node.id=1", "broker.id=2"]),
        ("broker.id=1", ["broker.id=1", "broker.id=3"], ["broker.id=1", "broker.id=3"]),
        ("broker.id=-1", ["broker.id=1", "broker.id=3"], ["broker.id=1", "broker.id=3"]),
        ("broker.id=1", ["cluster.id=a", "cluster.id=b"], ["cluster.id=a", "cluster.id=b"]),
    ],
)
def test_a_disk_of_another_broker_is_refused(tmp_path: Path, own: str, metas: list[str], named: list[str]) -> None:
    """As Kafka refuses to start with it: both ids are named, with their files."""
    dirs = [log_dir(tmp_path, str(number), f"cluster.id=xyz\n{meta}\n") for number, meta in enumerate(metas)]
    dirs = dirs or [log_dir(tmp_path, "a", "cluster.id=xyz\n")]
    text = f"{own}\nzookeeper.connect=z:2181\nlog.dirs={','.join(map(str, dirs))}\n"
    with pytest.raises(ConfigurationError, match="Kafka rejects this") as raised:
        ServerPropertiesEnvironment(broker_file(tmp_path, text), "prod").load()
    (problem,) = raised.value.problems
    for expected in (*named, *(str(path / "meta.properties") for path in dirs[1:])):
        assert expected in problem


@pytest.mark.parametrize(("own", "meta"), [("broker.id=-1", "broker.id=1001"), ("node.id=1\nbroker.id=1", "node.id=1")])
def test_ids_that_agree_are_accepted(tmp_path: Path, own: str, meta: str) -> None:
    """One that the broker generated, and one under both names; a disk without the file has no id."""
    dirs = [log_dir(tmp_path, "a"), log_dir(tmp_path, "b", f"cluster.id=xyz\n{meta}\n")]
    text = f"{own}\nzookeeper.connect=z:2181\nlog.dirs={','.join(map(str, dirs))}\n"
    loaded = ServerPropertiesEnvironment(broker_file(tmp_path, text), None).load()
    assert loaded.broker_id == int(meta.partition("=")[2])
