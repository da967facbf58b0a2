"""Configure the SDK's clients.

There are two clients, because only some requests may be retried. botocore retries by itself. If the response to a
successful PUT is lost, the retry meets its own object, and the store answers 412 as if another writer had written it.
So the client for writes tries once, and the caller receives `OutcomeUnknown` and can read the object. The client for
reads and deletes tries three times, except after a timeout: the caller waits `timeout_seconds`, not three times that.

Every put has a header with a CRC-32C. botocore then neither reads the body for its own checksum nor sends it in chunks
with a trailer, which some stores do not support. Over TLS, botocore's SHA-256 of the body has no use and costs as much
CPU as the upload. It is switched off over https, and left to botocore over http. Readers check the CRC of what they
read, so botocore does not check it on a GET.

`timeout_seconds` sets both timeouts of urllib3. The connect timeout also limits each send of a request (128 KiB of a
body), the read timeout limits each receive.

A `Connection` applies to the session, so STS is reached through the same proxy and with the same authorities. Its URL,
the client's certificate and `tls.verify` apply to S3 only.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError, MetadataRetrievalError, ReadTimeoutError

from ts_common.errors import ConfigurationError
from ts_common.store.options import AddressingStyle, Connection, option_key
from ts_common.store.retry import READ_ATTEMPTS
from ts_common.store.s3.bounded_session import bound
from ts_common.store.s3.descriptions import descriptions
from ts_common.store.s3.direct_calls import DirectCalls
from ts_common.store.s3.error_translation import SDK_UNFORESEEN
from ts_common.store.s3.listing_parser import read_quickly
from ts_common.store.s3.roles import assume_role
from ts_common.store.wrappers.bandwidth import Allowance, RationedBody

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def _is_no_full_pool(record: logging.LogRecord) -> bool:
    """Drop the warning of urllib3 that more requests run at once than connections are kept: it is no fault."""
    return not record.getMessage().startswith("Connection pool is full")


logging.getLogger("urllib3.connectionpool").addFilter(_is_no_full_pool)


def open_clients(
    connection: Connection, timeout_seconds: float, connections: int, allowance: Allowance
) -> "tuple[S3Client, S3Client]":
    """Return the client for reads and deletes, and the client for puts.

    Args:
        connection: how the clients connect to S3.
        timeout_seconds: for each connect, send and receive.
        connections: the number that each client keeps for reuse.
        allowance: limits the bytes per second of the bodies of puts.

    Raises:
        ConfigurationError: a file that `connection` names does not exist.
    """
    _check_files(connection)
    session = acting_session(connection)
    certificate: Any = connection.client_certificate
    if connection.client_key is not None:
        certificate = (connection.client_certificate, connection.client_key)
    service: Any = {
        "region_name": session.get_config_variable("region"),  # None means us-east-1 for S3
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
        # Otherwise botocore computes both again for each request: a sixth of the cost of a small one.
        user_agent=f"ts-uploader Botocore/{botocore.__version__}",
        parameter_validation=False,
    )
    repeated = Config(retries={"mode": "standard", "total_max_attempts": READ_ATTEMPTS})
    reads: Any = session.create_client("s3", **service, config=common.merge(repeated))
    read_quickly(session, reads)
    # The stubs have no return value for a hook.
    reads.meta.events.register_first("needs-retry.s3", cast("Callable[..., None]", _not_after_timeout))
    options: Any = dict(reads.meta.config.s3 or {})
    if reads.meta.endpoint_url.startswith("https:"):
        options.setdefault("payload_signing_enabled", False)
    once = Config(retries={"mode": "standard", "total_max_attempts": 1}, s3=options)
    writes = session.create_client("s3", **service, config=common.merge(once))

    def ration(request: Any, **_: object) -> None:  # an AWSPreparedRequest, whose stubs have no other readers
        # The body is signed before this hook: over http botocore reads all of it for that, and sends nothing then.
        if request.body and not (isinstance(request.body, bytes) and allowance.limit is None):
            request.body = RationedBody(request.body, int(request.headers["Content-Length"]), allowance)

    writes.meta.events.register("before-send.s3.PutObject", cast("Callable[..., None]", ration))
    return cast("tuple[S3Client, S3Client]", (DirectCalls(bound(reads)), DirectCalls(bound(writes))))


def acting_session(connection: Connection) -> botocore.session.Session:
    """Return a session of the SDK with the credentials of the clients, of a role for example.

    Raises:
        MetadataRetrievalError, BotoCoreError: as `_find_credentials`.
    """
    session = _session(connection)
    if connection.role_arn is not None:
        assume_role(session, _session(connection), connection.role_arn, connection)
    _find_credentials(session)
    return session


def _session(connection: Connection) -> botocore.session.Session:
    """Return a session of the SDK; its STS client has the same settings."""
    session = botocore.session.Session(profile=connection.profile)
    session.register_component("data_loader", descriptions(session.get_config_variable("data_path")))
    # Unlike the other SDKs, the one for Python does not read AWS_REGION.
    region = connection.region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
    for name, value in (("region", region), ("ca_bundle", connection.ca_bundle)):
        if value is not None:
            session.set_config_variable(name, value)
    if (keys := connection.credentials) is not None:
        session.set_credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
    if connection.proxy is not None:
        proxies = {"http": connection.proxy, "https": connection.proxy}
        session.set_default_client_config(Config(proxies=proxies))
    return session


def _find_credentials(session: botocore.session.Session) -> None:
    """Have the session read credentials, which it keeps.

    Raises:
        MetadataRetrievalError: a metadata server returned something else. The SDK does not check its responses.
        BotoCoreError: another error of the SDK.
    """
    try:
        session.get_credentials()
    except SDK_UNFORESEEN as error:
        raise MetadataRetrievalError(error_msg=f"the response contains no credentials: {error!r}") from error


def _check_files(connection: Connection) -> None:
    """Raise ConfigurationError if a file does not exist; the SDK would report that as a failed connection."""
    problems = [
        f"{option_key(attribute)}={path}: the file does not exist; correct the path or create it"
        for attribute in ("ca_bundle", "client_certificate", "client_key")
        if (path := getattr(connection, attribute)) is not None and not Path(path).is_file()
    ]
    if problems:
        raise ConfigurationError("S3", problems)


def _not_after_timeout(caught_exception: Exception | None = None, **_: object) -> bool | None:
    """Handle the SDK's event "needs-retry": False ends the attempts, None leaves the decision to the retry mode."""
    return False if isinstance(caught_exception, ConnectTimeoutError | ReadTimeoutError) else None
