"""The SDK, configured.

Two clients, because they differ in what may be repeated. botocore repeats a request on its own; a PUT repeated after
its success was lost meets its own object and is answered 412, which would tell the caller that somebody else was
there. So `_writes` tries once and `OutcomeUnknown` goes to the caller, who can look. `_reads` (and deletes, which may
be repeated) tries three times, except after a timeout: the caller's patience is `timeout_seconds`, not three of them.

Every body carries a CRC-32C as a header. botocore then neither reads the body for a checksum of its own nor sends it in
chunks with a trailer, which not every store understands. With TLS around it, botocore's SHA-256 over the body adds
nothing and costs as much CPU as the upload: it is off over https, and as botocore has it over http. Readers check what
they read (CRC in metadata and batches), so botocore does not on a GET.

`timeout_seconds` is both timeouts of urllib3: its connect timeout also holds for each send of the request (128 KiB of
a body), its read timeout for each receive.

What a `Connection` says holds for the session, so that STS is asked through the same proxy, and believed by the same
authorities; but for what is of the S3 service alone: its URL, the client's certificate, and `tls.verify`.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import boto3
import boto3.session
import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError, MetadataRetrievalError, ReadTimeoutError
from botocore.loaders import Loader, create_loader

from ts_common.errors import ConfigurationError
from ts_common.store.option_table import NAME_OF
from ts_common.store.options import PREFIX, AddressingStyle, Connection
from ts_common.store.retry import READ_ATTEMPTS
from ts_common.store.s3.bounded_session import bound
from ts_common.store.s3.errors import SDK_UNFORESEEN
from ts_common.store.s3.listing_parser import read_quickly
from ts_common.store.s3.roles import assume_role
from ts_common.store.wrappers.bandwidth import Allowance, RationedBody

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def open_clients(
    connection: Connection, timeout_seconds: float, connections: int, allowance: Allowance
) -> "tuple[S3Client, S3Client]":
    """The client for reads and deletes, and the one for puts.

    Args:
        connection: how S3 is spoken to.
        timeout_seconds: how long a connect, a send or a receive may stand still.
        connections: how many each keeps for reuse.
        allowance: what the bodies of puts are taken from.

    Raises:
        ConfigurationError: a file that `connection` names is not there.
    """
    _check_files(connection)
    parts = _session(connection)
    if connection.role_arn is not None:
        assume_role(parts, _session(connection), connection.role_arn, connection)
    _find_credentials(parts)
    session = boto3.session.Session(botocore_session=parts)
    paths = parts.get_component("data_loader").search_paths
    paths[:] = dict.fromkeys(paths)  # boto3 adds its own for each session
    certificate: Any = connection.client_certificate
    if connection.client_key is not None:
        certificate = (connection.client_certificate, connection.client_key)
    service: Any = {
        "region_name": session.region_name,  # without any, S3 means us-east-1
        "endpoint_url": connection.endpoint_url,
        "verify": None if connection.tls_verify else False,
    }
    style = connection.addressing_style
    addressing: Any = {} if style is AddressingStyle.AUTO else {"addressing_style": style.value}
    common = Config(
        client_cert=certificate,
        s3=addressing or None,
        connect_timeout=timeout_seconds,
        read_timeout=timeout_seconds,
        max_pool_connections=connections,
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Both are looked at anew for each request otherwise, which is a sixth of what a small request costs.
        user_agent=f"ts-uploader Boto3/{boto3.__version__} Botocore/{botocore.__version__}",
        parameter_validation=False,
    )
    reads: S3Client = session.client(
        "s3",
        **service,
        config=common.merge(Config(retries={"mode": "standard", "total_max_attempts": READ_ATTEMPTS})),
    )
    read_quickly(parts, reads)
    # The stubs do not know that a hook's answer counts.
    reads.meta.events.register_first("needs-retry.s3", cast("Callable[..., None]", _not_after_timeout))
    options: Any = dict(reads.meta.config.s3 or {})  # type: ignore[attr-defined]
    if reads.meta.endpoint_url.startswith("https:"):
        options.setdefault("payload_signing_enabled", False)
    once = Config(retries={"mode": "standard", "total_max_attempts": 1}, s3=options)
    writes = session.client("s3", **service, config=common.merge(once))

    def ration(request: Any, **_: object) -> None:  # an AWSPreparedRequest, whose stubs know no readers of others
        # Here the body was signed already: over http botocore reads all of it for that, and nothing is sent then.
        if request.body:
            request.body = RationedBody(request.body, int(request.headers["Content-Length"]), allowance)

    writes.meta.events.register("before-send.s3.PutObject", cast("Callable[..., None]", ration))
    return bound(reads), bound(writes)


def _session(connection: Connection) -> botocore.session.Session:
    """A session of the SDK, and so what STS is asked with too."""
    session = botocore.session.Session(profile=connection.profile)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    # The SDK for Python does not know AWS_REGION, which every other one reads.
    region = connection.region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
    for name, value in (("region", region), ("ca_bundle", connection.ca_bundle)):
        if value is not None:
            session.set_config_variable(name, value)
    if connection.proxy is not None:
        proxies = {"http": connection.proxy, "https": connection.proxy}
        session.set_default_client_config(Config(proxies=proxies))
    return session


@cache
def _loader(data_path: str | None) -> Loader:
    """The SDK's descriptions of its services, which take 10 MB and are the same for every session."""
    return create_loader(data_path)


def _find_credentials(session: botocore.session.Session) -> None:
    """Have the SDK look for credentials, which it keeps. It takes for granted what a metadata server answers.

    Raises:
        MetadataRetrievalError: that was not what it should be.
        BotoCoreError: others of the SDK's.
    """
    try:
        session.get_credentials()
    except SDK_UNFORESEEN as error:
        raise MetadataRetrievalError(error_msg=f"no answer that has credentials: {error!r}") from error


def _check_files(connection: Connection) -> None:
    """The SDK looks at them when it first connects, and then says that there is no connection."""
    problems = [
        f"{PREFIX}{NAME_OF[attribute]}={path}: there is no such file"
        for attribute in ("ca_bundle", "client_certificate", "client_key")
        if (path := getattr(connection, attribute)) is not None and not Path(path).is_file()
    ]
    if problems:
        raise ConfigurationError("S3", problems)


def _not_after_timeout(caught_exception: Exception | None = None, **_: object) -> bool | None:
    """The SDK's hook "needs-retry": False ends the attempts, None leaves it to the retry mode."""
    return False if isinstance(caught_exception, ConnectTimeoutError | ReadTimeoutError) else None
