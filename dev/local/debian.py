"""Programs of Debian packages, fetched and unpacked below `build/`, without installing them or starting a service.

unpacked("kcat", ["kcat"], "kcat") -> build/kcat, with usr/bin/kcat in it, and each library that this machine lacks
libraries(root)                    -> LD_LIBRARY_PATH for its programs
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dev.local.apt import ToolMissingError, update
from dev.local.jars import BUILD, build_once, run


def unpacked(name: str, packages: Sequence[str], wanted: str) -> Path:
    """Return the directory of unpacked packages and of those that they need and this machine lacks, fetched if needed.

    Args:
        name: of the directory below `build/`.
        packages: Debian's names.
        wanted: the programs, for messages.

    Raises:
        ToolMissingError: apt is missing, or does not find a package.
        BuildFailedError: apt or dpkg failed.
    """
    return build_once(BUILD / name, " ".join(packages).encode(), partial(_unpack, packages, wanted))


def libraries(root: Path) -> dict[str, str]:
    """Return the variable that names the libraries below a directory to its programs."""
    return {"LD_LIBRARY_PATH": ":".join(sorted({str(path.parent) for path in root.rglob("*.so*")}))}


def _unpack(packages: Sequence[str], wanted: str, directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ToolMissingError(
            f"{wanted}: missing, and apt-get to fetch it is missing too. Put it on the PATH; Debian has it in "
            f"{packages[0]}"
        )
    if not _downloaded(packages, directory):
        update()
        if not _downloaded(packages, directory):
            raise ToolMissingError(
                f"{wanted}: missing, and apt-get does not find its packages. Install it, for example: "
                f"sudo apt-get update && sudo apt-get install {packages[0]}"
            )
    for package in directory.glob("*.deb"):
        run(["dpkg-deb", "-x", str(package), str(directory)])
        package.unlink()


def _downloaded(packages: Sequence[str], directory: Path) -> bool:
    """Download packages and what they need; return whether apt has them all."""
    plan = _apt("install", "--simulate", "--no-install-recommends", *packages)
    needed = re.findall(r"^Inst (\S+) \(", plan.stdout, re.MULTILINE)
    return plan.returncode == 0 and _apt("download", *{*packages, *needed}, cwd=directory).returncode == 0


def _apt(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["apt-get", "-qq", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
