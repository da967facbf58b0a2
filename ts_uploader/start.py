"""The entry point of the command `ts-uploader`."""

from ts_common.installed import start


def main() -> None:
    """Run `ts-uploader`."""
    start("ts-uploader", "ts_uploader.cli", "agent")
