"""Errors of pyiceberg and its libraries as errors of this project."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    UnauthorizedError,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from ts_common.errors import AccessDenied, OperatorError, StoreUnavailable, TieredStorageError
from ts_tables.targets import TableMissing

_DENIED = (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError, PermissionError)
_LONGEST = 1000
# pyarrow has one class for all errors of S3; their names are those of the AWS SDK for C++.
_S3: Final = re.compile(r"AWS Error ([A-Z_]+)")
_S3_DENIED: Final = {
    *("ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID"),
    *("INVALID_SIGNATURE", "INCOMPLETE_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "UNRECOGNIZED_CLIENT"),
}
_KEYS: Final = "a permission is missing, or the keys are wrong: s3.access-key-id below `catalog`, or the AWS variables"
_ENDPOINT: Final = "of a store that is not at AWS set s3.endpoint below `catalog`, or AWS_ENDPOINT_URL"
_SQLITE: Final = ("unable to open database file", "readonly database")


@contextmanager
def calling(label: str) -> Iterator[None]:
    """Raise errors of this project for those of pyiceberg, its catalogs and its file systems.

    Args:
        label: names the table or the catalog.

    Raises:
        AccessDenied: the identity is refused.
        OperatorError: a table, a namespace, a bucket or a package is missing, or a property is wrong.
        StoreUnavailable: everything else: the catalog or the store did not answer as expected.
    """
    try:
        yield
    except TieredStorageError:
        raise
    except _DENIED as error:
        raise AccessDenied(f"{label}: {_text(error)}") from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise TableMissing(f"{label} does not exist in the catalog; `tsctl tables create` makes it") from error
    except (NotInstalledError, ModuleNotFoundError, ArgumentError, NoSuchPropertyException) as error:
        raise OperatorError(f"{label}: {_text(error)}") from error
    except JSONDecodeError as error:  # a web page of a load balancer
        raise StoreUnavailable(f"{label}: the answer is no JSON: {_text(error)}") from error
    except ValueError as error:  # of the catalog's properties, a location or the table's metadata
        raise OperatorError(f"{label}: {_text(error)}") from error
    except DBAPIError as error:  # its own text is long: the statement, its values and an address
        text = _text(error.orig or error)
        if any(each in text for each in _SQLITE):
            raise OperatorError(f"{label}: {text}; `uri` needs a directory that exists and can be written") from error
        raise StoreUnavailable(f"{label}: {text}") from error
    except OSError as error:
        raise _of_store(f"{label}: {_text(error)}") from error
    except Exception as error:
        raise StoreUnavailable(f"{label}: {type(error).__name__}: {_text(error)}") from error


def _of_store(text: str) -> TieredStorageError:
    """Return an error of this project for one of a file system."""
    found = _S3.search(text)
    kind = "" if found is None else found[1]
    if kind in _S3_DENIED:
        return AccessDenied(f"{text}; {_KEYS}")
    if kind == "NO_SUCH_BUCKET":
        return OperatorError(f"{text}; {_ENDPOINT}")
    is_at_aws = kind == "NETWORK_CONNECTION" and "amazonaws.com" in text
    return StoreUnavailable(f"{text}; {_ENDPOINT}" if is_at_aws else text)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST]
