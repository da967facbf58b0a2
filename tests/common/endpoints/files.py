"""Files of the endpoint provider `json`, and the problems that opening a provider reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from ts_common.endpoints.provider import open_provider
from ts_common.errors import ConfigurationError

CLUSTER: Final = "events"
S3: Final = "storage.service.endpoint.s3."


def write_file(directory: Path, content: object, name: str = f"{CLUSTER}.endpoints.json") -> Path:
    """Write an endpoints file and return its path."""
    path = directory / name
    path.write_text(json.dumps(content))
    return path


def problems_of(name: str | None, directory: Path, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the problems of a configuration that no provider accepts."""
    with pytest.raises(ConfigurationError) as raised:
        open_provider(name, CLUSTER, directory, properties)
    return raised.value.problems
