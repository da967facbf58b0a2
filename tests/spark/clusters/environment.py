"""A Spark home whose files a test owns, and a packed environment that is small because its libraries are links."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyspark

from dev.dist import build_wheel
from dev.local.environment import spark_variables
from dev.local.jdk import program


def spark_home(directory: Path) -> Path:
    """Return a Spark home in a directory: links to pyspark's files, so that executors write to this directory only."""
    home = directory / "spark"
    home.mkdir()
    for path in Path(pyspark.__path__[0]).iterdir():
        (home / path.name).symlink_to(path)
    return home


def pack_environment(directory: Path) -> None:
    """Make `environment` and `environment.tar.gz` in a directory, as the page does, in a second.

    The package is that of the project's wheel. Its libraries are those of this process, by a link: only executors of
    this host find them.
    """
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    zipfile.ZipFile(build_wheel(directory)).extractall(site)
    libraries = next(path for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix))
    (site / "libraries.pth").write_text(f"{libraries}\n")
    with tarfile.open(directory / "environment.tar.gz", "w:gz") as archive:
        for path in sorted(environment.iterdir()):
            archive.add(path, path.name)


def shell_environment(home: Path) -> dict[str, str]:
    """Return variables for `spark-submit` of a Spark home; no other Python on the PATH has the package."""
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(home.parent),
        "PATH": f"{home}/bin:{Path(program('java')).parent}:/usr/bin:/bin",
        "PYTHONPATH": "",
        **spark_variables(),
    }
