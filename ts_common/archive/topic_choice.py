"""Choose topics by their names, or by regular expressions over whole names.

A text is a name if Kafka accepts it as one. Else it is a regular expression: it contains a character that no topic name
can have (`orders.*`, `(a.b)`).
"""

import re
from collections.abc import Callable, Sequence

from ts_common.model import is_topic_name


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
                patterns.append(re.compile(text))
            except (re.error, ArithmeticError, RecursionError) as error:
                raise ValueError(f"topic {text!r} is not a regular expression: {error}") from error
    return lambda name: name in names or any(pattern.fullmatch(name) for pattern in patterns)


def as_pattern(text: str) -> str:
    """Return a regular expression as a text that is not read as a name: `a.b` is one, `(?:a.b)` is not."""
    return f"(?:{text})" if is_topic_name(text) else text
