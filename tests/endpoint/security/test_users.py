"""The file of users: permissions, mistakes, changes, and commands that edit it."""

import os
from pathlib import Path

import pytest
import structlog

from dev.local.waiting import wait_for
from ts_common.errors import ConfigurationError
from ts_endpoint.contract import Permissions
from ts_endpoint.security.scram import ScramMechanism, has_password, keys_of
from ts_endpoint.security.user_entries import add_user, remove_user
from ts_endpoint.security.users import Users, read_users

KEYS = keys_of(ScramMechanism.SHA_256, "correct horse", iterations=4096).text()


def replace(file: Path, text: str) -> None:
    """Replace a file at once, as editors and Kubernetes do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def users_of(tmp_path: Path, text: str) -> Users:
    file = tmp_path / "users.yaml"
    file.write_text(text)
    return Users(file, check_seconds=0)


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("orders", ["orders"], ["orders2", "order", "Orders", ""]),
        ('"orders*"', ["orders", "orders2"], ["order", "my-orders"]),
        ('"*"', ["orders", "x"], []),
        ('"a*", "b*", c', ["ax", "bx", "c"], ["cx", "xa"]),
        ('"orders.*"', ["orders.eu", "orders."], ["ordersXeu", "orders"]),
    ],
)
def test_patterns_are_names_beginnings_or_all(
    tmp_path: Path, pattern: str, matched: list[str], others: list[str]
) -> None:
    """A dot is a dot; topics and groups have the same patterns."""
    users: Permissions = users_of(tmp_path, f"users: {{a: {{topics: [{pattern}]}}, b: {{groups: [{pattern}]}}}}")

    assert [name for name in [*matched, *others] if users.may_read("a", name)] == matched
    assert [name for name in [*matched, *others] if users.may_use("b", name)] == matched
    assert not any(users.may_use("a", name) or users.may_read("b", name) for name in matched)


@pytest.mark.parametrize("user", [None, "other"])
def test_a_user_who_is_not_in_the_file_may_nothing(tmp_path: Path, user: str | None) -> None:
    """A certificate of a known authority suffices for a connection alone."""
    users = users_of(tmp_path, 'users: {a: {topics: ["*"], groups: ["*"], bytes_per_second: 5000}}')

    assert not users.may_read(user, "orders")
    assert not users.may_use(user, "g")
    assert users.bytes_per_second(user) is None
    assert users.bytes_per_second("a") == 5000


def test_a_change_of_the_file_is_effective_without_a_restart(tmp_path: Path) -> None:
    """Permissions and keys are those of the file as it is."""
    users = users_of(tmp_path, "users: {a: {topics: [orders]}}")
    replace(tmp_path / "users.yaml", f"users: {{a: {{topics: [clicks]}}, b: {{SCRAM-SHA-256: '{KEYS}'}}}}")

    wait_for(lambda: users.may_read("a", "clicks"), "the changed file to be used")
    assert not users.may_read("a", "orders")
    assert users.keys("b")
    assert users.usual() == {ScramMechanism.SHA_256: (20, 4096)}


def test_a_broken_change_keeps_the_users_and_is_logged_once(tmp_path: Path) -> None:
    """The next valid change is effective."""
    users = users_of(tmp_path, "users: {a: {topics: [orders]}}")
    with structlog.testing.capture_logs() as logs:
        replace(tmp_path / "users.yaml", "users: {a: {topic: [orders]}}")
        wait_for(lambda: users.may_read("a", "orders") and len(logs) == 1, "the first broken file")
        for _ in range(1000):
            assert users.may_read("a", "orders")
        (tmp_path / "users.yaml").unlink()
        wait_for(lambda: users.may_read("a", "orders") and len(logs) == 2, "the missing file")
        replace(tmp_path / "users.yaml", "users: {a: {topics: [clicks, x]}}")
        wait_for(lambda: users.may_read("a", "clicks"), "the valid file")

    events = [each["event"] for each in logs]
    assert events[:2] == ["files_not_reloaded", "files_not_reloaded"]
    assert {*events[2:]} == {"files_reloaded"}  # twice, if the valid file appeared between a look and its load
    assert "users.a.topic: this name is unknown" in logs[0]["error"]


def test_all_mistakes_are_reported_at_once_with_their_places(tmp_path: Path) -> None:
    """No message contains keys."""
    text = f"""
users:
  a: {{topcis: [x], groups: ["a*b"]}}
  b: {{SCRAM-SHA-512: "{KEYS}", bytes_per_second: fast}}
  c: {{bytes_per_second: 1}}
  d: [topics]
  e: {{topics: orders}}
