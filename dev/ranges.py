"""Try the dependency ranges of `pyproject.toml`: `python -m dev.ranges oldest|newest [PYTEST ARGUMENTS]`.

It builds the wheel and installs it with its extras in `build/ranges/<resolution>`, with the oldest or the newest
version of every direct dependency that the ranges allow. Then it runs the tests that use the dependencies most.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from dev import dist
from dev.local.jars import BUILD

EXTRAS = "agent,spark,reader,tables,tsctl,schemas,gcs,azure"
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
TESTS = ("tests/common", "tests/tsctl", "tests/spark", "tests/uploader/status", "tests/uploader/metrics")
_LEFT_OUT = (
    "tests/spark/session",
    "tests/spark/versions",
    "tests/spark/against_kafka",
    "tests/tsctl/report",
    # The serializers of the oldest confluent-kafka have other dependencies than those of `dev`.
    "tests/reader/schemas/test_real_registry.py",
)
_GENERATED = "tests/tsctl/test_cli.py::test_the_page_is_the_generated_one"  # by typer's version of `dev`
_NOT_TOOLS = re.compile(
    r"ts-uploader|atheris|boto3-stubs|mypy|ruff|import-linter|hadolint|kubernetes|shellcheck|uv==|types-"
)


def tools() -> list[str]:
    """Return the requirements of the test tools, with the exact versions of the extra `dev`."""
    project = tomllib.loads((dist.CHECKOUT / "pyproject.toml").read_text())["project"]
    return [each for each in project["optional-dependencies"]["dev"] if not _NOT_TOOLS.match(each)]


def declared() -> list[str]:
    """Return the requirements of the wheel and of its extras: uv applies `lowest-direct` only to what it is given."""
    project = tomllib.loads((dist.CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(each for extra in EXTRAS.split(",") for each in extras[extra])]


def install(name: str) -> Path:
    """Make a virtual environment with the wheel, its dependencies and the test tools, and return its `python`.

    Args:
        name: of a resolution: `oldest` or `newest`.

    Raises:
        subprocess.CalledProcessError: the versions conflict, or a package cannot be built; uv has printed why.
    """
    place = BUILD / "ranges" / name
    shutil.rmtree(place, ignore_errors=True)
    bundle = dist.build(place / "dist")
    (wheel,) = bundle.glob("*.whl")
    python = place / "venv" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(python.parents[1])], check=True)
    options = ["--quiet", "--python", str(python), "--resolution", RESOLUTIONS[name]]
    subprocess.run([*uv, "pip", "install", *options, f"{wheel}[{EXTRAS}]", *declared(), *tools()], check=True)
    return python


def main() -> int:
    """Install one resolution, run the tests in it, and return pytest's status."""
    parser = argparse.ArgumentParser(prog="python -m dev.ranges", description="Try the dependency ranges.")
    parser.add_argument("name", choices=RESOLUTIONS)
    options, arguments = parser.parse_known_args()
    python = install(options.name)
    subprocess.run([sys.executable, "-m", "uv", "pip", "list", "--python", str(python)], check=True)
    command = [str(python), "-m", "pytest", "-q", "-m", "not full", "-n", "2", "--dist", "loadfile"]
    command += ["-W", "ignore::DeprecationWarning"]  # an old version may call what a newer one of another package drops
    ignored = [word for folder in _LEFT_OUT for word in ("--ignore", folder)] + ["--deselect", _GENERATED]
    chosen = [word for word in arguments if not word.startswith("-")] or TESTS
    flags = [word for word in arguments if word.startswith("-")]
    environment = {**os.environ, "PYTHONPATH": str(dist.CHECKOUT), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [*command, *ignored, *flags, *chosen], cwd=dist.CHECKOUT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
