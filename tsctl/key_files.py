"""Files of a command line with one key on each line."""

from collections.abc import Iterable
from pathlib import Path


def read_lines(option: str, path: Path, problems: list[str]) -> list[str]:
    """Return the lines of a file in UTF-8 that are not empty.

    Args:
        option: that names the file, for messages.
        problems: receives what is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{option}={path}: {error}")
        return []
    return [line for each in text.split("\n") if (line := each.removesuffix("\r"))]


def keys_of(texts: Iterable[str], problems: list[str], *, hexadecimal: bool) -> frozenset[bytes]:
    """Return keys as bytes; `problems` receives what is wrong, without a key.

    Args:
        hexadecimal: whether they are hexadecimal; else they are UTF-8.
    """
    if not hexadecimal:
        return frozenset(text.encode() for text in texts)
    try:
        return frozenset(map(bytes.fromhex, texts))
    except ValueError as error:
        problems.append(f"--hex: {error}")
        return frozenset()
