"""Stores that a process opens once and keeps."""

import multiprocessing
import uuid
from pathlib import Path
from typing import Any

import pytest

from ts_common.errors import ConfigurationError
from ts_common.store.options import AddressingStyle, Connection, Credentials
from ts_common.store.shared_stores import shared_store, store_environment


def test_a_location_is_opened_once(tmp_path: Path) -> None:
    """Another location is another store."""
    first, second = f"{tmp_path.as_uri()}/1", f"{tmp_path.as_uri()}/2"
    assert shared_store(first) is shared_store(first)
    assert shared_store(first) is not shared_store(second)
    assert shared_store(second).location == second


def test_a_connection_is_a_store_of_its_own() -> None:
    """Equal options are one connection; other credentials of a location are another."""
    location = f"s3://{uuid.uuid4().hex}"

    def connection(secret: str) -> Connection:
        return Connection(AddressingStyle.PATH, "http://127.0.0.1:9", "us-east-1", credentials=Credentials("a", secret))

    assert shared_store(location, connection("x")) is shared_store(location, connection("x"))
    assert shared_store(location, connection("x")) is not shared_store(location, connection("y"))


def test_a_changed_environment_is_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may switch to another profile or endpoint between two scans."""
    first = shared_store(tmp_path.as_uri())
    monkeypatch.setenv("AWS_PROFILE", "another")
    assert shared_store(tmp_path.as_uri()) is not first
    monkeypatch.undo()
    assert shared_store(tmp_path.as_uri()) is first


def test_options_of_s3_for_another_store_are_an_error(tmp_path: Path) -> None:
    """It is raised each time."""
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="applies only to S3"):
            shared_store(tmp_path.as_uri(), Connection(region="eu-west-1"))


def identity(location: str, results: Any) -> None:
    results.put((id(shared_store(location)), shared_store(location) is shared_store(location)))


def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    """It must not send requests on a connection of its parent."""
    mine = shared_store(tmp_path.as_uri())
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=identity, args=(tmp_path.as_uri(), results))
    process.start()
    process.join()
    theirs, is_kept = results.get()
    assert theirs != id(mine)  # the parent's store exists in the child, so its address is not free
    assert is_kept
    assert shared_store(tmp_path.as_uri()) is mine


def test_variables_of_stores_are_returned_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is kept is not that of a changed environment."""
    before = store_environment()
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    assert store_environment() == before
    for name in ("AWS_PROFILE", "AZURE_CLIENT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "HADOOP_USER_NAME", "https_proxy"):
        monkeypatch.setenv(name, f"other {name}")
        assert (name, f"other {name}") in store_environment()
