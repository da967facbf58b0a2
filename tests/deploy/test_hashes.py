"""Every package that is installed on a broker's host has a hash, the build tool included."""

import re
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
INSTALLING = [
    *(CHECKOUT / "docs").glob("*.md"),
    CHECKOUT / "README.md",
    CHECKOUT / "Makefile",
    CHECKOUT / "deploy" / "Dockerfile",
    CHECKOUT / "deploy" / "fleet" / "on-host",
]
_INSTALLS = re.compile(r"\bpip\S* (?:install|wheel) [^\n`|&;]*")


@pytest.mark.parametrize("file", INSTALLING, ids=lambda file: file.name)
def test_every_installation_is_held_by_hashes_or_fetches_nothing(file: Path) -> None:
    """A build in isolation would download any newer setuptools from the index."""
    for command in _INSTALLS.findall(file.read_text()):
        words = command.split()
        if "--require-hashes" in words or "'ts-uploader[" in command:
            continue
        if words[-1].startswith("pyspark-client=="):  # Spark's own client, on an analyst's host, without this package
            continue
        assert "--no-deps" in words, command
        assert "--no-build-isolation" in words or ".whl" in command, command


def test_what_builds_a_release_is_locked() -> None:
    """The packages of pyproject.toml, with hashes, and no others."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    locked = (CHECKOUT / "requirements" / "build.txt").read_text()
    assert re.findall(r"^(\S+==\S+)", locked, re.MULTILINE) == project["build-system"]["requires"]
    assert locked.count("--hash=sha256:") >= len(project["build-system"]["requires"])


def test_all_lock_files_have_the_same_versions() -> None:
    """Pages install several of them into one environment, where pip refuses two versions of a package."""
    versions: dict[str, dict[str, set[str]]] = {}
    for file in (CHECKOUT / "requirements").glob("*.txt"):
        for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", file.read_text(), re.MULTILINE):
            versions.setdefault(name, {}).setdefault(file.name, set()).add(version)
    assert versions["botocore"].keys() > {"agent.txt", "tables.txt", "tsctl.txt"}
    different = {name: files for name, files in versions.items() if len({*map(frozenset, files.values())}) > 1}
    assert not different


def test_one_environment_serves_operator_analyst_and_application() -> None:
    """The packages of `tsctl` are enough for the reader, Spark's source, schemas and the consumer."""
    locked = {
        extra: {*re.findall(r"^([\w.-]+)==", (CHECKOUT / f"requirements/{extra}.txt").read_text(), re.MULTILINE)}
        for extra in ("tsctl", "reader", "spark", "schemas", "consumer")
    }
    assert {extra: packages - locked["tsctl"] for extra, packages in locked.items()} == {
        extra: set() for extra in locked
    }
