from ts_common import once


def test_each_identity_is_first_once_and_the_oldest_are_forgotten() -> None:
    """The memory is bounded."""
    mine = [("test_once", number) for number in range(once._MOST + 1)]
    assert all(map(once.is_first, mine))
    assert not once.is_first(mine[-1])
    assert once.is_first(mine[0])
