"""Commands of the Java servers and tools: small, and quick to start on two cores.

A class archive has the classes of a program as the JVM needs them (application class-data sharing, JEP 350). With it a
broker starts with half the processor time. `python -m dev.local.class_archives` makes them; without one, the JVM parses
the jars.
"""

import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.local.jars import BUILD, PACKAGE, Line, kafka_jars
from dev.local.jdk import program
from dev.local.ports import LOOPBACK

# With the first compiler alone and the serial collector, a short-lived server starts in half the time, and brokers only
# move bytes here.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
_LOGGING: Mapping[Line, str] = {
    "3.9": f"-Dlog4j.configuration=file:{PACKAGE / 'kafka-3.9' / 'log4j.properties'}",
    "4": f"-Dlog4j2.configurationFile={PACKAGE / 'kafka-4' / 'log4j2.properties'}",
}


# An archive of other jars or another JVM is not used, and the JVM would print a warning among a tool's output.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_written_to: Path | None = None


def class_archives(programs: str) -> Path:
    """Return the directory with the class archives of a line of Kafka or of Spark, whether or not they exist."""
    return BUILD / "class-archives" / programs


@contextmanager
def writing_class_archives(directory: Path) -> Iterator[None]:
    """Make each program that starts in the block write the archive of its program to a directory when it exits.

    A program that is killed writes none.
    """
    global _written_to  # noqa: PLW0603  (the servers build their commands themselves)
    _written_to = directory
    try:
        yield
    finally:
        _written_to = None


def class_archive(programs: str, main: str) -> list[str]:
    """Return the JVM's options that read the archive of a program, or write it; none if there is no archive."""
    name = f"{main}.jsa"
    if _written_to is not None:
        return [*_QUIET, f"-XX:ArchiveClassesAtExit={_written_to / name}"]
    for archive in (class_archives(programs) / name, class_archives(programs) / "kafka.Kafka.jsa"):
        if archive.exists():  # other programs load many classes of the broker too
            return [*_QUIET, f"-XX:SharedArchiveFile={archive}"]
    return []


def named_host() -> list[str]:
    """Return the JVM's option that gives the host's own name the address of loopback; a host need not have another one.

    The JVM finds no other name then.
    """
    hosts = BUILD / "hosts"
    wanted = f"{LOOPBACK} localhost {socket.gethostname()}\n"
    if not hosts.exists() or hosts.read_text() != wanted:
        BUILD.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=BUILD, delete=False) as file:
            file.write(wanted)
        Path(file.name).replace(hosts)  # at once, for processes that start meanwhile
    return [f"-Djdk.net.hosts.file={hosts}"]


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
    further_jars: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs class `main` with one line's jars.

    Args:
        line: the line of the jars.
        main: the class with the main method.
        arguments: the program's own.
        heap_mb: maximum size of the heap, in MiB.
        further_jars: after those of the line.
        options: further options of the JVM.

    Raises:
        ToolMissingError, BuildFailedError: as `dev.local.jars.kafka_jars`.
    """
    class_path = ":".join([f"{kafka_jars(line)}/*", *map(str, further_jars)])
    fixed = [program("java"), f"-Xmx{heap_mb}m", *FAST_START, *class_archive(line, main), _LOGGING[line]]
    return [*fixed, *options, "-cp", class_path, main, *arguments]
