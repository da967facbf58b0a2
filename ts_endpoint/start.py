"""The entry point of the command `ts-endpoint`."""

from collections.abc import Callable

from ts_common.installed import start


def main() -> None:
    """Run `ts-endpoint`."""
    start("ts-endpoint", _load, "endpoint")


def _load() -> Callable[[], None]:
    from ts_endpoint.cli import main as run  # noqa: PLC0415  (its packages may be missing)

    return run
