"""The entry point of the command `tsctl`."""

from collections.abc import Callable

from ts_common.installed import start


def main() -> None:
    """Run `tsctl`."""
    start("tsctl", _load, "tsctl")


def _load() -> Callable[[], None]:
    from tsctl.cli import main as run  # noqa: PLC0415  (its packages may be missing)

    return run
