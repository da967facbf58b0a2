"""The entry point of the command `ts-uploader`."""

from collections.abc import Callable

from ts_common.installed import start


def main() -> None:
    """Run `ts-uploader`."""
    start("ts-uploader", _load, "agent")


def _load() -> Callable[[], None]:
    from ts_uploader.cli import main as run  # noqa: PLC0415  (its packages may be missing)

    return run
