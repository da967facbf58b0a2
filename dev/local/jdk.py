"""The one JDK of the local servers and of Spark.

    home()             its directory: of JAVA_HOME, of `java` on the PATH, else the newest below /usr/lib/jvm
    program("javac")   the path of one of its programs
    variables()        JAVA_HOME, for a process that starts Java itself: Spark, Maven

`python -m dev.local.jdk` installs one with apt, and Maven, if they are missing.

Kafka 3.9, Kafka 4.1, ZooKeeper 3.8 and Spark 4.1 support Java 17 and 21, and no other version together: Kafka 4.1 needs
17, and Spark 4.1 fails with 25 (Arrow's allocator reads memory in a way that it no longer has, and Hadoop calls
`Subject.getSubject`, which it rejects).
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from dev.local.apt import ToolMissingError, has, install, update

ACCEPTED: Final = (21, 17)  # versions, newest first
PROGRAMS: Final = ("java", "javac", "jar")
_VERSION: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_INSTALLED: Final = Path("/usr/lib/jvm")
_WANTED: Final = "The local servers need a JDK of Java 21 or 17, and Maven"


def home() -> Path:
    """Return the directory of the JDK.

    Raises:
        ToolMissingError: no JDK is installed that all servers and Spark accept.
    """
    return _chosen(os.environ.get("JAVA_HOME"), os.environ.get("PATH"), _INSTALLED)


def program(name: str) -> str:
    """Return the path of a program of the JDK; raise as `home`."""
    return str(home() / "bin" / name)


def variables() -> dict[str, str]:
    """Return the variable that names the JDK; raise as `home`."""
    return {"JAVA_HOME": str(home())}


def maven() -> str:
    """Return the path of Maven.

    Raises:
        ToolMissingError: it is not on the PATH.
    """
    found = shutil.which("mvn")
    if found is None:
        raise ToolMissingError(f"mvn is missing. {_WANTED}. Install them with: {_command()}")
    return found


@cache
def _chosen(java_home: str | None, path: str | None, installed: Path) -> Path:
    seen: dict[Path, str] = {}
    for directory in _candidates(java_home, path, installed):
        if directory in seen:
            continue
        version = version_of(directory)
        lacking = [name for name in PROGRAMS if not (directory / "bin" / name).exists()]
        if version in ACCEPTED and not lacking:
            return directory
        seen[directory] = f"Java {version} in {directory}" + (f", without {' and '.join(lacking)}" if lacking else "")
    found = f"found: {'; '.join(seen.values())}" if seen else "found: no Java"
    raise ToolMissingError(f"{_WANTED}; {found}. Install them with: {_command()}")


def _candidates(java_home: str | None, path: str | None, installed: Path) -> Iterator[Path]:
    if java_home:
        yield Path(java_home)
    if (java := shutil.which("java", path=path)) is not None:
        yield Path(java).resolve().parent.parent
    below = {each.resolve() for each in installed.glob("*") if (each / "bin").is_dir()}
    yield from sorted(below, key=lambda each: (version_of(each) or 0, each), reverse=True)


def version_of(directory: Path) -> int | None:
    """Return the version of a directory with Java; None if it has none."""
    try:
        found = _VERSION.search((directory / "release").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1])


def _command() -> str:
    return f"apt-get install openjdk-{ACCEPTED[0]}-jdk-headless maven (or openjdk-{ACCEPTED[1]}-jdk-headless)"


def main() -> int:
    """Install what is missing, print where the JDK is, and return the exit status."""
    try:
        _install()
        print(f"Java {version_of(home())}: {home()}")
    except ToolMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _install() -> None:
    """Install a JDK and Maven unless both are there.

    Raises:
        ToolMissingError: apt could not.
    """
    packages, wanted = [], _WANTED
    try:
        home()
    except ToolMissingError as error:
        wanted = str(error).partition(". Install")[0]
        packages.append(f"openjdk-{ACCEPTED[0]}-jdk-headless")
    if shutil.which("mvn") is None:
        packages.append("maven")
    if not packages:
        return
    update()
    if packages[0] != "maven":
        packages[0] = next(filter(has, (f"openjdk-{each}-jdk-headless" for each in ACCEPTED)), packages[0])
    install(packages, wanted)


if __name__ == "__main__":
    sys.exit(main())
