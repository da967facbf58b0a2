"""Open a store by its URL.

    s3://bucket/base/prefix      the base prefix is optional
    gs://bucket/base/prefix      Google Cloud Storage
    az://container/base/prefix   Azure Blob Storage; the environment names the account (`azure.account`)
    webhdfs://namenode:9870/directory, swebhdfs://namenode:9871/directory      HDFS (experimental); the latter with TLS
    file:///directory

Only `s3://` loads botocore, and each of the others loads only what it requires.
"""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectStore
from ts_common.store.options import NO_OPTIONS, StorageOptions, refuse_for_others
from ts_common.store.validation import check_key
from ts_common.store.wrappers.bandwidth import UNLIMITED, Allowance
from ts_common.store.wrappers.unconditional import UnconditionalStore

SOURCE = "storage location"
ACCEPTED = (
    "accepted are s3://bucket/base/prefix, gs://bucket/base/prefix, az://container/base/prefix, file:///directory, "
    "and, experimental, webhdfs://namenode:9870/directory, or swebhdfs:// for TLS"
)
# S3's rule, and the capitals and underscores in names of older buckets and of other stores.
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# Schemes of other tools for the same stores.
_AZURE = "az://container/base/prefix, and name the account in AZURE_STORAGE_ACCOUNT"
OTHER_NAMES = {"gcs": "gs://bucket/base/prefix", "abfs": _AZURE, "abfss": _AZURE, "wasbs": _AZURE, "azure": _AZURE}
OTHER_NAMES["hdfs"] = "webhdfs://namenode:9870/directory, with the NameNode's port for HTTP"


class Scheme(StrEnum):
    """Schemes of store URLs; each selects a driver."""

    S3 = "s3"
    GCS = "gs"
    AZURE = "az"
    WEBHDFS = "webhdfs"
    SWEBHDFS = "swebhdfs"
    FILE = "file"


