"""The entry point of the command `tsctl`."""

import gc
import sys
from collections.abc import Callable
from typing import Final

from ts_common.installed import Hidden, start

# New objects before a collection of the youngest generation, and collections of it before one of the older generations.
# A command imports 800 modules. None of their objects is garbage, and Python's defaults scan them again and again.
_THRESHOLDS: Final = (20_000, 50, 50)


def main() -> None:
    """Run `tsctl`."""
    gc.set_threshold(*_THRESHOLDS)
    if sys.argv[1:2] != ["tables"]:  # whose engines may use pandas
        sys.meta_path.insert(0, Hidden("pandas"))  # pyarrow imports it with the first column: 0.3 s
    start("tsctl", _load, "tsctl")


def _load() -> Callable[[], None]:
    from tsctl.cli import main as run  # noqa: PLC0415  (its packages may be missing)

    return run
