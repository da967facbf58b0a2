"""Exit codes of `tsctl`. They have the same meaning in every command, for scripts and schedulers."""

from enum import IntEnum
from typing import Final

from ts_common.errors import OperatorError, StaleStateError, TieredStorageError, TransientError, WrongClock


class ExitCode(IntEnum):
    """The exit code of the process."""

    FINE = 0
    FOUND = 1
    REFUSED = 2
    BROKEN = 70  # EX_SOFTWARE
    TRY_AGAIN = 75  # EX_TEMPFAIL
    INTERRUPTED = 130  # 128 + SIGINT, as in a shell


MEANINGS: Final = {
    ExitCode.FINE: "done, and nothing to report",
    ExitCode.FOUND: "findings: a hole, damage, lost offsets, a value that does not decode, an unhealthy agent",
    ExitCode.REFUSED: "a user's mistake, or the operator must act: the message names it; nothing was written",
    ExitCode.BROKEN: "an error of `tsctl` itself, with a traceback",
    ExitCode.TRY_AGAIN: "the store or an agent did not answer, or retention deleted an object meanwhile: run it again",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C, SIGTERM or SIGHUP",
}


def code_of(error: TieredStorageError) -> ExitCode:
    """Return the exit code of a command that ends with an error."""
    match error:
        case OperatorError() | WrongClock():  # an operator must set the clock
            return ExitCode.REFUSED
        case TransientError() | StaleStateError():
            return ExitCode.TRY_AGAIN
        case _:
            return ExitCode.FOUND
