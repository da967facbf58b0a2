"""Load a class of the operator's that the configuration or the command line names as `module:Class`."""

import importlib
import re
from typing import TypeVar

from ts_common.errors import ConfigurationError

T = TypeVar("T")

_DOTTED_PATH = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<name>\w+)")


def load_class(path: str, contract: type[T], source: str) -> type[T]:
    """Return the class that a dotted path names.

    Args:
        path: `module:Class`; the module has to be importable.
        contract: the base class that it has to extend.
        source: the key or option that contains the path, for messages.

    Raises:
        ConfigurationError: the module or class does not exist, cannot be imported or does not extend `contract`.
    """
    match = _DOTTED_PATH.fullmatch(path)
    if match is None:
        raise ConfigurationError(source, [f"{path!r} does not have the form module:Class"])
    try:
        found = getattr(importlib.import_module(match["module"]), match["name"])
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(source, [f"cannot load {path}: {error}; check PYTHONPATH"]) from error
    if not (isinstance(found, type) and issubclass(found, contract)):
        raise ConfigurationError(
            source, [f"{path} is not a subclass of {contract.__module__}.{contract.__qualname__}; extend it"]
        )
    return found
