"""Numbers and foreign texts in sentences for people."""


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: `1 segment`, `2,400 segments`.

    Counts have thousands separators. Offsets have none, since people copy them into commands.

    Args:
        number: how many.
        noun: in the singular.
    """
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


def clause(text: str) -> str:
    """Return the text of a server or library without its full stop, to continue a sentence after it."""
    return text.rstrip().removesuffix(".")
