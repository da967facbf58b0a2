import struct

import pytest
from awscrt.checksums import crc32c

from ts_common.errors import CorruptData
from ts_common.log_format.checkpoints import (
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from ts_uploader.log_dirs.producer_snapshot import first_unstable_offset


def snapshot(*first_offsets: int, version: int = 1) -> bytes:
    entries = [
        struct.pack(">qhiqiqiq", 4000 + n, 1, 5, 99, 2, 1_700, 3, first) for n, first in enumerate(first_offsets)
    ]
    tail = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", version, crc32c(tail)) + tail


def test_the_earliest_open_transaction_decides() -> None:
    """-1 is a producer without one; offset 0 is an offset."""
    assert first_unstable_offset(snapshot()) is None
    assert first_unstable_offset(snapshot(-1, -1)) is None
    assert first_unstable_offset(snapshot(-1, 70, 50)) == 50
    assert first_unstable_offset(snapshot(0, -1)) == 0


def test_a_damaged_snapshot_is_never_a_wrong_answer() -> None:
    """Each byte flipped, each truncation, each longer file."""
    good = snapshot(-1, 70)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x04
        with pytest.raises(CorruptData):
            first_unstable_offset(bytes(bad))
        with pytest.raises(CorruptData):
            first_unstable_offset(good[:position])
    with pytest.raises(CorruptData):
        first_unstable_offset(good + b"\0")


def test_a_snapshot_of_an_unknown_version_is_refused() -> None:
    """A later Kafka may lay its entries out differently."""
    with pytest.raises(CorruptData, match="version 2"):
        first_unstable_offset(snapshot(50, version=2))


def test_offsets_are_read_from_a_checkpoint() -> None:
    """Topic names with dots, dashes and underscores; partition 10 next to 1."""
    data = b"0\n4\nmy.topic-a 0 120\n__consumer_offsets 49 0\na 1 5\na 10 9223372036854775807\n"
    assert parse_offset_checkpoint(data) == {
        ("my.topic-a", 0): 120,
        ("__consumer_offsets", 49): 0,
        ("a", 1): 5,
        ("a", 10): 2**63 - 1,
    }
    assert parse_offset_checkpoint(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"0\n0",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 2\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n1\na -1 5\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 0 12",
        b"0\n2\na 0 1\na 0 2\n",
        b"0\n-1\n",
        b"0\n1\n\xff 0 1\n",
        b"0\n1\n\n",
        bytes(40),
        "0\n1\na 0 \u0661\n".encode(),
    ],
)
def test_an_offset_checkpoint_that_does_not_parse_counts_for_nothing(data: bytes) -> None:
    """Also one that ends in the middle of a number, which would be a smaller number."""
    with pytest.raises(CorruptData, match="offset checkpoint"):
        parse_offset_checkpoint(data)


def test_leader_epochs_are_read_from_a_checkpoint() -> None:
    """As the broker writes them, ascending."""
    assert parse_leader_epoch_checkpoint(b"0\n3\n0 0\n4 120\n9 120\n") == ((0, 0), (4, 120), (9, 120))
    assert parse_leader_epoch_checkpoint(b"0\n0\n") == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n1\n0 0 0\n",
        b"0\n2\n4 0\n4 9\n",
        b"0\n2\n4 9\n5 8\n",
        b"0\n1\n1 1",
        b"0\n1\n2147483648 0\n",
        b"0\n1\n0 9223372036854775808\n",
    ],
)
def test_a_leader_epoch_checkpoint_that_does_not_parse_counts_for_nothing(data: bytes) -> None:
    """Epochs that repeat and offsets that fall are no line of leaderships; no request has room for larger ones."""
    with pytest.raises(CorruptData, match="leader epoch checkpoint"):
        parse_leader_epoch_checkpoint(data)


def test_a_topic_id_is_read() -> None:
    """With and without a line end; the id of all zeros counts as missing."""
    assert parse_partition_metadata(b"version: 0\ntopic_id: 4k9-_wUzQ3iUqXrXc6Tq6A") == "4k9-_wUzQ3iUqXrXc6Tq6A"
    assert parse_partition_metadata(b"version: 0\ntopic_id: 4k9-_wUzQ3iUqXrXc6Tq6A\n") == "4k9-_wUzQ3iUqXrXc6Tq6A"
    assert parse_partition_metadata(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"version: 1\ntopic_id: 4k9-_wUzQ3iUqXrXc6Tq6A",
        b"version: 0\ntopic_id: 4k9-_wUzQ3iUqXrXc6Tq6",
        b"version: 0\ntopic: 4k9-_wUzQ3iUqXrXc6Tq6A",
        b"version: 0\ntopic_id: 4k9/_wUzQ3iUqXrXc6Tq6A",
        bytes(30),
        b"\xff\xfe",
    ],
)
def test_a_topic_id_that_does_not_parse_is_refused(data: bytes) -> None:
    """Half an id would be another topic."""
    with pytest.raises(CorruptData, match="partition metadata"):
        parse_partition_metadata(data)
