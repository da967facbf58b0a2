"""Keys and defaults of a cluster's file that messages name: readable without loading its parser."""

from typing import Final

ENTROPY_BITS_KEY: Final = "ts.segment.uploader.s3.prefix.entropy.bits"
STUCK_AFTER_MS: Final = 900_000  # default of `stuck_after_ms`
