"""Numbers, lists and foreign texts in sentences for people."""

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: `1 segment`, `2,400 segments`.

    Counts have thousands separators. Offsets have none, since people copy them into commands.

    Args:
        noun: in the singular.
    """
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


def some(texts: Iterable[str], most: int = 10) -> str:
    """Return the first texts in their order, and the number of the others: `a, b and 3 more`."""
    texts = [*texts]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def clause(text: str) -> str:
    """Return the text of a server or library without its full stop, to continue a sentence after it."""
    return text.rstrip().removesuffix(".")
