import pytest

from ts_common.config.plugins import load_class
from ts_common.errors import ConfigurationError


class Contract:
    """A base class that an operator's class extends."""


class Extends(Contract):
    """An operator's class."""


class Other:
    """A class with another base."""


def test_the_named_class_is_returned() -> None:
    """A dotted path names a module and a class in it."""
    assert load_class(f"{__name__}:Extends", Contract, "key") is Extends


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (__name__ + ".Extends", "does not have the form module:Class"),
        ("no.such.module:Extends", "No module named 'no'; check PYTHONPATH"),
        (__name__ + ":Absent", "has no attribute 'Absent'"),
        (__name__ + ":Other", "is not a subclass of tests.common.config.test_plugins.Contract"),
        (__name__ + ":pytest", "is not a subclass of tests.common.config.test_plugins.Contract"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_key(path: str, problem: str) -> None:
    """The error names the key, and why the class cannot be loaded or used."""
    with pytest.raises(ConfigurationError, match=problem) as refused:
        load_class(path, Contract, "storage.service.endpoint.provider.class")
    assert refused.value.source == "storage.service.endpoint.provider.class"
