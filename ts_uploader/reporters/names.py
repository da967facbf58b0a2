"""How a sample is named where no labels are known: its name, and what its labels are, as parts of a path."""

import re
from collections.abc import Sequence

from prometheus_client.samples import Sample

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def path(prefix: str, sample: Sample, labels: Sequence[tuple[str, str]] = ()) -> str:
    """`<prefix>.<name>.<label>.<value>`; without a prefix it begins with the name."""
    return ".".join([*([prefix] if prefix else []), sample.name, *(part for pair in labels for part in pair)])


def safe_labels(sample: Sample) -> list[tuple[str, str]]:
    """(label, value) by label; what is no letter, digit, `_` or `-` in a value, as a dot, becomes `_`."""
    return sorted((label, _NOT_IN_NAMES.sub("_", value)) for label, value in sample.labels.items())
