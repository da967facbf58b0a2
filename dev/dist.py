"""Build a release: `python -m dev.dist [--wheels EXTRA]`, or `make dist`.

`dist/` then contains:

    ts_uploader-VERSION-py3-none-any.whl    the wheel
    ts_uploader-VERSION.cdx.json            its bill of materials: all packages that its extras install
    ts-uploader-VERSION/                    the bundle that hosts, the fleet script and the image install from
    ts-uploader-VERSION.tar.gz              the same, packed
    SHA256SUMS                              of the files

The bundle contains the wheel and its bill, `requirements/` (exact versions and hashes, the wheel's own among them),
`deploy/`, `docs/` and `conf/`. With `--wheels` it also has `wheels/`: the locked dependencies, for hosts that have no
index. Two builds of one commit are equal in every byte, also of two users and in two directories: times are the
commit's (`SOURCE_DATE_EPOCH`), owners, modes and orders are fixed.

It needs Python with pip and the setuptools of `requirements/build.txt`, and no other package.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.bill_of_materials import bill_of_materials, read_licences, read_locks

CHECKOUT = Path(__file__).resolve().parents[1]
_PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
PACKAGES = tuple(each.rstrip("*") for each in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"])
MODULES = tuple(f"{each}.py" for each in _PROJECT["tool"]["setuptools"]["py-modules"])
BUNDLED = ("README.md", "CHANGELOG.md", "LICENSE", "conf", "deploy", "docs", "requirements")
EXTRAS = (
    "agent",
    "tsctl",
    "reader",
    "schemas",
    "tables",
    "endpoint",
    "spark",
    "pyspark",
    "gcs",
    "azure",
)  # those whose dependencies all have wheels
_LOCK = "requirements/ts-uploader.txt"
_UMASK = 0o022  # setuptools copies the modes of files into the wheel


def version() -> str:
    """Return the version of `pyproject.toml`."""
    return str(_PROJECT["project"]["version"])


def commit_time() -> int:
    """Return `SOURCE_DATE_EPOCH`, else the time of the commit, else of the changelog, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if git := shutil.which("git"):
        asked = subprocess.run(
            [git, "log", "-1", "--format=%ct"], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            return int(asked.stdout)
    return int((CHECKOUT / "CHANGELOG.md").stat().st_mtime)


def build_wheel(target: Path) -> Path:
    """Build the wheel from a copy of the packages, so that no stale `build/` directory is in it.

    Args:
        target: directory of the wheel.

    Raises:
        subprocess.CalledProcessError: the build failed; pip has printed why.
    """
    with TemporaryDirectory() as directory:
        source = Path(directory)
        for name in (*PACKAGES, "docs/man"):
            shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in (*MODULES, "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(CHECKOUT / name, source)
        for path in source.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())}
        subprocess.run(
            [*command, "--no-build-isolation", "-w", str(target), "."],
            cwd=source,
            env=environment,
            umask=_UMASK,
            check=True,
        )
    (wheel,) = target.glob(f"ts_uploader-{version()}-*.whl")
    return wheel


def write_bill(target: Path, wheel: Path) -> Path:
    """Write the bill of materials of a wheel, and return its file."""
    locks = {
        extra: file
        for extra in _PROJECT["project"]["optional-dependencies"]
        if extra != "dev" and (file := CHECKOUT / f"requirements/{extra}.txt").exists()
    }
    licences = read_licences(CHECKOUT / "requirements/licences.toml")
    bill = target / f"ts_uploader-{version()}.cdx.json"
    bill.write_text(bill_of_materials(version(), sha256(wheel), read_locks(locks), licences, commit_time()))
    return bill


def write_bundle(target: Path, released: Sequence[Path], extras: tuple[str, ...] = ()) -> Path:
    """Write the bundle's directory and return it.

    Args:
        target: directory of the bundle.
        released: the wheel and its bill of materials.
        extras: whose locked dependencies `wheels/` contains.

    Raises:
        subprocess.CalledProcessError: a dependency has no wheel, or its hash differs; pip has printed which.
    """
    bundle = target / f"ts-uploader-{version()}"
    bundle.mkdir()
    for name in BUNDLED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, bundle / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, bundle)
    for file in released:
        shutil.copy(file, bundle)
    wheel = released[0]
    (bundle / _LOCK).write_text(f"ts-uploader=={version()} \\\n    --hash=sha256:{sha256(wheel)}\n")
    for extra in extras:
        locked = bundle / "requirements" / f"{extra}.txt"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--require-hashes", "--only-binary=:all:", "-d", str(bundle / "wheels"), "-r", str(locked)]
        subprocess.run([*command, *options], check=True)
    return bundle


def pack(directory: Path) -> Path:
    """Pack a directory as `.tar.gz` next to it, with fixed times, owners and modes, and return the file."""
    packed = directory.with_name(f"{directory.name}.tar.gz")
    time = commit_time()
    with (
        packed.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in [directory, *sorted(directory.rglob("*"))]:
            entry = archive.gettarinfo(path, str(path.relative_to(directory.parent)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = time, 0, 0, "root", "root"
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(path.read_bytes()) if entry.isfile() else None)
    return packed


def sha256(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def build(target: Path, extras: tuple[str, ...] = ()) -> Path:
    """Replace a directory by a release of this checkout, and return the bundle's directory."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wheel = build_wheel(target)
    released = [wheel, write_bill(target, wheel)]
    bundle = write_bundle(target, released, extras)
    files = sorted([*released, pack(bundle)])
    (target / "SHA256SUMS").write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    return bundle


def main() -> int:
    """Build the release in `dist/` and print what is in it."""
    parser = argparse.ArgumentParser(prog="python -m dev.dist", description="Build a release in dist/.")
    parser.add_argument(
        "--wheels", action="append", default=[], choices=EXTRAS, metavar="EXTRA", help=f"one of {', '.join(EXTRAS)}"
    )
    options = parser.parse_args()
    target = CHECKOUT / "dist"
    build(target, tuple(options.wheels))
    print((target / "SHA256SUMS").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
