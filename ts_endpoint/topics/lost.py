"""Topics and partitions whose records clients cannot get, for a reason that lasts until an operator ends it."""

from typing import Final

from ts_common.errors import CorruptData, NewerFormat, ObjectFrozen, TieredStorageError

# The same request fails again, until an operator acts. A client that repeats it in silence would wait without an end.
LASTING: Final = (CorruptData, NewerFormat, ObjectFrozen)


class Lost(CorruptData):
    """A topic or a partition that cannot be opened; the log has it once.

    Attributes:
        code: of the reason: a state of the commit, or a finding of `tsctl verify`.
        start: the first offset that is known to be lost.
        end: the offset after the last one that is known to be lost; greater than `start`.
    """

    def __init__(self, code: str, reason: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.code = code
        self.start = start
        self.end = end


def code_of(error: TieredStorageError, damaged: str) -> str:
    """Return the code of a lasting error.

    Args:
        error: one of `LASTING`.
        damaged: the code for malformed bytes.
    """
    if isinstance(error, NewerFormat):
        return "newer-format"
    return "frozen" if isinstance(error, ObjectFrozen) else damaged
