"""systemd's checker of units, `systemd-analyze`: that of the machine, or of Debian's packages below `build/`.

It needs no running systemd: `verify`, `security --offline=yes` and `syscall-filter` read files and built-in tables.

`python -m dev.local.systemd UNIT...` fetches it, so that a later start needs no network, and verifies units.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dev.local.apt import ToolMissingError
from dev.local.debian import libraries, unpacked
from dev.local.jars import BuildFailedError

_PROGRAM = "systemd-analyze"


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it, with output in English and without colours.

    Raises:
        ToolMissingError: it is missing, and apt to fetch it is too.
        BuildFailedError: apt or dpkg failed.
    """
    command, environment = _command()
    plain = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat", "SYSTEMD_LOG_TARGET": "console"}
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment, **plain},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _command() -> tuple[Sequence[str], dict[str, str]]:
    found = shutil.which(_PROGRAM)
    if found is not None:
        return (found,), {}
    root = unpacked("systemd", ["systemd"], _PROGRAM)
    return (str(root / "usr" / "bin" / _PROGRAM),), {**libraries(root), "SYSTEMD_UNIT_PATH": str(_units(root))}


def _units(root: Path) -> Path:
    return next(path for path in root.glob("**/systemd/system") if (path / "sysinit.target").exists())


def problems_of(unit: Path) -> str:
    """Return what systemd reports about a unit's file; empty for a valid one. The program itself may be missing."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / unit.name
        copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/sh", unit.read_text(), flags=re.MULTILINE))
        said = analyze("verify", "--man=no", "--recursive-errors=no", str(copy))
    # A machine without systemd lacks units that this one requires; an unknown key is only a warning.
    about_it = [line for line in said.stderr.splitlines() if unit.name in line]
    return "\n".join(about_it) or (said.stderr if said.returncode else "")


def main() -> int:
    """Fetch it, print its path, and verify the given units."""
    try:
        print(analyze("--version").stdout.splitlines()[0])
        problems = [problem for name in sys.argv[1:] if (problem := problems_of(Path(name)))]
    except (ToolMissingError, BuildFailedError) as error:
        problems = [str(error)]
    if problems:
        print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
