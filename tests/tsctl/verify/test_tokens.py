"""Tokens that a killed repair left in `seal.json` (protocol rule 16): `verify` reports and removes them."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import CLUSTER, MadeArchive
from tests.made_seals import SEALED, STEP, looking_for_seals, put_sealed
from tests.tsctl.running import Run, runner
from ts_common.archive.sealed_objects import SealJson
from ts_common.archive.unsealing import change_tokens, remove_tokens
from ts_common.errors import PreconditionFailed
from ts_common.store.contract import ObjectInfo
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.shipping.sealing import seal

HOUR = 3600


def name_of(hours: float, what: str = "tsctl-0a") -> str:
    """Return the name of a token whose repair began so many hours ago."""
    return f"{int((time.time() - hours * HOUR) * 1000):013d}-{what}"


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Topic `t` with sealed segments."""
    made = MadeArchive(tmp_path / "store")
    put_sealed(made, "tail")
    return made


@pytest.fixture
def verified(archive: MadeArchive, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `tsctl verify` on the archive."""
    run: Run = runner(capfd)

    def ended(*options: object) -> Any:
        return run("verify", "--json", "--each", "--url", archive.location, "--cluster", CLUSTER, *options)

    return ended


def tokens(archive: MadeArchive) -> Mapping[str, tuple[int, int]]:
    found = SealJson.read(archive.store, archive.partition("t").seal_json)
    assert found is not None
    return found.open


def test_an_old_token_is_reported_and_removed_on_request(archive: MadeArchive, verified: Run) -> None:
    """With its name, age and offsets; one of a repair that can be in progress is neither."""
    keys, old, young = archive.partition("t"), name_of(30), name_of(2)
    change_tokens(archive.store, keys, {old: (4, 6), young: (8, 9)})
    ended = verified()
    (finding,) = [each for each in ended.document["findings"] if each["code"] == "token-left"]
    assert (finding["from"], finding["to"], finding["detail"]) == (4, 6, f"token {old} of 30 hours ago")
    assert ended.code == 1
    assert set(tokens(archive)) == {old, young}
    assert f"token {old} removed" in verified("--remove-tokens").document["warnings"][0]
    assert tokens(archive) == {young: (8, 9)}
    assert "token-left" not in {each["code"] for each in verified("--remove-tokens").document["findings"]}
    assert tokens(archive) == {young: (8, 9)}
    assert "token-left" in {each["code"] for each in verified("--in-flight-hours", 1).document["findings"]}
    verified("--in-flight-hours", 1, "--remove-tokens")
    with looking_for_seals(1):
        assert seal(archive.store, keys, 1, 1) == SEALED + 2


def test_a_token_without_a_time_is_as_old_as_the_last_write(archive: MadeArchive, verified: Run) -> None:
    """It is not younger."""
    change_tokens(archive.store, archive.partition("t"), {"repair": (4, 6)})
    verified("--remove-tokens")
    assert tokens(archive) == {"repair": (4, 6)}
    archive.age(30 * HOUR, "seal.json")
    verified("--remove-tokens")
    assert tokens(archive) == {}


def test_a_write_of_another_process_keeps_the_tokens(archive: MadeArchive) -> None:
    """A repair can have entered its token again, under the same name, since `seal.json` was read."""
    keys, name = archive.partition("t"), name_of(30)
    change_tokens(archive.store, keys, {name: (0, STEP)})

    class Raced(WrappedStore):
        def put(self, key: str, *arguments: Any, **named: Any) -> ObjectInfo:
            change_tokens(archive.store, keys, {"other": (0, 1)})
            return super().put(key, *arguments, **named)

    with pytest.raises(PreconditionFailed):
        remove_tokens(Raced(archive.store, threads=1), keys.seal_json, time.time())
    assert set(tokens(archive)) == {name, "other"}
