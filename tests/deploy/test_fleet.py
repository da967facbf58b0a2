"""deploy/fleet/rollout: updates a few hosts first, and stops at the first unhealthy agent."""

import shutil
from pathlib import Path

import pytest

from tests.deploy.fleet import WELL, Fleet

INSTALLED = "pip install --require-hashes --no-deps --no-index --find-links . -r requirements/ts-uploader.txt"
UPGRADED = [
    "pip install --require-hashes --no-build-isolation -r requirements/build.txt",
    "pip install --require-hashes --no-build-isolation -r requirements/agent.txt",
    INSTALLED,
    "ts-uploader check /etc/ts-uploader/conf --server-properties /srv/kafka/server.properties --cluster-id prod",
    "systemctl daemon-reload",
    "systemctl restart ts-uploader",
]


def conf_of(directory: Path) -> Path:
    """Return a directory with a file of the cluster `prod` that differs from the hosts'."""
    conf = directory / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "prod.properties").write_text("a=c\n")
    return conf


def test_each_host_is_checked_before_it_takes_the_release(tmp_path: Path) -> None:
    """The new release runs the check as the agent's user, with the unit's environment; the previous one stays."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0", "broker-2": "0.1.0"})
    ended = fleet.roll_out()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name, host in fleet.hosts.items():
        assert f"{name}: done: 0.2.0 instead of 0.1.0" in ended.stdout
        assert host.done == UPGRADED
        assert host.release == "0.2.0"
        assert (host.opt / "previous").read_text() == "0.1.0\n"
        assert (host.opt / "previous.service").read_text() == "Group=kafka\n"
        assert (host.root / "etc/ts-uploader/environment").stat().st_mode & 0o007 == 0
        assert "AWS_PROFILE=kafka archive\n" in (host.root / "environment").read_text()


def test_a_host_without_an_agent_gets_one(tmp_path: Path) -> None:
    """It gets user, unit, environment and the cluster's file, which only the agent's group may read."""
    fleet = Fleet(tmp_path, {"broker-1": None})
    without = fleet.roll_out()
    assert (without.returncode, fleet.hosts["broker-1"].done) == (1, [])
    assert "holds no file of a cluster: give it with --conf" in without.stderr
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "prod.properties").write_text("a=b\n")
    (conf / "notes.txt").write_text("not for hosts")
    ended = fleet.roll_out("--conf", str(conf))
    host = fleet.hosts["broker-1"]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert host.done[-3:] == [
        "systemctl daemon-reload",
        "systemctl enable ts-uploader",
        "systemctl restart ts-uploader",
    ]
    assert "useradd --gid kafka ts-uploader" in host.done
    etc = host.root / "etc"
    assert [path.name for path in (etc / "ts-uploader" / "conf").iterdir()] == ["prod.properties"]
    assert (etc / "ts-uploader" / "conf" / "prod.properties").stat().st_mode & 0o777 == 0o640
    assert (etc / "systemd" / "system" / "ts-uploader.service").exists()
    assert (etc / "ts-uploader" / "environment").stat().st_mode & 0o777 == 0o600
    for directory in (host.opt, host.opt / "0.2.0" / "bin", etc / "ts-uploader", etc / "ts-uploader" / "conf"):
        assert directory.stat().st_mode & 0o777 == 0o755, directory
    assert not (etc / "systemd" / "system" / "ts-uploader.service.d").exists()


def test_a_host_whose_broker_has_another_group_gets_an_agent_of_that_group(tmp_path: Path) -> None:
    """The owner of the log dirs decides; a drop-in sets the group, and later releases keep it."""
    fleet = Fleet(tmp_path, {"broker-1": None})
    host = fleet.hosts["broker-1"]
    (host.root / "group").write_text("confluent\n")
    properties = host.root / "etc" / "kafka" / "server.properties"
    properties.parent.mkdir()
    properties.write_text(f"broker.id=1\nlog.dirs={host.root},/elsewhere\n")
    ended = fleet.roll_out("--conf", str(conf_of(tmp_path)))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "useradd --gid confluent ts-uploader" in host.done
    (drop_in,) = (host.root / "etc/systemd/system/ts-uploader.service.d").iterdir()
    assert drop_in.read_text() == "[Service]\nGroup=confluent\n"
    drop_in.rename(drop_in.with_name("operators.conf"))
    properties.unlink()
    later = fleet.roll_out("--conf", str(conf_of(tmp_path)), version="0.3.0")
    assert later.returncode == 0, later.stdout + later.stderr
    assert [path.name for path in drop_in.parent.iterdir()] == ["operators.conf"]


def test_configuration_that_the_check_refuses_goes_nowhere(tmp_path: Path) -> None:
    """The running agent keeps its files, which a restart would read; corrected ones are installed."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0"})
    host = fleet.hosts["broker-1"]
    conf = host.root / "etc" / "ts-uploader" / "conf"
    (conf / "other.properties").write_text("stays\n")
    (host.root / "check").write_text("2")
    ended = fleet.roll_out("--conf", str(conf_of(tmp_path)))
    assert ended.returncode == 1
    assert host.done[-1].startswith("ts-uploader check /etc/ts-uploader/conf.new ")
    assert (conf / "prod.properties").read_text() == "a=b\n"
    checked = conf.with_name("conf.new")
    assert {path.name: path.read_text() for path in checked.iterdir()} == {
        "prod.properties": "a=c\n",
        "other.properties": "stays\n",
    }
    assert [path.stat().st_mode & 0o777 for path in (checked, checked / "prod.properties")] == [0o750, 0o640]
    (host.root / "check").write_text("0")
    assert fleet.roll_out().returncode == 0
    assert (conf / "prod.properties").read_text() == "a=b\n"
    assert fleet.roll_out("--conf", str(conf_of(tmp_path)), version="0.3.0").returncode == 0
    assert (conf / "prod.properties").read_text() == "a=c\n"
    assert (conf / "other.properties").read_text() == "stays\n"
    assert not checked.exists()


