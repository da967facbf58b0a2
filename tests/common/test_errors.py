import pytest

from ts_common import errors
from ts_common.errors import ConfigurationError, OperatorError, PermanentError, StaleStateError, TransientError


@pytest.mark.parametrize(("problems", "count"), [([], "0 problems"), (["a"], "1 problem"), (["a", "b"], "2 problems")])
def test_a_configuration_error_lists_all_its_problems(problems: list[str], count: str) -> None:
    """The source is in the first line, and each problem in a line of its own."""
    error = ConfigurationError("prod.properties", problems)
    assert str(error).splitlines() == [f"prod.properties: {count}", *(f"  - {problem}" for problem in problems)]
    assert (error.source, error.problems) == ("prod.properties", tuple(problems))


def test_a_configuration_error_hides_credentials_and_control_characters() -> None:
    """Its attributes are printed too, not only its text."""
    error = ConfigurationError("a\x1b[2J", ["http://user:hush@proxy/"])
    assert "\x1b" not in f"{error}{error.source}"
    assert "hush" not in f"{error}{error.problems}"


def test_each_error_has_one_next_step() -> None:
    """A caller chooses its reaction by one of four classes, and no error belongs to two."""
    steps = (TransientError, StaleStateError, PermanentError, OperatorError)
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(found) > 20
    for error in found:
        assert error is errors.TieredStorageError or sum(issubclass(error, step) for step in steps) == 1
