"""The entry point of the command `tsctl`."""

from ts_common.installed import start


def main() -> None:
    """Run `tsctl`."""
    start("tsctl", "tsctl.cli", "tsctl")
