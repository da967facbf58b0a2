"""Files of a command line with one key on each line."""

from collections.abc import Iterable
from pathlib import Path


def read_lines(option: str, path: Path, problems: list[str]) -> list[str]:
    """Return the lines of a file in UTF-8 that are not empty; a byte order mark is not a part of the first.

    Args:
        option: that names the file, for messages.
        problems: receives what is wrong, without a line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{option}={path}: {error}")
        return []
    lines = [each.removesuffix("\r") for each in text.split("\n")]
    if number := next((at for at, line in enumerate(lines, 1) if "\r" in line), 0):
        problems.append(
            f"{option}={path}: line {number} has a carriage return: lines that end with LF or CRLF are expected; give "
            "keys with that character as --hex"
        )
    return [line for line in lines if line]


def keys_of(texts: Iterable[str], problems: list[str], *, hexadecimal: bool) -> frozenset[bytes]:
    """Return keys as bytes; `problems` receives what is wrong, without a key.

    Args:
        hexadecimal: whether they are hexadecimal; else they are UTF-8.
    """
    given = [*texts]
    if not hexadecimal:
        return frozenset(text.encode() for text in given)
    if any(text.isspace() for text in given):
        problems.append("--hex: a key has spaces only")  # it would be the empty key
    try:
        return frozenset(map(bytes.fromhex, given))
    except ValueError as error:
        problems.append(f"--hex: {error}")
        return frozenset()