@pytest.mark.parametrize(
    ("has", "asked", "installed"),
    [
        ((), ("--store", "azure"), ["agent", "azure"]),
        (("google/auth", "azure/identity"), ("--store", "gcs"), ["agent", "gcs", "azure"]),
        ((), ("--store", "gcs", "--login", "kerberos"), ["agent", "gcs", "kerberos"]),
        (("puresasl", "kerberos.cpython-311.so"), ("--login", "sasl"), ["agent", "sasl", "kerberos"]),
        (("puresasl",), (), ["agent", "sasl"]),
    ],
)
def test_what_gets_tokens_and_logs_in_comes_along(
    tmp_path: Path, has: tuple[str, ...], asked: tuple[str, ...], installed: list[str]
) -> None:
    """They are installed on request, and if the release in use has them: the check would fail without them."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0"})
    host = fleet.hosts["broker-1"]
    for name in has:
        (host.opt / "0.1.0/lib/python3.11/site-packages" / name).mkdir(parents=True)
    ended = fleet.roll_out(*asked)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pip = [
        f"pip install --require-hashes --no-build-isolation -r requirements/{name}.txt"
        for name in ("build", *installed)
    ]
    assert host.done[: len(pip) + 1] == [*pip, INSTALLED]


def test_a_release_in_use_that_was_installed_by_hand_is_not_removed(tmp_path: Path) -> None:
    """Only its mark distinguishes it from an interrupted installation, and only an operator may set the mark."""
    fleet = Fleet(tmp_path, {"broker-1": "0.2.0"})
    host = fleet.hosts["broker-1"]
    (host.opt / "0.2.0" / "whole").touch()
    (host.root / "metrics").write_text(WELL.replace("1.0", "0.0"))
    ended = fleet.roll_out()
    assert ended.returncode == 1
    assert "0.2.0 is in use and was not installed by rollout: touch" in ended.stderr
    assert (host.done, (host.opt / "0.2.0" / "whole").exists()) == ([], True)
    (host.opt / "0.2.0" / ".complete").touch()
    (host.opt / "0.2.0" / "bin").mkdir()
    shutil.copy(host.root / "bin" / "release", host.opt / "0.2.0" / "bin" / "ts-uploader")
    assert "it does not know who leads" in fleet.roll_out().stderr
    assert host.done[0].startswith("ts-uploader check")
    assert (host.opt / "0.2.0" / "whole").exists()


def test_it_stops_at_the_canary_and_goes_on_when_run_again(tmp_path: Path) -> None:
    """The other hosts receive no command; the next run skips what is done."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0", "broker-2": "0.1.0", "broker-3": "0.1.0"})
    canary = fleet.hosts["broker-1"]
    (canary.root / "check").write_text("2")
    ended = fleet.roll_out("--parallel", "2")
    assert ended.returncode == 1
    assert "broker-1: failed: ts-uploader check ended with 2" in ended.stderr
    assert "stopped at broker-1" in ended.stderr
    assert (canary.release, canary.done[-1][:17]) == ("0.1.0", "ts-uploader check")
    assert not any(host.was_asked for name, host in fleet.hosts.items() if name != "broker-1")
    (canary.root / "check").write_text("0")
    assert fleet.roll_out("--parallel", "2").returncode == 0
    assert {host.release for host in fleet.hosts.values()} == {"0.2.0"}
    before = [host.done for host in fleet.hosts.values()]
    again = fleet.roll_out("--parallel", "3", "--canary", "0")
    assert again.stdout.count("0.2.0 runs already, and is well") == 3
    assert [host.done for host in fleet.hosts.values()] == before


