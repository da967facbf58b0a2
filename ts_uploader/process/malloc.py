"""How many heaps the C library keeps for the process.

glibc gives threads arenas of their own, up to eight for each processor, and none gives back what it once held: an agent
of 28 threads held 39 MiB in fifteen of them after some thousand segments. Two are enough, since Python's threads
allocate one at a time.
"""

import ctypes

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS = 2


def bound_arenas() -> None:
    """Let all threads share two arenas; another C library than glibc is left as it is. Call it before threads start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
