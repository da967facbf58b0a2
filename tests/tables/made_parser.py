"""A parser of tests: it refuses each fifth record, and makes two rows of each seventh."""

from typing import Final

import numpy as np
import pyarrow as pa

from ts_tables.parsers.contract import Parsed, Parser

NAME: Final = "made:0"


class MadeParser(Parser):
    """Parses records by their offsets."""

    @property
    def columns(self) -> pa.Schema:
        """The offset again."""
        return pa.schema([("number", pa.int64())])

    def parse(self, records: pa.RecordBatch) -> Parsed:
        """Return the rows of a batch."""
        offsets = records["offset"].to_numpy()
        is_refused = offsets % 5 == 4
        at = np.flatnonzero(~is_refused)
        of_row = np.repeat(at, np.where(offsets[at] % 7 == 6, 2, 1))
        refused = np.flatnonzero(is_refused)
        return Parsed(
            pa.RecordBatch.from_arrays([pa.array(offsets[of_row])], schema=self.columns),
            pa.array(of_row.astype(np.int32)),
            pa.array(refused.astype(np.int32)),
            pa.array(["it is the fifth"] * len(refused), pa.string()),
        )


def rows_of(offset: int) -> int:
    """Return how many rows the record at an offset has; 0 if it is refused."""
    return 0 if offset % 5 == 4 else 2 if offset % 7 == 6 else 1
