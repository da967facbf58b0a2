"""Programs of Debian packages, fetched and unpacked below `build/`, without installing them or starting a service.

unpacked("prometheus", ["prometheus"], "prometheus and promtool") -> build/prometheus, with usr/bin/ in it
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ts_local.jars import BUILD, ToolMissingError, build_once, run


def unpacked(name: str, packages: Sequence[str], wanted: str) -> Path:
    """Return the directory of unpacked packages, fetched if needed.

    Args:
        name: of the directory below `build/`.
        packages: Debian's names; their dependencies are not fetched.
        wanted: the programs, for messages.

    Raises:
        ToolMissingError: apt is missing, or does not find a package.
        BuildFailedError: apt or dpkg failed.
    """
    return build_once(BUILD / name, " ".join(packages).encode(), partial(_unpack, packages, wanted))


def _unpack(packages: Sequence[str], wanted: str, directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ToolMissingError(
            f"{wanted}: missing, and apt-get to fetch it is missing too. Put it on the PATH; Debian has it in "
            f"{packages[0]}"
        )
    download = ["apt-get", "download", "-qq", *packages]
    if _fails(download, directory):
        if os.geteuid() == 0:
            run(["apt-get", "update", "-qq"])
        if _fails(download, directory):
            raise ToolMissingError(
                f"{wanted}: missing, and apt-get does not find its packages. Install it, for example: "
                f"sudo apt-get update && sudo apt-get install {packages[0]}"
            )
    for package in directory.glob("*.deb"):
        run(["dpkg-deb", "-x", str(package), str(directory)])
        package.unlink()


def _fails(command: Sequence[str], directory: Path) -> bool:
    return subprocess.run(command, cwd=directory, capture_output=True, check=False).returncode != 0
