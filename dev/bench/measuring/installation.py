"""The environment of processes as an installation by `requirements/tsctl.txt` has it.

With bytecode, which pip compiles, and without other packages: pyarrow imports pandas if it finds it.
"""

import os
import re
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

_SITE: Final = """
import sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NotInstalled)
"""


def as_installed(directory: Path) -> dict[str, str]:
    """Return the variables of such processes.

    Args:
        directory: for what they need; it is created.
    """
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(_SITE.format(names=_other_modules()))
    variables = {**os.environ, "PYTHONPATH": str(directory), "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def _other_modules() -> set[str]:
    """Return the modules of packages that a user of `tsctl` does not have."""
    lines = (Path(__file__).parents[3] / "requirements" / "tsctl.txt").read_text().splitlines()
    installed = {line.partition("==")[0] for line in lines if "==" in line} | {"ts-uploader"}
    return {
        module
        for module, packages in packages_distributions().items()
        if installed.isdisjoint(re.sub("[-_.]+", "-", package).lower() for package in packages)
    }
