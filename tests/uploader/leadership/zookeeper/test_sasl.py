"""Leadership from a real ZooKeeper with SASL (DIGEST-MD5): accepted logins, rejected ones, and how to mend those."""

import importlib.util
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.local.kafka.zookeeper import ZooKeeper
from dev.local.kafka.zookeeper_security import ZooKeeperSecurity, client_jaas
from dev.local.waiting import wait_for
from tests.uploader.leadership.zookeeper.listening_zookeeper import (
    TP,
    Listen,
    create_topic,
    errors_of,
    listen,
    opened,
    wait_trouble,
)
from ts_common.errors import ConfigurationError

__all__ = ["listen"]  # a fixture

PASSWORD = 'Zq7x "quoted" = secret'
USERS = {"kafka": PASSWORD, "agent": "p\N{LATIN SMALL LETTER A WITH DIAERESIS}ss Zq7x"}
REFUSED = "ZooKeeper rejects this identity: "


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper that requires a login; the topic was created before that."""
    directory = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeper(directory / "data", directory) as server:
        create_topic(server)
        server.security = ZooKeeperSecurity(users=USERS, requires_sasl=True)
        server.restart()
        yield server


def test_the_brokers_jaas_file_is_enough(zookeeper: ZooKeeper, listen: Listen, tmp_path: Path) -> None:
    """With the file that the broker's JVM flag names, leadership is reported, and `check` has no complaint."""
    (tmp_path / "jaas.conf").write_text(client_jaas("kafka", PASSWORD))
    overrides = {"jaas.file": str(tmp_path / "jaas.conf")}
    listener = listen(zookeeper.connect, {}, overrides)
    listener.wait_leadership(TP, 7, "id")
    assert listener.source.connected
    assert errors_of(zookeeper.connect, {}, overrides) == []


def test_a_user_of_the_agents_own(zookeeper: ZooKeeper, listen: Listen, tmp_path: Path) -> None:
    """With keys of the cluster's file, and a non-ASCII password in a file of its own."""
    (tmp_path / "password").write_text(USERS["agent"] + "\n")
    overrides = {"sasl.username": "agent", "sasl.password.file": str(tmp_path / "password")}
    listen(zookeeper.connect, {}, overrides).wait_leadership(TP, 7, "id")


def test_a_wrong_password_is_reported_and_fixed_without_a_restart(
    zookeeper: ZooKeeper, listen: Listen, tmp_path: Path
) -> None:
    """Meanwhile it is never connected, logs one warning for all rejections, and reads the new password by itself."""
    (tmp_path / "password").write_text("guessed Zq7x")
    overrides = {"sasl.username": "kafka", "sasl.password.file": str(tmp_path / "password")}
    with capture_logs() as logs:
        listener = listen(zookeeper.connect, {}, overrides)
        wait_trouble(listener, REFUSED + "it does not accept this user and password, or this principal")
        refusals = zookeeper.log.read_text().count("failed to SASL authenticate")
        wait_for(
            lambda: zookeeper.log.read_text().count("failed to SASL authenticate") > refusals + 2, "some more attempts"
        )
        assert not listener.source.connected
        assert listener.said == []
        (tmp_path / "password").write_text(PASSWORD)
        listener.wait_leadership(TP, 7, "id")
        wait_for(lambda: listener.source.connected, "the session")
    assert listener.source.trouble is None
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert "Zq7x" not in repr(logs)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({}, f"{REFUSED}it requires SASL; name the broker's JAAS file by ts.segment.uploader.zookeeper.jaas.file"),
        ({"sasl.username": "kafka", "sasl.password": "guessed Zq7x"}, f"{REFUSED}it does not accept this user"),
        ({"sasl.username": "nobody", "sasl.password": "guessed Zq7x"}, f"{REFUSED}it does not accept this user"),
        ({"sasl.username": "kafka", "sasl.password": "\N{GREEK SMALL LETTER ALPHA}"}, "characters beyond ISO 8859-1"),
    ],
)
def test_check_names_a_login_that_is_refused(zookeeper: ZooKeeper, overrides: Mapping[str, str], said: str) -> None:
    """An error with the way out, soon, and without the password; the agent has the same reason."""
    began = time.monotonic()
    (error,) = errors_of(zookeeper.connect, {}, overrides)
    assert said in error
    assert "Zq7x" not in error
    assert time.monotonic() < began + 9  # below its timeout


def test_a_login_that_is_missing_is_no_storm(zookeeper: ZooKeeper, listen: Listen) -> None:
    """ZooKeeper ends each session of an agent without a login: the agent retries at its own pace."""
    with capture_logs() as logs:
        listener = listen(zookeeper.connect, {})
        wait_trouble(listener, f"{REFUSED}it requires SASL")
        wait_for(
            lambda: zookeeper.log.read_text().count("Closing client connection due to server requires") > 2, "more"
        )
        listener.close()
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert listener.said == []


def test_a_zookeeper_without_sasl_is_named(listen: Listen, tmp_path: Path) -> None:
    """It answers each message of a login with an empty one, and the agent must not continue with that."""
    with ZooKeeper(tmp_path / "data", tmp_path) as server:
        create_topic(server)
        overrides = {"sasl.username": "kafka", "sasl.password": PASSWORD}
        (error,) = errors_of(server.connect, {}, overrides)
        assert error == f"{REFUSED}it answers without SASL: authProvider or its JAAS section Server is missing"
        wait_trouble(listen(server.connect, {}, overrides), "it answers without SASL")


def test_a_package_that_is_missing_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it, because few agents need the package."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "puresasl" else object())
    with pytest.raises(ConfigurationError, match=r"--no-build-isolation -r requirements/sasl\.txt"):
        opened("127.0.0.1:9", {}, {"sasl.username": "kafka", "sasl.password": PASSWORD})
