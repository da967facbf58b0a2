"""A JVM that stays and runs commands with Kafka 4.1's classes, so that each call costs less than a millisecond.

The commands are in one table, `COMMANDS` of `resident/Resident.java`; a module of Python for each encodes its arguments
and decodes its result (`consumed_logs` for `consume`, `oracle` for `dump`, `kafka.tools` for `tool`). The process
starts at the first call, and again after a call that it did not answer in time or during which it ended.

`resident_jvm()` is the JVM that all callers in this process share.
"""

import atexit
import os
import selectors
import struct
import subprocess
import tempfile
import threading
import time
from functools import cache
from typing import IO, Final

from dev.local.jars import resident_jar
from dev.local.jvm import java_command

# Consumers would write INFO lines to standard output, among results.
QUIET: Final = ("-Dlog4j.configuration=", "-Dlog4j2.configurationFile=", "-Dorg.apache.logging.log4j.level=OFF")
SMALL_HEAP_MB: Final = 160
_HEAP_MB: Final = 512
_ANSWER_HEAD: Final = struct.Struct(">bi")
_ARGUMENTS_SIZE: Final = struct.Struct(">i")
_NAME_SIZE: Final = struct.Struct(">H")


class CommandFailedError(RuntimeError):
    """The command threw. The message has its stack trace."""


class JvmLostError(RuntimeError):
    """The JVM ended during a call, or did not answer in time. The next call starts another."""


class ResidentJvm:
    """One JVM, and calls to it, one after the other; threads may share it."""

    def __init__(self, heap_mb: int = SMALL_HEAP_MB) -> None:
        """Start nothing yet.

        Args:
            heap_mb: maximum size of the heap, in MiB.
        """
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._lock = threading.Lock()

    def call(self, command: str, arguments: bytes = b"", *, seconds: float = 60.0) -> bytes:
        """Run a command, and return its result.

        Args:
            command: its name in the table.
            arguments: in the form of the command.
            seconds: until the JVM is lost.

        Raises:
            CommandFailedError: the command threw.
            JvmLostError: no answer in time, or the JVM ended.
            ToolMissingError, BuildFailedError: as `dev.local.jars.resident_jar`.
        """
        with self._lock:
            process = self._process or self._start()
            name = command.encode()
            request = _NAME_SIZE.pack(len(name)) + name + _ARGUMENTS_SIZE.pack(len(arguments)) + arguments
            try:
                ends = time.monotonic() + seconds
                assert process.stdin is not None
                process.stdin.write(request)
                process.stdin.flush()
                status, size = _ANSWER_HEAD.unpack(self._read(process, _ANSWER_HEAD.size, ends))
                result = self._read(process, size, ends)
            except (OSError, EOFError, TimeoutError) as error:
                raise JvmLostError(f"the JVM was lost during {command}: {error}\n{self._end()}") from error
        if status:
            raise CommandFailedError(f"{command} failed:\n{result.decode(errors='replace')}")
        return result

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _start(self) -> "subprocess.Popen[bytes]":
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `_end` closes it
        # Room for classes is 1 GiB otherwise, more than a caller whose address space is limited may have left.
        options = ["-XX:CompressedClassSpaceSize=64m", *QUIET]
        jars = [resident_jar()]
        command = java_command("4", "Resident", [], heap_mb=self._heap_mb, further_jars=jars, options=options)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        return self._process

    def _read(self, process: "subprocess.Popen[bytes]", size: int, ends: float) -> bytes:
        assert process.stdout is not None
        read = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(read) < size:
                if not selector.select(max(ends - time.monotonic(), 0.0)):
                    raise TimeoutError("no answer in time")
                piece = os.read(process.stdout.fileno(), min(size - len(read), 1 << 20))
                if not piece:
                    raise EOFError("its output ended")
                read += piece
        return bytes(read)

    def _end(self) -> str:
        """End the process if there is one; return the end of what it wrote to standard error."""
        process, errors = self._process, self._errors
        self._process = self._errors = None
        if process is None or errors is None:
            return ""
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
        with errors:
            errors.seek(0)
            return errors.read().decode(errors="replace")[-4000:]


@cache
def resident_jvm(heap_mb: int = _HEAP_MB) -> ResidentJvm:
    """Return the JVM of this size that all callers in this process share; it ends with the process."""
    jvm = ResidentJvm(heap_mb)
    atexit.register(jvm.close)
    return jvm
