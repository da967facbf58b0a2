"""The requests that the admin client of confluent-kafka lacks, over a raw connection.

::

    DescribeClientQuotas 0   request   components [] (all), strict false
                             response  throttle int32, error int16, message string,
                                       entries [entity [type string, name string], values [key string, value float64]]
    DescribeConfigs 1        request   resources [type 4 (broker), name "" (all), keys null (all)], synonyms false
                             response  throttle int32, results [error int16, message string, type int8, name string,
                                       configs [name string, value string, read-only boolean, source int8,
                                       sensitive boolean, synonyms [name string, value string, source int8]]]

    DescribeUserScramCredentials 0   request   users [] (all); flexible
                             response  throttle int32, error int16, message string, results [user string,
                                       error int16, message string, infos [mechanism int8, iterations int32]]

The fields are those of the requests' files in Kafka's source, as `DescribeClientQuotasRequest.json`, and of their
responses'. Why the admin client does not send the others:

- Settings for all brokers: it rejects the empty name. Its synonyms of a setting have one entry for each name, so they
  do not show a default that a broker's own setting or its file replaces.
- SCRAM users: if the broker denies the request, librdkafka 2.16 frees memory twice, which ends the process.
"""

from ts_common.archive.snapshots import Quota, User
from ts_common.errors import CorruptData
from ts_uploader.broker_connection.connection import Api, BrokerConnection
from ts_uploader.broker_connection.encoding import string

_ALL_QUOTAS = b"\0\0\0\0" + b"\0"
_ALL_BROKERS = b"\0\0\0\1" + b"\4" + string("") + b"\xff\xff\xff\xff" + b"\0"
_ALL_USERS = b"\1" + b"\0"  # no names, and no tagged fields
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_CLUSTER_AUTHORIZATION_FAILED = 31
_DYNAMIC_DEFAULT_BROKER_CONFIG = 3


def describe_client_quotas(connection: BrokerConnection) -> tuple[Quota, ...] | None:
    """Return the quotas of all entities, in a fixed order; None if the broker denies them (DESCRIBE_CONFIGS).

    Raises:
        NoAnswer: no answer in time.
        UnsupportedRequest: the broker is older than Kafka 2.6.
        CorruptData: the response is malformed, or is an error.
    """
    answer = connection.request(Api.DESCRIBE_CLIENT_QUOTAS, 0, _ALL_QUOTAS)
    answer.int32()
    if _is_denied(connection, "DescribeClientQuotas", answer.int16(), answer.string()):
        return None

    def pair() -> tuple[str, str | None]:
        return answer.string() or "", answer.string()

    def value() -> tuple[str, float]:
        return answer.string() or "", answer.float64()

    found = answer.array(lambda: Quota(dict(answer.array(pair)), dict(answer.array(value))))
    return tuple(sorted(found, key=lambda each: sorted((kind, name or "") for kind, name in each.entity.items())))


def describe_broker_defaults(connection: BrokerConnection) -> dict[str, str] | None:
    """Return the dynamic settings for all brokers, without secrets; None if the broker denies them (DESCRIBE_CONFIGS).

    Raises:
        NoAnswer, UnsupportedRequest, CorruptData: as `describe_client_quotas`.
    """
    answer = connection.request(Api.DESCRIBE_CONFIGS, 1, _ALL_BROKERS)
    answer.int32()

    def setting() -> tuple[str, str | None]:
        name, value, _, source = answer.string() or "", answer.string(), answer.boolean(), answer.int8()
        hidden = answer.boolean() or source != _DYNAMIC_DEFAULT_BROKER_CONFIG
        answer.array(lambda: (answer.string(), answer.string(), answer.int8()))
        return name, None if hidden else value

    def result() -> dict[str, str] | None:
        denied = _is_denied(connection, "DescribeConfigs", answer.int16(), answer.string())
        answer.int8(), answer.string()
        settings = answer.array(setting)
        return None if denied else {name: value for name, value in settings if value is not None}

    results = answer.array(result)
    if len(results) != 1:
        raise CorruptData(f"{connection.name}: DescribeConfigs has {len(results)} results; one is expected")
    return results[0]


def describe_scram_users(connection: BrokerConnection) -> tuple[User, ...] | None:
    """Return the users of SCRAM by name, without secrets; None if the broker denies them (DESCRIBE).

    Raises:
        NoAnswer, CorruptData: as `describe_client_quotas`.
        UnsupportedRequest: the broker is older than Kafka 2.7.
    """
    answer = connection.request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, _ALL_USERS, flexible=True)
    answer.int32()
    if _is_denied(connection, "DescribeUserScramCredentials", answer.int16(), answer.compact_string()):
        return None

    def info() -> tuple[str, int]:
        mechanism, iterations = answer.int8(), answer.int32()
        answer.tagged_fields()
        return _MECHANISMS.get(mechanism, f"mechanism {mechanism}"), iterations

    def user() -> User:
        name = answer.compact_string() or ""
        answer.int16(), answer.compact_string()
        infos = dict(answer.compact_array(info))
        answer.tagged_fields()
        return User(name, infos)

    return tuple(sorted(answer.compact_array(user), key=lambda each: each.name))


def _is_denied(connection: BrokerConnection, request: str, code: int, message: str | None) -> bool:
    if code not in {0, _CLUSTER_AUTHORIZATION_FAILED}:
        raise CorruptData(f"{connection.name}: {request} failed with error code {code}: {message}")
    return code != 0
