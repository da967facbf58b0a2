"""Users, logins and quotas of a listener, from its options."""

from dataclasses import dataclass

from ts_common.errors import ConfigurationError
from ts_endpoint.contract import EveryonePermitted, Permissions
from ts_endpoint.network.flow import Quotas
from ts_endpoint.security.audit import Audit
from ts_endpoint.security.login import Sasl
from ts_endpoint.security.tls import Tls
from ts_endpoint.security.users import Users
from ts_endpoint.serving.options import Settings


@dataclass(frozen=True, slots=True)
class Security:
    """What protects a listener.

    Attributes:
        permissions: of users.
        tls: None for plain TCP.
        sasl: None if clients need not authenticate by SASL.
        quotas: of users; None without users.
        audit: of logins and reads; None if clients do not log in and no file was named: its lines would name no user.
    """

    permissions: Permissions
    tls: Tls | None
    sasl: Sasl | None
    quotas: Quotas | None
    audit: Audit | None


def secured(settings: Settings) -> Security:
    """Return what the options describe. Without a file of users everyone may read everything.

    Args:
        settings: of the process.

    Raises:
        ConfigurationError: a file is missing or wrong.
    """
    options = settings.options
    users = None if options.users is None else Users(options.users)
    try:
        is_audited = settings.has_logins or options.audit_log is not None
        audit = Audit(options.audit_log) if is_audited else None
    except OSError as error:
        raise ConfigurationError("--audit-log", [f"{options.audit_log}: cannot write: {error.strerror}"]) from error
    return Security(
        permissions=EveryonePermitted() if users is None else users,
        tls=None if settings.tls is None else Tls(settings.tls),
        sasl=None if users is None or not settings.mechanisms else Sasl(settings.mechanisms, users.keys, users.usual),
        quotas=None if users is None else Quotas(users.bytes_per_second),
        audit=audit,
    )
