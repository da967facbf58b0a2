"""A release: what `make dist` writes, and that hosts can install it."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from dev import dist

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a release and return its directory."""
    return dist.build(tmp_path_factory.mktemp("first") / "dist")


def test_two_builds_are_equal_in_every_byte(release: Path, tmp_path: Path) -> None:
    """Anyone can compare the sums of a published release with those of their own build."""
    again = dist.build(tmp_path / "dist")
    assert (again.parent / "SHA256SUMS").read_text() == (release.parent / "SHA256SUMS").read_text()


def test_the_wheel_contains_every_file_of_the_packages(release: Path) -> None:
    """Also data files, such as templates and `py.typed`; and nothing of the tests."""
    (wheel,) = release.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(CHECKOUT))
        for package in dist.PACKAGES
        for path in (CHECKOUT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {*dist.MODULES}
    manuals = {name for name in names if name.endswith((".1",))}
    assert names - manuals == expected
    assert {Path(name).name for name in manuals} == {"ts-uploader.1", "tsctl.1", "ts-endpoint.1"}


def test_every_package_of_the_checkout_is_released() -> None:
    """But the local cluster, tests and benchmarks: a command that needs a package finds it."""
    found = {path.parent.name for path in CHECKOUT.glob("*/__init__.py")}
    assert {*dist.PACKAGES} == found - {"dev", "tests"}


def test_the_version_is_the_same_everywhere(release: Path) -> None:
    """In the wheel, in `--version` and in the newest section of the changelog."""
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert release.name == f"ts-uploader-{version}"
    changelog = (release / "CHANGELOG.md").read_text().splitlines()
    newest = next(line for line in changelog if line.startswith("## "))
    assert newest.split()[1] == version


@pytest.mark.parametrize("damaged", [False, True])
def test_only_the_wheel_of_the_release_is_installed(release: Path, tmp_path: Path, damaged: bool) -> None:
    """The hash of the wheel is locked: pip rejects another wheel of the same name."""
    place, python = tmp_path / "release", tmp_path / "venv/bin/python"
    place.mkdir()
    (wheel,) = release.glob("*.whl")
    (place / wheel.name).write_bytes(wheel.read_bytes() + (b"\0" if damaged else b""))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python.parents[1]], check=True)
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install"]
    options = ["--require-hashes", "--no-deps", "--no-index", "--find-links", str(place)]
    locked = str(release / "requirements/ts-uploader.txt")
    ended = subprocess.run(
        [*install, *options, "-r", locked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert (ended.returncode != 0) == damaged, ended.stdout + ended.stderr
    assert ("DO NOT MATCH THE HASHES" in ended.stderr) == damaged
