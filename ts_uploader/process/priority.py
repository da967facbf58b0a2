"""The agent's place behind the broker: its nice value and its class of I/O, which it gives itself when it starts.

Linux keeps both for each thread, and a thread has those of the one that started it: so this comes before all others.
Nothing is ever raised: where a supervisor gave the agent less, that stays. What the kernel refuses is a warning.

`ioprio_set(2)` has no wrapper in the C library. Its argument is the class in the bits from 13 on (1 real-time, 2
best-effort, 3 idle; 0: never set, which counts as best-effort by the nice value), and the level, 0 to 7, below.
"""

import ctypes
import os
import platform

import structlog

from ts_common.config.cluster_config import ClusterConfig

log = structlog.get_logger()

_NUMBERS = {"x86_64": (251, 252), "aarch64": (30, 31)}  # of the calls ioprio_set and ioprio_get
_SELF = (1, 0)  # IOPRIO_WHO_PROCESS, the calling thread
_SHIFT = 13
_NONE, _BEST_EFFORT, _IDLE = 0, 2, 3
_LEVELS = 8


def lower_priority(config: ClusterConfig) -> None:
    """Take the nice value and the class of I/O of the configuration; before any other thread is started."""
    try:
        if os.getpriority(os.PRIO_PROCESS, 0) < config.nice:
            os.setpriority(os.PRIO_PROCESS, 0, config.nice)
        wanted = _value(config.ionice)
        if wanted is not None and _rank(wanted) >= _rank(io_priority()):
            _call(0, *_SELF, wanted)
    except OSError as error:
        log.warning("priority_not_lowered", error=str(error))


def io_priority(pid: int = 0) -> int:
    """The class and level of a process's first thread, or of the calling thread, as `ioprio_get(2)` tells it.

    Raises:
        OSError: there is no such process, or no such call on this machine.
    """
    return _call(1, _SELF[0], pid)


def _value(said: str) -> int | None:
    """The kernel's number for `idle` or `best-effort:<level>`; None for `none`."""
    if said == "none":
        return None
    if said == "idle":
        return _IDLE << _SHIFT
    return _BEST_EFFORT << _SHIFT | int(said.rpartition(":")[2])


def _rank(value: int) -> int:
    """More for who stands further back."""
    kind, level = value >> _SHIFT, value % _LEVELS
    if kind == _NONE:
        kind, level = _BEST_EFFORT, 4 + os.getpriority(os.PRIO_PROCESS, 0) // 5
    return kind * _LEVELS + (level if kind != _IDLE else 0)


def _call(which: int, *arguments: int) -> int:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"no class of I/O is known on {platform.machine()}; give it by ionice")
    libc = ctypes.CDLL(None, use_errno=True)
    answer: int = libc.syscall(numbers[which], *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