_BUCKETS = {Scheme.S3, Scheme.GCS, Scheme.AZURE}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is.

    Attributes:
        scheme: selects the driver.
        bucket: of S3 or Google, the container of Azure, or host and port of HDFS; empty for a directory.
        path: the base prefix or HDFS's directory, without slashes at its ends; or the absolute directory.
    """

    scheme: Scheme
    bucket: str
    path: str

    @property
    def base(self) -> str:
        """What precedes a key in its bucket, with the final slash; empty in a directory."""
        return f"{self.path}/" if self.path and self.scheme in _BUCKETS else ""

    def __str__(self) -> str:
        return (
            f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/") if self.bucket else f"{self.scheme}://{self.path}"
        )


def parse_location(url: str) -> Location:
    """Return the location that a store URL names. Equal locations have equal text.

    Raises:
        ConfigurationError: the URL is invalid; one sentence names what is accepted.
    """
    try:
        return _parse(url)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [str(error)]) from error


def open_store(
    url: str,
    options: StorageOptions = NO_OPTIONS,
    *,
    timeout_seconds: float = 60.0,
    threads: int = 4,
    conditional_writes: bool = True,
    allowance: Allowance = UNLIMITED,
) -> ObjectStore:
    """Return an open store, without a request to it; `check` sends the first one.

    Args:
        url: see the module's docstring.
        options: of S3; every other store rejects them.
        timeout_seconds: for each connect, send and receive. A directory has no timeout.
        threads: the number of asynchronous puts that run at once.
        conditional_writes: False for a store without conditional writes; `ts_common.store.wrappers.unconditional`
            describes what is lost.
        allowance: limits the bytes per second of the bodies of puts; the stores of a process share one.

    Raises:
        ConfigurationError: the URL is invalid, or its store has no such options.
        OperatorError: the configuration of the SDK is unusable.
    """
    location = parse_location(url)
    if location.scheme is not Scheme.S3:
        refuse_for_others(location, options)
    store = _open(location, options, timeout_seconds, threads, allowance)
    return store if conditional_writes else UnconditionalStore(store, threads=threads)


def _open(
    location: Location, options: StorageOptions, timeout_seconds: float, threads: int, allowance: Allowance
) -> ObjectStore:
    match location.scheme:
        case Scheme.S3:
            from ts_common.store.s3.driver import S3Store  # noqa: PLC0415 - botocore costs 0.2 s and 30 MB

            return S3Store(
                location.bucket,
                location.path,
                options=options,
                timeout_seconds=timeout_seconds,
                threads=threads,
                allowance=allowance,
            )
        case Scheme.GCS:
            from ts_common.store.gcs.storage_service import gcs_service  # noqa: PLC0415 - as the others
            from ts_common.store.http.driver import HttpStore  # noqa: PLC0415 - as the others

            google = gcs_service(location.bucket, os.environ)
            return HttpStore(
                google, location.path, timeout_seconds=timeout_seconds, threads=threads, allowance=allowance
            )
        case Scheme.AZURE:
            from ts_common.store.azure.account import account_of  # noqa: PLC0415 - as the others
            from ts_common.store.azure.blob_service import AzureService  # noqa: PLC0415 - as the others
            from ts_common.store.http.driver import HttpStore  # noqa: PLC0415 - as the others

            azure = AzureService(location.bucket, account_of(os.environ))
            return HttpStore(
                azure, location.path, timeout_seconds=timeout_seconds, threads=threads, allowance=allowance
            )
        case Scheme.WEBHDFS | Scheme.SWEBHDFS:
            from ts_common.store.hdfs.driver import WebHdfsStore  # noqa: PLC0415 - as the others

            url = f"{'http' if location.scheme is Scheme.WEBHDFS else 'https'}://{location.bucket}"
            return WebHdfsStore(
                str(location),
                url,
                location.path,
                timeout_seconds=timeout_seconds,
                threads=threads,
                allowance=allowance,
            )
        case Scheme.FILE:
            from ts_common.store.directory.driver import FileStore  # noqa: PLC0415 - as the others

            return FileStore(Path(location.path), threads=threads, allowance=allowance)


def _parse(url: str) -> Location:
    scheme, separator, rest = url.strip().partition("://")
    if not separator:
        raise ValueError(f"{url!r} is not a store URL: {ACCEPTED}")
    if scheme in OTHER_NAMES:
        raise ValueError(f"{url!r}: write {OTHER_NAMES[scheme]}")
    if "@" in rest.partition("/")[0]:
        raise ValueError(
            f"the {scheme} URL contains credentials: remove them, and set them in the environment, a profile or a role"
        )
    if scheme in {"s3a", "s3n"}:
        raise ValueError(f"{url!r} is the Hadoop form: write s3://{rest}")
    if scheme in _BUCKETS:
        return _parse_bucket(url, Scheme(scheme), rest)
    if scheme in {Scheme.WEBHDFS, Scheme.SWEBHDFS}:
        return _parse_webhdfs(url, Scheme(scheme), rest)
    if scheme == Scheme.FILE:
        return _parse_file(url, rest)
    raise ValueError(f"{url!r} begins with {scheme!r}: {ACCEPTED}")


def _parse_bucket(url: str, scheme: Scheme, rest: str) -> Location:
    bucket, _, base = rest.partition("/")
    base = base.rstrip("/")
    if not BUCKET.fullmatch(bucket):
        raise ValueError(
            f"{url!r} names the bucket {bucket!r}: expected 3 to 63 letters, digits, '-', '.' or '_', as in "
            f"{scheme}://bucket/base/prefix"
        )
    if base:
        try:
            check_key(base)
        except ValueError as error:
            raise ValueError(f"{url!r} has an invalid base prefix: {error}") from error
    return Location(scheme, bucket, base)


def _parse_webhdfs(url: str, scheme: Scheme, rest: str) -> Location:
    address, _, path = rest.partition("/")
    path = path.rstrip("/")
    if not re.fullmatch(r"[\w.-]+:\d+", address, re.ASCII):
        raise ValueError(f"{url!r} names no NameNode: write {scheme}://host:port/directory, with its port for HTTP")
    if not path:
        raise ValueError(f"{url!r} names the root of the file system: name a directory below it")
    try:
        check_key(path)
    except ValueError as error:
        raise ValueError(f"{url!r} has an invalid directory: {error}") from error
    return Location(scheme, address, path)


def _parse_file(url: str, rest: str) -> Location:
    path = rest.rstrip("/")
    if not rest.startswith("/"):
        raise ValueError(f"{url!r} names no absolute directory: write file:///directory, with three slashes")
    if not path:
        raise ValueError(f"{url!r} names the root of the file system: name a directory below it")
    if any(part in {"", ".", ".."} for part in path.split("/")[1:]):
        raise ValueError(f"{url!r} has an empty, '.' or '..' part: remove it")
    return Location(Scheme.FILE, "", path)
