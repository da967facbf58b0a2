"""A release: what `make dist` writes, and that hosts can install it."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from dev import dist
from tests.matrix import cases

CHECKOUT = Path(__file__).parents[2]


def test_times_owners_and_modes_of_a_release_are_fixed(release: Path) -> None:
    """The time is the commit's: those of a checkout differ between two builds, as its owner does."""
    committed = dist.commit_time()
    (wheel,) = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        entries = zipped.infolist()
    assert {each.date_time for each in entries} == {(*time.gmtime(committed)[:5], time.gmtime(committed).tm_sec & ~1)}
    assert {each.external_attr >> 16 & 0o777 for each in entries} <= {0o644, 0o664}
    with tarfile.open(release.with_name(f"{release.name}.tar.gz")) as packed:
        members = packed.getmembers()
    assert [each.name for each in members[1:]] == sorted(each.name for each in members[1:])
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {
        (committed, 0, 0, "root", "root")
    }
    assert {each.mode for each in members} == {0o755, 0o644}


@pytest.mark.full
def test_two_builds_are_equal_in_every_byte(release: Path, tmp_path: Path) -> None:
    """Another user builds in another directory, without git; `-S`: `dev.dist` needs the standard library alone."""
    builder = ("dev/__init__.py", "dev/dist.py", "dev/bill_of_materials.py")
    for name in (*dist.PACKAGES, *dist.MODULES, *dist.BUNDLED, *builder, "pyproject.toml"):
        source, copy = CHECKOUT / name, tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    for path in tmp_path.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600 | path.stat().st_mode & 0o100)
        os.utime(path, (10**9, 10**9))
    subprocess.run(
        [sys.executable, "-S", "-m", "dev.dist"],
        cwd=tmp_path,
        umask=0o077,
        env={"PATH": "", "PYTHONHASHSEED": "1", "TZ": "Asia/Kolkata", "SOURCE_DATE_EPOCH": str(dist.commit_time())},
        check=True,
    )
    assert (tmp_path / "dist/SHA256SUMS").read_text() == (release.parent / "SHA256SUMS").read_text()


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


# The image installs an intact one.
@pytest.mark.parametrize("damaged", cases([False, True], quick=[True]))
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
