"""How much memory one record batch may take in a reader.

A producer decides how large a batch becomes once it is decompressed: 4 KB of zstd can hold 40 MB of headers. So readers
bound it, and say which option raises the bound. A batch beyond it is not damaged, and is never passed over.
"""

from dataclasses import dataclass
from typing import Final, NoReturn

from ts_common.errors import BatchTooLarge

# A broker takes batches up to message.max.bytes, 1 MiB by default. What decompresses to more than a hundred times that
# is seldom, and a task of a Python worker should not take more than a few times this.
MAX_BATCH_BYTES: Final = 128 << 20
HEADER_BYTES: Final = 16  # that one header of a record takes besides its name and value: offsets, and a bit for null


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The bound, and where it comes from.

    Attributes:
        most: bytes that a batch may have, as stored and as decompressed, and that one of its records may take.
        option: what raises it, as the user wrote or could write it.
    """

    most: int = MAX_BATCH_BYTES
    option: str = "max_batch_bytes"

    def refuse(self, what: str) -> NoReturn:
        """Raise the error of something that is larger.

        Raises:
            BatchTooLarge: always.
        """
        raise BatchTooLarge(f"{what}, and {self.option} allows {self.most} bytes: raise it")


DEFAULT_LIMIT: Final = BatchLimit()
