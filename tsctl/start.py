"""The entry point of the command `tsctl`."""

import sys
from collections.abc import Callable

from ts_common.installed import Hidden, start


def main() -> None:
    """Run `tsctl`."""
    if sys.argv[1:2] != ["tables"]:  # whose engines may use pandas
        sys.meta_path.insert(0, Hidden("pandas"))  # pyarrow imports it with the first column: 0.3 s
    start("tsctl", _load, "tsctl")


def _load() -> Callable[[], None]:
    from tsctl.cli import main as run  # noqa: PLC0415  (its packages may be missing)

    return run