def test_a_batch_ends_before_it_stops_and_the_next_does_not_begin(tmp_path: Path) -> None:
    """Two hosts at once follow the canary; one cannot be reached, and the other is completed."""
    fleet = Fleet(tmp_path, {f"broker-{number}": "0.1.0" for number in range(1, 6)})
    (fleet.hosts["broker-3"].root / "unreachable").touch()
    ended = fleet.roll_out("--parallel", "2")
    assert ended.returncode == 1
    assert "broker-3: ssh: no route to it" in ended.stderr
    assert [host.release for host in fleet.hosts.values()] == ["0.2.0", "0.2.0", "0.1.0", "0.1.0", "0.1.0"]
    assert not fleet.hosts["broker-4"].was_asked


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (None, "the agent is not ready after 1 s"),
        (WELL.replace("1.0", "0.0"), "it does not know who leads"),
        (WELL + 'ts_uploader_waiting_partitions{reason="store"} 3.0\n', "partitions wait"),
    ],
)
def test_an_agent_that_is_not_well_afterwards_stops_it(tmp_path: Path, metrics: str | None, said: str) -> None:
    """It is not ready, has no leadership, or has stuck partitions; a release does not repair a hole."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0", "broker-2": "0.1.0"})
    host = fleet.hosts["broker-1"]
    if metrics is None:
        (host.root / "bad-0.2.0").touch()
    else:
        (host.root / "metrics").write_text(metrics)
    ended = fleet.roll_out()
    assert ended.returncode == 1
    assert said in ended.stderr
    assert (host.release, (host.opt / "previous").read_text()) == ("0.2.0", "0.1.0\n")
    assert not fleet.hosts["broker-2"].was_asked
    (host.root / "bad-0.2.0").unlink(missing_ok=True)
    (host.root / "metrics").write_text(WELL + 'ts_uploader_waiting_partitions{reason="hole"} 3.0\n')
    assert fleet.roll_out().returncode == 0


def test_a_dry_run_asks_and_changes_nothing(tmp_path: Path) -> None:
    """Each host reports what would be done; nothing is copied."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0", "broker-2": "0.2.0", "broker-3": None})
    before = {name: host.files() for name, host in fleet.hosts.items()}
    ended = fleet.roll_out("--dry-run")
    assert ended.returncode == 0
    assert "broker-1: would be done: 0.1.0 is replaced by 0.2.0" in ended.stdout
    assert "broker-2: done: 0.2.0 runs already" in ended.stdout
    assert "broker-3: would be done: no agent is replaced by 0.2.0" in ended.stdout
    assert {name: host.files() for name, host in fleet.hosts.items()} == before


def test_an_attempt_that_was_cut_off_is_begun_anew(tmp_path: Path) -> None:
    """Neither a partly installed nor a partly unpacked release counts as complete."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0"})
    host = fleet.hosts["broker-1"]
    (host.opt / "0.2.0" / "bin").mkdir(parents=True)
    (host.opt / "0.2.0" / "half").touch()
    (host.opt / "releases" / "0.2.0.partial" / "half").mkdir(parents=True)
    assert fleet.roll_out().returncode == 0
    assert host.done == UPGRADED
    assert not (host.opt / "0.2.0" / "half").exists()
    assert not (host.opt / "releases" / "0.2.0" / "half").exists()


def test_a_release_is_taken_only_where_a_link_says_which_one_runs(tmp_path: Path) -> None:
    """A directory instead of the link is an operator's, and is not changed."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0"})
    link = fleet.hosts["broker-1"].opt / "venv"
    link.unlink()
    link.mkdir()
    ended = fleet.roll_out()
    assert (ended.returncode, list(link.iterdir())) == (1, [])
    assert "is no link: see docs/upgrade.md" in ended.stderr


@pytest.mark.parametrize(
    ("line", "version", "arguments", "said"),
    [
        ("broker-1", "../../etc", (), "--version '../../etc'"),
        ("-oProxyCommand=true", "0.2.0", (), "is no host"),
        ("broker-1;reboot", "0.2.0", (), "is no host"),
        ("broker-1\nbroker-1", "0.2.0", (), "stands there twice"),
        ("# nobody", "0.2.0", (), "no hosts"),
        ("broker-1", "0.2.0", ("--paralel", "3"), "no such option: --paralel"),
        ("broker-1", "0.2.0", ("--parallel", "0"), "at least one"),
        ("broker-1", "0.2.0", ("--canary", "few"), "not a number"),
        ("broker-1", "0.2.0", ("--conf", "/nowhere"), "holds no <clusterId>.properties"),
        ("broker-1", "0.2.0", ("--logs",), "needs a value"),
        ("broker-1", "0.2.0", ("--store", "gcs;reboot"), "--store gcs;reboot: gcs, azure or agent"),
        ("broker-1", "0.2.0", ("--login", "sasl;reboot"), "--login sasl;reboot: sasl, kerberos or none"),
    ],
)
def test_a_mistake_is_told_before_any_host_is_asked(
    tmp_path: Path, line: str, version: str, arguments: tuple[str, ...], said: str
) -> None:
    """One message, code 2; a host or a version cannot contain an option, a command or a path."""
    fleet = Fleet(tmp_path, {"broker-1": "0.1.0"})
    fleet.list.write_text(f"{line}\n")
    ended = fleet.roll_out(*arguments, version=version)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert not fleet.hosts["broker-1"].was_asked
