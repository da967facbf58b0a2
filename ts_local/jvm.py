"""How the Java servers and tools are started: small, and quick to come up on two cores."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ts_local.jars import PACKAGE, Line, java, kafka_jars

# The first compiler alone and the serial collector: a short-lived server starts in half the time, and brokers here
# move bytes that they need not touch.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
_LOGGING: Mapping[Line, str] = {
    "3.9": f"-Dlog4j.configuration=file:{PACKAGE / 'kafka-3.9' / 'log4j.properties'}",
    "4": f"-Dlog4j2.configurationFile={PACKAGE / 'kafka-4' / 'log4j2.properties'}",
}


def temporary_files_in(directory: Path) -> list[str]:
    """The JVM's option to keep what it unpacks (lz4's and zstd's libraries) in a directory that goes with the server.

    A server that is killed never deletes them itself.
    """
    return [f"-Djava.io.tmpdir={directory.absolute()}"]


def java_command(
    line: Line,
    main: str,
    arguments: Sequence[str],
    *,
    heap_mb: int = 256,
    classes: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """The command that runs class `main` on one line's jars.

    Args:
        line: which jars.
        main: the class with the main method.
        arguments: the program's own.
        heap_mb: greatest size of the heap, in MiB.
        classes: directories of classes put before the jars.
        options: further options of the JVM.

    Raises:
        ToolMissingError, BuildFailedError: as `ts_local.jars.kafka_jars`.
    """
    class_path = ":".join([*map(str, classes), f"{kafka_jars(line)}/*"])
    fixed = [java(), f"-Xmx{heap_mb}m", *FAST_START, _LOGGING[line]]
    return [*fixed, *options, "-cp", class_path, main, *arguments]
