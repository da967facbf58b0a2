"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], label: str = "") -> str:
    """Return `; did you mean <label>X?` with the most similar known name; empty if no name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {label}{close[0]}?" if close else ""