user: {{}}
"""
    with pytest.raises(ConfigurationError) as error:
        users_of(tmp_path, text)

    told = str(error.value)
    assert "8 problems" in told
    assert "user: this name is unknown" in told
    assert "users.d: names with values are expected" in told
    assert "users.e.topics: a list is expected, as topics: [...]" in told
    for place in (
        "users.a.topcis: this name is unknown",
        "users.a.groups",
        "users.b.SCRAM-SHA-512",
        "users.b.bytes_per_second",
        "users.c.bytes_",
        "users.d",
    ):
        assert place in told
    assert KEYS[10:30] not in told


@pytest.mark.parametrize("text", ["", "[]", "users:", "users: [a]", "a: [", "users: {a: {}, a: {}}", "\tx"])
def test_a_file_of_another_form_is_a_mistake(tmp_path: Path, text: str) -> None:
    """No content raises another error."""
    with pytest.raises(ConfigurationError, match=r"users\.yaml"):
        users_of(tmp_path, text)


def test_a_missing_file_is_a_mistake_with_a_way_out(tmp_path: Path) -> None:
    """The message names the command that creates it."""
    with pytest.raises(ConfigurationError, match="ts-endpoint user add"):
        Users(tmp_path / "users.yaml")


def test_a_quota_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    """It would otherwise be no quota, for a user whom the operator wants to stop."""
    file = tmp_path / "users.yaml"
    with pytest.raises(ConfigurationError, match=r"a\.bytes_per_second"):
        add_user(file, "a", None, bytes_per_second=0)
    assert not file.exists()


def test_a_user_is_added_changed_listed_and_removed(tmp_path: Path) -> None:
    """Comments and other users are kept, and the file is its owner's alone."""
    file = tmp_path / "users.yaml"
    add_user(file, "alice", "correct horse", topics=["orders", "clicks*"], iterations=4096)
    file.write_text("# who reads\n" + file.read_text().replace("- orders", "- orders  # since May"))
    add_user(file, "CN=reader,O=Example", None, topics=["*"], groups=["*"], bytes_per_second=5000)
    add_user(file, "alice", "another horse", groups=["g"], iterations=4096)

    found = read_users(file)

    assert [*found] == ["alice", "CN=reader,O=Example"]
    assert found["alice"].topics == ["orders", "clicks*"]
    assert found["alice"].groups == ["g"]
    for mechanism in ScramMechanism:
        assert has_password(mechanism, found["alice"].keys[mechanism], "another horse")
    assert not found["CN=reader,O=Example"].keys
    assert found["CN=reader,O=Example"].bytes_per_second == 5000
    assert file.read_text().startswith("# who reads\n")
    assert "# since May" in file.read_text()
    assert "horse" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [file]

    remove_user(file, "alice")
    assert [*read_users(file)] == ["CN=reader,O=Example"]


def test_a_link_to_the_file_and_its_rights_are_kept(tmp_path: Path) -> None:
    """Another directory can have the file, and a group can read it."""
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "users.yaml"
    link = tmp_path / "users.yaml"
    link.symlink_to(file)
    add_user(link, "alice", None, topics=["orders"])
    file.chmod(0o640)
    add_user(link, "bob", None, topics=["orders"])

    assert link.is_symlink()
    assert [*read_users(file)] == ["alice", "bob"]
    assert file.stat().st_mode & 0o777 == 0o640


def test_the_owner_of_the_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root adds a user, and the endpoint's own user still reads the file."""
    file = tmp_path / "users.yaml"
    add_user(file, "alice", None, topics=["orders"])
    owners = []
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    monkeypatch.setattr(os, "chown", lambda path, user, group: owners.append((user, group)))
    add_user(file, "bob", None, topics=["orders"])

    assert owners == [(file.stat().st_uid, file.stat().st_gid)]


def test_the_last_user_can_be_removed(tmp_path: Path) -> None:
    """A file without users is valid: no client can log in."""
    file = tmp_path / "users.yaml"
    add_user(file, "alice", "correct horse", iterations=4096)
    remove_user(file, "alice")

    assert read_users(file) == {}


def test_a_wrong_change_leaves_the_file(tmp_path: Path) -> None:
    """A pattern, a password and a name are checked before the file is replaced."""
    file = tmp_path / "users.yaml"
    add_user(file, "alice", "correct horse", iterations=4096)
    before = file.read_text()

    with pytest.raises(ConfigurationError, match=r"users\.bob\.topics"):
        add_user(file, "bob", None, topics=["a*b"])
    with pytest.raises(ConfigurationError, match="fewer than 8 characters"):
        add_user(file, "bob", "short")
    with pytest.raises(ConfigurationError, match="it has no user 'bob'"):
        remove_user(file, "bob")

    assert file.read_text() == before
    assert [*tmp_path.iterdir()] == [file]
