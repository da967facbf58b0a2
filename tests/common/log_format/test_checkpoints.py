"""The text files that a broker keeps next to its segments, as a restore writes them."""

from ts_common.log_format.checkpoints import (
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)


def test_encoded_checkpoints_have_the_brokers_form() -> None:
    """A version, a count, and a line for each entry."""
    assert encode_offset_checkpoint({("t", 10): 7, ("t", 2): 0}) == b"0\n2\nt 2 0\nt 10 7\n"
    assert encode_leader_epoch_checkpoint([(0, 120)]) == b"0\n1\n0 120\n"
    assert parse_offset_checkpoint(encode_offset_checkpoint({})) == {}
    assert parse_leader_epoch_checkpoint(encode_leader_epoch_checkpoint([])) == ()
