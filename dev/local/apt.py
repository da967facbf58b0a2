"""Installs packages of Debian where this process may, else the error has the command that an administrator runs.

`python -m dev.local.apt PROGRAM PACKAGE` installs a package unless the program is on the PATH.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence


class ToolMissingError(RuntimeError):
    """A program of this machine is missing. The message has the command to install it."""


def install(packages: Sequence[str], wanted: str) -> None:
    """Install packages.

    Args:
        packages: Debian's names.
        wanted: what needs them, as the beginning of a message.

    Raises:
        ToolMissingError: apt is missing or failed, or this process is not root's.
    """
    way_out = f"Install it and try again, for example: sudo apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise ToolMissingError(f"{wanted}. apt-get is missing, so it cannot be installed here. {way_out}")
    if os.geteuid() != 0:
        raise ToolMissingError(f"{wanted}. Without root it cannot be installed here. {way_out}")
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolMissingError(f"{wanted}. apt-get could not install it: {done.stderr.strip()[-1000:]} {way_out}")


def update() -> None:
    """Fetch the lists of packages, as root; an error shows when a package is missing."""
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)


def has(package: str) -> bool:
    """Return whether apt can install a package."""
    if shutil.which("apt-cache") is None:
        return False
    found = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    return found.returncode == 0


def main(program: str, package: str) -> int:
    """Install a package unless its program is on the PATH, and return the exit status."""
    if shutil.which(program) is not None:
        return 0
    try:
        update()
        install([package], f"The tests need the command {program}")
    except ToolMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
