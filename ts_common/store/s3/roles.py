"""Assume a role with the credentials of the environment, by the SDK's own classes.

A profile of the AWS configuration files can name a role too (`role_arn`, with `source_profile` or
`credential_source`). This module uses the whole chain of credentials instead, which no profile can name. The SDK's
fetcher calls STS, and its refreshable credentials call it again a quarter of an hour before a session ends.
"""

import logging
from collections.abc import Callable
from typing import Any

from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.session import Session

from ts_common.store.options import Connection
from ts_common.store.s3.bounded_session import bound


def _in_one_line(record: logging.LogRecord) -> bool:
    """Shorten the SDK's record of a failed renewal: the SDK also raises the error, and the caller logs it."""
    if record.exc_info:
        record.msg, record.exc_info = f"{record.msg} {record.exc_info[1]}", None
    return True


logging.getLogger("botocore.credentials").addFilter(_in_one_line)


class _AssumedRole(CredentialProvider):
    """The only credential provider of a session that acts as a role."""

    METHOD = "assume-role"

    def __init__(self, source: Session, role_arn: str, connection: Connection) -> None:
        super().__init__(session=source)
        self._source = source
        self._role_arn = role_arn
        self._connection = connection

    def load(self) -> DeferredRefreshableCredentials:
        """Return credentials that call STS at their first use.

        Raises:
            NoCredentialsError: the source session has no credentials.
        """
        source = self._source.get_credentials()
        if source is None:
            raise NoCredentialsError
        extra = {"ExternalId": self._connection.external_id, "RoleSessionName": self._connection.role_session_name}
        fetcher: Any = AssumeRoleCredentialFetcher(
            client_creator=lambda *names, **options: bound(self._source.create_client(*names, **options)),
            source_credentials=source,
            role_arn=self._role_arn,
            extra_args={name: value for name, value in extra.items() if value is not None},
        )
        refresh: Callable[[], Any] = fetcher.fetch_credentials
        return DeferredRefreshableCredentials(refresh_using=refresh, method=self.METHOD)


def assume_role(session: Session, source: Session, role_arn: str, connection: Connection) -> None:
    """Let the clients of a session act as a role.

    Args:
        session: has created no client yet.
        source: its credentials assume the role, and its STS client sends the request.
        connection: contains the external id, and the name of the role's sessions.
    """
    session.register_component("credential_provider", CredentialResolver([_AssumedRole(source, role_arn, connection)]))
