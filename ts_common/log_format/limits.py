"""The largest record batch that a reader accepts.

The producer determines the decompressed size of a batch: 4 KB of zstd can contain 40 MB of headers. So readers limit
it, and name the option that raises the limit. A larger batch is not damaged, and is never skipped.
"""

from dataclasses import dataclass
from typing import Final, NoReturn

from ts_common.errors import BatchTooLarge

# A broker accepts batches up to message.max.bytes, 1 MiB by default. Few decompress to more than a hundred times that,
# and a task of a Python worker should not use more than a few times this limit.
MAX_BATCH_BYTES: Final = 128 << 20
HEADER_BYTES: Final = 16  # memory of one record header in addition to its name and value: offsets, and a bit for null


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The limit, and the option that sets it.

    Attributes:
        most: largest size of a batch in bytes, both stored and decompressed, and of the memory of one record.
        option: name of the option, in the form that the user writes.
    """

    most: int = MAX_BATCH_BYTES
    option: str = "max_batch_bytes"

    def refuse(self, what: str) -> NoReturn:
        """Raise the error for a larger batch.

        Raises:
            BatchTooLarge: always.
        """
        raise BatchTooLarge(f"{what}, and {self.option} allows {self.most} bytes: raise it")


DEFAULT_LIMIT: Final = BatchLimit()
