"""What somebody who wrote an unknown name may have meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], label: str = "") -> str:
    """`; did you mean <label>X?` where some known name is like this one, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {label}{close[0]}?" if close else ""
