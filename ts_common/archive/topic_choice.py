"""Choose topics by their names, or by regular expressions over whole names.

A text is a name if Kafka accepts it as one. Else it is a regular expression: it contains a character that no topic name
can have (`orders.*`, `(a.b)`).
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from ts_common.model import is_topic_name

_GROUPS: Final = re.compile(r"\\.|[()]", re.DOTALL)
_MOST_LEVELS: Final = 50


def topic_chooser(texts: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that accepts the names that some text chooses; without texts it accepts no name.

    Raises:
        ValueError: a text is neither a name nor a regular expression.
    """
    names = {text for text in texts if is_topic_name(text)}
    patterns = []
    for text in texts:
        if text not in names:
            try:
                _check_levels(text)
                patterns.append(re.compile(text))
            except (re.error, ArithmeticError, ValueError) as error:
                raise ValueError(f"topic {text!r} is not a regular expression: {error}") from error
    return lambda name: name in names or any(pattern.fullmatch(name) for pattern in patterns)


def _check_levels(pattern: str) -> None:
    """Check how deep groups are in groups: the compiler of `re` recurses into each.

    Raises:
        ValueError: deeper than a choice of names can need.
    """
    level = 0
    for sign in _GROUPS.findall(pattern):
        level += {"(": 1, ")": -1}.get(sign, 0)
        if level > _MOST_LEVELS:
            raise ValueError(f"groups are more than {_MOST_LEVELS} levels deep")


def as_pattern(text: str) -> str:
    """Return a regular expression as a text that is not read as a name: `a.b` is one, `(?:a.b)` is not."""
    return f"(?:{text})" if is_topic_name(text) else text
