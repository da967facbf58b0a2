"""Requests for quotas, ACLs and SCRAM users. Any broker answers them.

The messages are those of the files in Kafka's source, as `DescribeAclsRequest.json`; `?` is a value that may be null::

    DescribeAcls 1          type, name?, pattern, principal?, host?, operation, permission (null or 1: any)
                            -> throttle, error, message?, resources [type, name, pattern,
                               acls [principal, host, operation, permission]]
    DescribeClientQuotas 0  components [] (all), strict
                            -> throttle, error, message?, entries [entity [type, name?], values [key, float64]]
    DescribeUserScramCredentials 0  users [] (all); flexible. A denied request for null users has no answer.
                            -> throttle, error, message?, results [user, error, message?, infos [mechanism, iterations]]
"""

from collections.abc import Mapping
from typing import Final

from ts_common.archive.snapshots import Acl, Quota, User
from ts_common.broker_connection.connection import NO_TAGS, Api, BrokerConnection
from ts_common.broker_connection.encoding import string
from ts_common.broker_connection.failures import CLUSTER_DENIED, request_failed

_ANY: Final = b"\1"
_SECURITY_DISABLED: Final = 54
_RESOURCES: Final = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
_PATTERNS: Final = {3: "LITERAL", 4: "PREFIXED"}
_PERMISSIONS: Final = {2: "DENY", 3: "ALLOW"}
_OPERATIONS: Final = dict(
    enumerate(
        (
            *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"),
            *("ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
        ),
        start=2,
    )
)
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def describe_acls(connection: BrokerConnection) -> tuple[Acl, ...] | None:
    """Return all ACLs in a fixed order, empty if the brokers have no authorizer; None if denied (DESCRIBE).

    Raises:
        NoAnswer, CorruptData: no answer in time, or a malformed one.
        RequestFailed: another error.
    """
    body = _ANY + string(None) + _ANY + string(None) + string(None) + _ANY + _ANY
    answer = connection.request(Api.DESCRIBE_ACLS, 1, body)
    answer.int32()
    code, message = answer.int16(), answer.string()
    if code == _SECURITY_DISABLED:
        return ()
    if _is_denied(connection, "DescribeAcls", code, message):
        return None

    def entry() -> tuple[str, str, str, str]:
        principal, host = answer.string() or "", answer.string() or ""
        return principal, host, _word(_OPERATIONS, answer.int8()), _word(_PERMISSIONS, answer.int8())

    def resource() -> list[Acl]:
        kind, name = _word(_RESOURCES, answer.int8()), answer.string() or ""
        pattern = _word(_PATTERNS, answer.int8())
        return [Acl(kind, name, pattern, *each) for each in answer.array(entry)]

    found = [acl for acls in answer.array(resource) for acl in acls]
    return tuple(sorted(found, key=lambda each: (each.resource_type, each.name, repr(each))))


def describe_client_quotas(connection: BrokerConnection) -> tuple[Quota, ...] | None:
    """Return the quotas of all entities in a fixed order; None if denied (DESCRIBE_CONFIGS).

    Raises:
        NoAnswer, CorruptData, RequestFailed: as `describe_acls`.
    """
    answer = connection.request(Api.DESCRIBE_CLIENT_QUOTAS, 0, b"\0\0\0\0" + b"\0")
    answer.int32()
    if _is_denied(connection, "DescribeClientQuotas", answer.int16(), answer.string()):
        return None

    def pair() -> tuple[str, str | None]:
        return answer.string() or "", answer.string()

    def value() -> tuple[str, float]:
        return answer.string() or "", answer.float64()

    found = answer.array(lambda: Quota(dict(answer.array(pair)), dict(answer.array(value))))
    return tuple(sorted(found, key=lambda each: sorted((kind, name or "") for kind, name in each.entity.items())))


def describe_scram_users(connection: BrokerConnection) -> tuple[User, ...] | None:
    """Return the users of SCRAM by name, without secrets; None if denied (DESCRIBE).

    Raises:
        NoAnswer, CorruptData, RequestFailed: as `describe_acls`.
    """
    answer = connection.request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, b"\1" + NO_TAGS, flexible=True)
    answer.int32()
    if _is_denied(connection, "DescribeUserScramCredentials", answer.int16(), answer.compact_string()):
        return None

    def info() -> tuple[str, int]:
        mechanism, iterations = answer.int8(), answer.int32()
        answer.tagged_fields()
        return _word(_MECHANISMS, mechanism), iterations

    def user() -> User:
        name = answer.compact_string() or ""
        code, message = answer.int16(), answer.compact_string()
        if code:
            raise request_failed(connection, f"DescribeUserScramCredentials of user {name}", code, message)
        infos = dict(answer.compact_array(info))
        answer.tagged_fields()
        return User(name, infos)

    return tuple(sorted(answer.compact_array(user), key=lambda each: each.name))


def _word(words: Mapping[int, str], number: int) -> str:
    """Return Kafka's word of a number; a later release can have further ones."""
    return words.get(number, f"UNKNOWN_{number}")


def _is_denied(connection: BrokerConnection, request: str, code: int, message: str | None) -> bool:
    if code not in {0, CLUSTER_DENIED}:
        raise request_failed(connection, request, code, message)
    return code != 0
