"""The agent's footprint on the broker's host: its priority, and the memory that its threads hold.

The nice value and the class of I/O are below the broker's. Linux keeps both for each thread, and a thread inherits
those of its creator. So they are set before any other thread starts. The agent never raises its priority. If the kernel
rejects a change, the agent logs a warning and continues.

glibc gives threads arenas of their own, up to eight for each processor, and none gives back what it once held: an agent
of 28 threads held 39 MiB in fifteen of them after some thousand segments. Two are enough, since Python's threads
allocate one at a time.
"""

import ctypes

import psutil
import structlog

from ts_common.config.cluster_config import ClusterConfig

log = structlog.get_logger()

_LEVELS = 8
_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS = 2


def lower_priority(config: ClusterConfig) -> None:
    """Set the configured nice value and class of I/O; call it before any other thread is started."""
    process = psutil.Process()
    try:
        if process.nice() < config.nice:
            process.nice(config.nice)
        wanted = _io_class(config.ionice)
        if wanted is not None and _rank(*wanted, process.nice()) >= _rank(*process.ionice(), process.nice()):
            process.ionice(*wanted)
    except (OSError, psutil.Error) as error:
        log.warning("priority_not_lowered", error=str(error))


def _io_class(configured: str) -> tuple[int, int] | None:
    """Return class and level of `idle` or `best-effort:<level>`; None for `none`."""
    if configured == "none":
        return None
    if configured == "idle":
        return psutil.IOPRIO_CLASS_IDLE, 0
    return psutil.IOPRIO_CLASS_BE, int(configured.rpartition(":")[2])


def _rank(io_class: int, level: int, nice: int) -> int:
    """Return a rank, higher for a lower priority; without a class it is best-effort with a level by the nice value."""
    if io_class == psutil.IOPRIO_CLASS_NONE:
        io_class, level = psutil.IOPRIO_CLASS_BE, 4 + nice // 5
    return io_class * _LEVELS + (level if io_class != psutil.IOPRIO_CLASS_IDLE else 0)


def bound_arenas() -> None:
    """Let all threads share two arenas; another C library than glibc is left as it is. Call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
