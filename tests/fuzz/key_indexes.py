"""Runs of an index of keys as another identity could write them: `objects.parquet`, and a file of hashes.

An input is a line, `objects` or `pairs`, and the bytes of that object of a run; the other one is a builder's.
A look-up then returns windows of the segments, and removing what was merged removes nothing outside of the index.
"""

import io
import json
import random
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutate import NUMBERS, TEXTS, json_text, mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from tests.made_archive import MadeArchive, batches
from tests.made_views import view_of
from ts_common.archive.catalog import read_catalog
from ts_common.errors import TieredStorageError
from ts_reader.decode.hashed_key import hashed
from ts_reader.find.building import build, lacking
from ts_reader.find.lookup import KeyLookup, read_runs
from ts_reader.find.merging import clear
from ts_reader.find.rules import PARTS, WHOLE
from ts_reader.find.runs import file_of, read_pairs

KEY: Final = b"5"
_NAME: Final = "20260101-0000000a"
_DIGITS: Final = file_of(hashed(KEY).place)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ROWS: Final = (0, 1, 3, 1000, 100_000)
_HOSTILE_TEXTS: Final = (
    *(text for text in TEXTS if len(text) < 100),
    "../../t-0",
    "/etc/passwd",
    "t-0",
    "t-0/..",
    "00000000000000000000",
)


class KeyIndexes(Target):
    """An archive of a temporary directory with two segments of topic `t`, and one run."""

    def open(self) -> None:
        """Build the run that inputs change."""
        self._archive = MadeArchive(Path(mkdtemp(prefix="fuzz-key-indexes-")))
        store = self._archive.store
        for base in (0, 10):
            self._archive.put_segment("t", base, batches((base, base + 10)))
        self._archive.commit("t", 20, highest_base=10)
        self._view = view_of(self._archive)
        self._catalog = read_catalog(store, self._archive.partition("t"))
        self._prefix = self._archive.keys.find("t")
        build(store, self._prefix, lacking(self._view, []), most_share=100)
        (run,) = read_runs(store, self._archive.keys, "t")
        self._objects = store.get(f"{run.prefix}objects.parquet")[0]
        self._pairs = store.get(f"{run.prefix}{_DIGITS}.parquet")[0]
        store.delete([info.key for info in store.list(self._prefix)])
        self._others = {info.key for info in store.list()}

    def draw(self, chance: random.Random) -> bytes:
        """The bytes of a builder with changes, or a table of other types and values with the metadata of a run."""
        what, data = chance.choice((("objects", self._objects), ("pairs", self._pairs)))
        data = mutate_bytes(chance, data) if chance.random() < 0.4 else self._table(chance, data)
        return what.encode() + b"\n" + data

    def _table(self, chance: random.Random, data: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(data))
        about = {"version": 1, "files": {_DIGITS: [5, "e"], "../../../t-0/x": [1, "e"]}, "replaces": ["../../t-0"]}
        rows = chance.choice(_ROWS)
        for at, name in enumerate(table.schema.names):
            if chance.random() < 0.3:
                table = table.set_column(at, name, _column(chance, table.num_rows))
        if chance.random() < 0.2:
            table = table.drop_columns([chance.choice(table.schema.names)])
        if rows and chance.random() < 0.5:
            table = table.slice(0, 1).take(pa.array([0] * rows))
        buffer = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({"ts-find": json_text(chance, about)}), buffer)
        return buffer.getvalue()

    def run(self, data: bytes) -> None:
        """Put it, look a key up, and remove what is merged."""
        (what, *_), rest = split_input(data)
        store, prefix = self._archive.store, f"{self._prefix}{_NAME}/"
        store.delete([info.key for info in store.list(self._prefix)])
        if what == "pairs":
            file = store.put(f"{prefix}{_DIGITS}.parquet", rest)
            table = pq.read_table(io.BytesIO(self._objects))
            about = {"version": 1, "files": {_DIGITS: (len(rest), file.etag)}, "replaces": []}
            buffer = io.BytesIO()
            pq.write_table(table.replace_schema_metadata({"ts-find": json.dumps(about)}), buffer)
            rest = buffer.getvalue()
        store.put(f"{prefix}objects.parquet", rest)
        runs = read_runs(store, self._archive.keys, "t")
        for run in runs:
            try:
                pairs = read_pairs(store, run, _DIGITS)
            except TieredStorageError as error:
                str(error).encode()
                continue
            if any(not 0 <= row < len(run.entries) for row in pairs.row.tolist()):
                raise Mismatch("a row of no object")
            if any(not WHOLE <= part < PARTS for part in pairs.part.tolist()):
                raise Mismatch("a part of no segment")
        KeyLookup(store, [self._view.keys], [KEY, b"other"]).leaves_out(self._catalog, tails=True)
        found, windows = KeyLookup(store, [self._view.keys], [KEY, b"other"]).windows([self._view])
        if found.indexed + found.unindexed != len(self._view.copies):
            raise Mismatch(f"{found} of {len(self._view.copies)} segments")
        for low, high in windows[self._view.partition]:  # of a part without an offset it is empty
            if not any(copy.base <= low <= high <= copy.end for copy in self._view.copies):
                raise Mismatch(f"the window {low} to {high}")
        clear(store, self._prefix, runs, store.current_time() + 1e9)
        if {info.key for info in store.list() if not info.key.startswith(self._prefix)} != self._others:
            raise Mismatch("an object outside of the index was removed")


def _column(chance: random.Random, rows: int) -> Any:
    """Return a column of any type and values."""
    numbers = [number for number in NUMBERS if _LEAST <= number <= _MOST]
    match chance.randrange(6):
        case 0:
            return pa.array([chance.choice(numbers) for _ in range(rows)], pa.int64())
        case 1:
            return pa.array([chance.choice(_HOSTILE_TEXTS) for _ in range(rows)], pa.string())
        case 2:
            return pa.nulls(rows, chance.choice((pa.int64(), pa.string(), pa.int8())))
        case 3:
            return pa.array([chance.choice((0.0, 1.5, float("nan"), float("inf"))) for _ in range(rows)])
        case 4:
            return pa.array([[chance.choice(numbers)] for _ in range(rows)], pa.list_(pa.int64()))
        case _:
            return pa.array([b"\xff" * chance.randrange(9) for _ in range(rows)], pa.binary())
