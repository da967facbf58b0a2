"""Kafka's MirrorMaker 2 in its dedicated mode, as `connect-mirror-maker.sh` starts it."""

from pathlib import Path

from dev.local.jars import Line, mirror_maker_jars
from dev.local.jvm import java_command, temporary_files_in
from dev.local.process import Server


class MirrorMaker(Server):
    """A process of MirrorMaker.

    Args:
        line: the line of Kafka.
        directory: that it runs in, and its log.

    Raises:
        ToolMissingError, BuildFailedError: from `command`, as `dev.local.jars.kafka_jars`.
    """

    def __init__(self, line: Line, directory: Path, settings: Path) -> None:
        super().__init__("mirror-maker", directory, directory / "mirror-maker.log")
        self._line: Line = line
        self._settings = settings

    def command(self) -> list[str]:
        """Return the command of its main class."""
        return java_command(
            self._line,
            "org.apache.kafka.connect.mirror.MirrorMaker",
            [str(self._settings)],
            heap_mb=384,
            further_jars=[mirror_maker_jars(self._line) / "*"],
            options=temporary_files_in(self.directory),
        )

    def not_ready(self) -> None:
        """Return None: no port answers, and the target has its progress."""
