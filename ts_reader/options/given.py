"""Options as a user wrote them: read one by one, with all their problems in one error.

A user of the reader passes Python values, a user of Spark and of the consumer texts. A `ValueType` accepts both.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ts_common.errors import ConfigurationError
from ts_reader.query.query import PYTHON, Wording

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class ValueType(Generic[_T_co]):
    """Which values an option accepts.

    Attributes:
        of: returns the value that a Python value means; raises ValueError with what is accepted.
        of_text: returns the Python value that a text means, or the text, for `of` to reject.
    """

    of: Callable[[Any], _T_co]
    of_text: Callable[[str], Any] = _as_it_is


@dataclass(frozen=True, slots=True)
class Option(Generic[_T_co]):
    """An option.

    Attributes:
        name: the argument of the reader; `Wording.names` has the other sides' names.
    """

    name: str
    type: ValueType[_T_co]
    default: _T_co


class Given:
    """The options that a user gave.

    Args:
        values: by the names of `Option`.
        source: names the options in the error.
        wording: how the user writes them.
        problems: receives one sentence for each problem; None for a new list.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        source: str,
        wording: Wording = PYTHON,
        problems: list[str] | None = None,
    ) -> None:
        self._values = values
        self._source = source
        self.wording: Final = wording
        self.problems: list[str] = [] if problems is None else problems

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def value(self, name: str) -> Any:
        """Return an option as it was given."""
        return self._values[name]

    def check(self) -> None:
        """Raise all problems.

        Raises:
            ConfigurationError: there are some.
        """
        if self.problems:
            raise ConfigurationError(self._source, self.problems)

    def read(self, option: Option[_T]) -> _T:
        """Return the value of an option; its default if it is absent or wrong."""
        if option.name not in self._values:
            return option.default
        return self.parse(self.wording.name(option.name), self._values[option.name], option.type, option.default)

    def parse(self, label: str, value: Any, accepted: ValueType[_T], default: _T) -> _T:
        """Return what a value means; the default if it is wrong. `label` names it in the problem."""
        try:
            is_text = self.wording.has_texts and isinstance(value, str)
            return accepted.of(accepted.of_text(value.strip()) if is_text else value)
        except ValueError as error:
            self.problems.append(f"{label}={value if self.wording.has_texts else repr(value)}: {error}")
            return default

    def written(self, name: str, value: str) -> str:
        """Return an option with a value as the user writes it."""
        return f"{self.wording.name(name)}={value if self.wording.has_texts else repr(value)}"
