"""Readers of releases before lists of erased offsets: they refuse a partition that has one."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.erased.canary import canary
from tests.made_archive import CLUSTER

CHECKOUT = Path(__file__).parents[2]
# The commit before a change of what readers make of `log.start`, where its command begins, and what it reports.
RELEASES = {
    "before lineages": ("3491713f^", "tsctl.cli", "not a log start offset of 20 digits"),
    "before retention": (
        "e5a7236d^",
        "tsctl.start",
        "log.start is written in version 3 of its format by a later release; this release reads version 2: ",
    ),
    "before lists": (
        "07c021b9^",
        "tsctl.start",
        "a later release erased records there, which this one would show: upgrade this one",
    ),
}
RUN = "import sys; from {module} import main; sys.argv[0] = 'tsctl'; main()"


def old_tsctl(directory: Path, commit: str, module: str, *arguments: str) -> tuple[int, bytes, str]:
    """Return the exit code, the output and the errors of a command of an earlier commit."""
    if not directory.exists():
        packed = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(directory, filter="data")
    command = [sys.executable, "-c", RUN.format(module=module), *arguments, "--cluster", CLUSTER]
    ended = subprocess.run(command, cwd=directory, env={"PYTHONPATH": str(directory)}, capture_output=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr.decode()


@pytest.mark.full
@pytest.mark.parametrize("release", RELEASES)
def test_an_earlier_release_refuses_a_partition_with_a_list(tmp_path: Path, release: str) -> None:
    """It shows no record, and its message names what it cannot read; before the list it reads the partition."""
    person = canary(tmp_path / "archive")
    commit, module, expected = RELEASES[release]
    place = "t", "--url", person.archive.location
    code, _, err = old_tsctl(tmp_path / "release", commit, module, "ls", *place)
    assert (code, err) == (0, "")
    person.erase()
    code, out, err = old_tsctl(tmp_path / "release", commit, module, "cat", *place)
    assert (code != 0, out) == (True, b"")
    assert expected in err
    assert person.person.decode() not in err
