"""Classes of a user's own, named as `module:Class` in the configuration or on the command line."""

import importlib
import re
from typing import TypeVar

from ts_common.errors import ConfigurationError

T = TypeVar("T")

_DOTTED_PATH = re.compile(r"(?P<module>\w+(?:\.\w+)*):(?P<name>\w+)")


def load_class(path: str, contract: type[T], source: str) -> type[T]:
    """The class that a dotted path names.

    Args:
        path: `module:Class`; the module is found as any import is.
        contract: what the class has to derive from.
        source: the key or option that named it, for messages.

    Raises:
        ConfigurationError: there is no such module or class, or it is not of that contract.
    """
    match = _DOTTED_PATH.fullmatch(path)
    if match is None:
        raise ConfigurationError(source, [f"{path!r} is not of the form module:Class"])
    try:
        found = getattr(importlib.import_module(match["module"]), match["name"])
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(source, [f"{path} cannot be loaded: {error}; is it on PYTHONPATH?"]) from error
    if not (isinstance(found, type) and issubclass(found, contract)):
        raise ConfigurationError(source, [f"{path} is no {contract.__module__}.{contract.__qualname__}"])
    return found
