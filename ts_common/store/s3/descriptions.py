"""Read the SDK's descriptions of its services in half of the time that its own loader needs.

A client needs three of them (2 MB of JSON). The SDK reads each into ordered dictionaries, which need twice the time of
plain ones, and these keep the order too. Before that it looks into the directories of all 400 services for a name.
"""

import gzip
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from botocore.loaders import JSONFileLoader, Loader

_FORMS: Final[tuple[tuple[str, Callable[..., Any]], ...]] = ((".json", open), (".json.gz", gzip.open))


@cache
def descriptions(data_path: str | None) -> Loader:
    """Return the SDK's loader: 10 MB, the same for every session.

    Args:
        data_path: more directories, as in `AWS_DATA_PATH`; None for those of the SDK and of the user alone.
    """
    paths = [] if data_path is None else data_path.split(os.pathsep)
    return _Descriptions([os.path.expandvars(Path(path).expanduser()) for path in paths], _PlainFiles())


class _PlainFiles(JSONFileLoader):
    def load_file(self, file_path: str) -> Any:
        """Return the content of a description; None if it does not exist."""
        for suffix, opened in _FORMS:
            if Path(file_path + suffix).is_file():
                with opened(file_path + suffix, "rb") as file:
                    return json.loads(file.read())
        return None


class _Descriptions(Loader):
    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002  (the SDK's form)
        """Return the names of all directories of services; the SDK then looks for the type in the one that it needs."""
        return sorted({name for path in self.search_paths if Path(path).is_dir() for name in os.listdir(path)})
