"""Commands of the Java servers and tools: small, and quick to start on two cores."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ts_local.jars import PACKAGE, Line, java, kafka_jars

# With the first compiler alone and the serial collector, a short-lived server starts in half the time, and brokers only
# move bytes here.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
_LOGGING: Mapping[Line, str] = {
    "3.9": f"-Dlog4j.configuration=file:{PACKAGE / 'kafka-3.9' / 'log4j.properties'}",
    "4": f"-Dlog4j2.configurationFile={PACKAGE / 'kafka-4' / 'log4j2.properties'}",
}


def temporary_files_in(directory: Path) -> list[str]:
    """Return the JVM's option to unpack libraries (of lz4 and zstd) in a directory that is deleted with the server.

    A server that is killed does not delete them itself.
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
    """Return the command that runs class `main` with one line's jars.

    Args:
        line: the line of the jars.
        main: the class with the main method.
        arguments: the program's own.
        heap_mb: maximum size of the heap, in MiB.
        classes: directories of classes put before the jars.
        options: further options of the JVM.

    Raises:
        ToolMissingError, BuildFailedError: as `ts_local.jars.kafka_jars`.
    """
    class_path = ":".join([*map(str, classes), f"{kafka_jars(line)}/*"])
    fixed = [java(), f"-Xmx{heap_mb}m", *FAST_START, _LOGGING[line]]
    return [*fixed, *options, "-cp", class_path, main, *arguments]
