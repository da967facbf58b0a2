"""Errors of pyiceberg and its libraries as errors of this project."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    UnauthorizedError,
)
from sqlalchemy.exc import ArgumentError

from ts_common.errors import AccessDenied, OperatorError, StoreUnavailable, TieredStorageError

_DENIED = (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError, PermissionError)
_LONGEST = 1000


@contextmanager
def calling(label: str) -> Iterator[None]:
    """Raise errors of this project for those of pyiceberg, its catalogs and its file systems.

    Args:
        label: names the table or the catalog.

    Raises:
        AccessDenied: the identity is refused.
        OperatorError: a table, a namespace or a package is missing, or a property is wrong.
        StoreUnavailable: everything else: the catalog or the store did not answer as expected.
    """
    try:
        yield
    except TieredStorageError:
        raise
    except _DENIED as error:
        raise AccessDenied(f"{label}: {_text(error)}") from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise OperatorError(f"{label} does not exist in the catalog; `tsctl tables create` makes it") from error
    except (NotInstalledError, ModuleNotFoundError, ArgumentError) as error:
        raise OperatorError(f"{label}: {_text(error)}") from error
    except JSONDecodeError as error:  # a web page of a load balancer
        raise StoreUnavailable(f"{label}: the answer is no JSON: {_text(error)}") from error
    except ValueError as error:  # of the catalog's properties, a location or the table's metadata
        raise OperatorError(f"{label}: {_text(error)}") from error
    except Exception as error:
        raise StoreUnavailable(f"{label}: {type(error).__name__}: {_text(error)}") from error


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST]
