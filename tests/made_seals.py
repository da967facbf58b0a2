"""A made partition with transactions whose segments are sealed, and readers that look for seals early."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from awscrt.checksums import crc32c

from tests.made_archive import MadeArchive, batches
from tests.transactions import ABORT, COMMIT, data, ended
from ts_common.archive import sealed_listing
from ts_common.archive.object_keys import PartitionKeys, SegmentName
from ts_common.archive.sealed_objects import SealedObject
from ts_common.archive.segment_metadata import TxnIndexState, decode_metadata
from ts_common.store.contract import ObjectStore
from ts_uploader.shipping.sealing import seal

SEALED, STEP = 6, 4  # segments, and offsets of each
NEVER = 1 << 30


@contextmanager
def looking_for_seals(after: int) -> Iterator[list[str]]:
    """Let readers look for `seal.json` after so many keys, and yield the names of the sealed objects that they read."""
    read: list[str] = []
    original = sealed_listing._read_object

    def noted(store: ObjectStore, keys: PartitionKeys, name: str) -> SealedObject | None:
        read.append(name)
        return original(store, keys, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sealed_listing, "KEYS_BEFORE_SEALS", after)
        patched.setattr(sealed_listing, "_read_object", noted)
        yield read


def put_transactional(archive: MadeArchive, number: int, *, state: str = "complete") -> None:
    """Put segment `number` of topic `t`. Each second one ends the transaction of two segments, each fourth aborts it.

    Args:
        state: of its `.txnindex`.
    """
    base = number * STEP
    times = range(1000 + base, 1000 + base + STEP)
    if number % 2 == 0:
        log = batches((base, base + 2)) + data(base + 2, times[2]) + batches((base + 3, base + 4))
        archive.put_segment("t", base, log)
        return
    kind = ABORT if number % 4 == 1 else COMMIT
    log = batches((base, base + 1)) + data(base + 1, times[1]) + ended(base + 2, times[2], kind=kind)
    index = struct.pack(">hqqqq", 0, 7, base - 2, base + 2, base + 3) if kind == ABORT else None
    log += batches((base + 3, base + 4))
    archive.put_segment("t", base, log, txnindex=index, late=state == "late" and index is not None)
    if state == "corrupt" and index is not None:
        key = archive.partition("t").segment(SegmentName(base))
        metadata = decode_metadata(archive.store.head(key).metadata, key)
        assert metadata is not None
        corrupt = replace(metadata, txnindex=(crc32c(index), TxnIndexState.CORRUPT))
        archive.store.put(key, log, metadata=corrupt.encode())


def put_sealed(archive: MadeArchive, shape: str) -> int:
    """Put topic `t` with sealed segments and more behind them; return the next offset.

    Args:
        shape: "tail"; "late segment" that begins below the sealed end; "late index" and "corrupt index", which the
            metadata shows; or "no transactions".
    """
    end = SEALED * STEP
    for number in range(SEALED):
        if shape == "no transactions":
            archive.put_segment("t", number * STEP, batches((number * STEP, number * STEP + STEP)))
        else:
            put_transactional(archive, number, state=shape.removesuffix(" index"))
    archive.commit("t", end, last_stable_offset=end)
    with looking_for_seals(1):
        assert seal(archive.store, archive.partition("t"), 1, 1) == SEALED
    if shape == "late segment":
        archive.put_segment("t", end - 1, batches((end - 1, end + 7)))
        archive.commit("t", end + 7, last_stable_offset=end + 7)
        return end + 7
    for number in (SEALED, SEALED + 1):
        put_transactional(archive, number)
    archive.commit("t", end + 2 * STEP, last_stable_offset=end + 2 * STEP)
    return end + 2 * STEP
