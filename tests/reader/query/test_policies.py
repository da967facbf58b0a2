"""What corrupt batches do to a query, in the words of Spark."""

import pytest

from ts_reader.query.policies import STRICT, Mode, Tolerance, View


@pytest.mark.parametrize(
    ("mode", "fails"), [(Mode.FAILFAST, True), (Mode.DROPMALFORMED, False), (Mode.PERMISSIVE, False)]
)
def test_a_corrupt_batch_ends_only_a_strict_query(mode: Mode, *, fails: bool) -> None:
    """The other modes leave its rows out."""
    assert Tolerance(mode).fails is fails


def test_a_query_is_strict_unless_it_chooses_otherwise() -> None:
    """No row is left out by a default."""
    assert STRICT == Tolerance() == Tolerance(Mode.FAILFAST, None)
    assert STRICT.fails


def test_modes_have_the_names_of_sparks_sources() -> None:
    """Options are compared with the names, and messages show the values."""
    assert {name: mode.value for name, mode in Mode.__members__.items()} == {
        name: name for name in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
    }
    assert [view.value for view in View] == ["log", "latest"]
