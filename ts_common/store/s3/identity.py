"""Whose requests S3 receives: the access key, and the ARN that STS returns for it.

An access key of a role is temporary, so it names its owner only for a session. The ARN of a role's session ends with a
name that the caller chooses. So the role is one word of the identity, and the session's name another one:

    AKIAIOSFODNN7EXAMPLE arn:aws:iam::111122223333:user/a
    arn:aws:sts::111122223333:assumed-role/holder session:a@example.org

STS is called for an endpoint of AWS, for an assumed role, and if AWS_ENDPOINT_URL_STS is set. Elsewhere the key is of
another store, and AWS would reject it. Without STS a temporary key has no identity.

https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
"""

import os
import re
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from ts_common.store.options import Connection
from ts_common.store.s3.bounded_session import bound
from ts_common.store.s3.client import acting_session
from ts_common.store.s3.error_translation import SDK_UNFORESEEN

_SECONDS: Final = 5  # for each connect and receive: a network without a route to STS shall not delay a command
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_ROLE: Final = re.compile(r"(?P<role>arn:[a-z-]+:sts::[0-9]+:assumed-role/[^/\s]+)/(?P<session>\S+)")
_WORD: Final = re.compile(r"\S{1,2048}")


def identity_of(connection: Connection, endpoint: str) -> str | None:
    """Return the identity of the credentials, as `ObjectStore.identity`.

    Args:
        endpoint: the URL of S3.

    Raises:
        BotoCoreError, ClientError: no credentials were found, or a role cannot be assumed.
    """
    session = acting_session(connection)
    credentials = session.get_credentials()
    if credentials is None:
        return None
    keys = credentials.get_frozen_credentials()
    own = [] if keys.token or not keys.access_key else [keys.access_key]
    host = urlsplit(endpoint).hostname or ""
    has_sts = host.endswith(_AWS) or connection.role_arn is not None or bool(os.environ.get("AWS_ENDPOINT_URL_STS"))
    return " ".join([*own, *(_caller(session) if has_sts else ())]) or None


def _caller(session: Session) -> list[str]:
    """Return the words of the caller's ARN; no words if STS gives no usable response."""
    settings = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 2})
    region = session.get_config_variable("region") or "us-east-1"
    client: Any = bound(session.create_client("sts", region_name=region, config=settings))
    try:
        arn = str(client.get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError, *SDK_UNFORESEEN):
        return []
    finally:
        client.close()
    if (match := _ROLE.fullmatch(arn)) is not None:
        return [match["role"], f"session:{match['session']}"]
    return [arn] if _WORD.fullmatch(arn) else []
