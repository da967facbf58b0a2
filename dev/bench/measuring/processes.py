"""The cost of a process: CPU seconds between two instants, and peak memory."""

import threading
import time
from bisect import bisect_right
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_EVERY_SECONDS = 0.02


class ProcessWatch:
    """Samples a process during the block, so that its cost between two instants is available afterwards."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._status = Path(f"/proc/{pid}/status")
        self._times: list[float] = []
        self._cpu: list[float] = []
        self._peak_kib = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="process-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_seconds(self, begin: float, end: float) -> float:
        """Return user and system seconds between two instants of `time.time()`, all threads together."""
        return self._at(end) - self._at(begin)

    @property
    def peak_mib(self) -> float:
        """Peak resident memory by the kernel's count, in MiB."""
        return self._peak_kib / 1024

    def _at(self, instant: float) -> float:
        index = bisect_right(self._times, instant)
        return self._cpu[min(max(index - 1, 0), len(self._cpu) - 1)]

    def _sample(self) -> None:
        while True:
            last = self._ended.is_set()
            try:
                used = self._process.cpu_times()
                status = self._status.read_text()
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                return
            self._times.append(time.time())
            self._cpu.append(used.user + used.system)
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    self._peak_kib = int(line.split()[1])
            if last:
                return
            self._ended.wait(_EVERY_SECONDS)


class PeakMemory:
    """The peak of a process's resident memory since this was made, above what the process had then.

    The kernel keeps the peak, so that no sample misses it.

    Args:
        pid: of the process, of the same user.
    """

    def __init__(self, pid: int) -> None:
        self._directory = Path(f"/proc/{pid}")
        (self._directory / "clear_refs").write_text("5")  # VmHWM begins again at VmRSS
        self._before = self._kib("VmRSS")

    @property
    def megabytes(self) -> float:
        """The peak so far, in MB."""
        return (self._kib("VmHWM") - self._before) * 1024 / 1e6

    def _kib(self, name: str) -> int:
        lines = (self._directory / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
