"""The option that limits the memory of one record batch, for every command that decodes records.

It is a setting of the process, so that no code between a command and its decoders has to pass it on.
"""

from typing import Annotated, Final

import typer

from ts_common.log_format.limits import BatchLimit

_OPTION: Final = "--max-batch-bytes"
_current = BatchLimit(option=_OPTION)


def batch_limit() -> BatchLimit:
    """Return the limit of the running command."""
    return _current


def _set(most: int) -> int:
    global _current  # noqa: PLW0603  (see above)
    _current = BatchLimit(most, _OPTION)
    return most


MaxBatchBytesOption = Annotated[
    int,
    typer.Option(
        _OPTION,
        min=1 << 20,
        callback=_set,
        help="Maximum bytes of one record batch in memory, as stored and as decompressed.",
    ),
]
