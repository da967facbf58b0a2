"""Requests that an archive refuses: some change a topic, and SASL has no place after a login.

What a user sees, tried with the clients:

- Java's producer reports `PolicyViolationException` with the text below, at once, also an idempotent one.
- librdkafka's producer reports POLICY_VIOLATION for each message, without a further attempt.
- A producer with `acks=0` expects no reply, so its connection ends, as on a broker. It reports the message as sent.
- `kafka-delete-records` prints `PolicyViolationException` for each partition.
- A transactional producer fails at FindCoordinator (`ts_endpoint.peers.handlers`).
- MirrorMaker 2 ends at its start with the text for its topics, which names the settings. Without ACLs it copies none.

An idempotent producer gets its id: frameworks create one at their start and may never produce.
"""

import secrets
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import ConnectionEnds, Handlers, Session
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.topics.topic_ids import NO_TOPIC_ID

_ID_BITS: Final = 62
_READ_ONLY: Final = "this endpoint serves an archive, which is read-only: "
NO_PRODUCE: Final = f"{_READ_ONLY}produce to the Kafka cluster itself"
NO_TOPICS: Final = f"{_READ_ONLY}create topics in the Kafka cluster itself"
MIRROR_MAKER: Final = (
    "; for MirrorMaker 2 set offset-syncs.topic.location=target and emit.heartbeats.enabled=false: it then creates its"
    " own topics in the target cluster alone"
)
_MIRROR_MAKERS_TOPICS: Final = ("mm2-", "heartbeats")
NO_ACLS: Final = "this endpoint has no ACLs: the file of --users names who may read a topic"


async def refuse_produce(request: Request, session: Session) -> Values:
    """Return POLICY_VIOLATION for each partition.

    Raises:
        ConnectionEnds: the producer expects no reply (`acks=0`), so only the end of its connection reports the refusal.
    """
    del session
    if request.body.acks == 0:
        raise ConnectionEnds(f"Produce with acks=0 was refused: {NO_PRODUCE}")
    return {
        "responses": [
            {"name": topic.name, "partition_responses": [_refused(each.index) for each in topic.partition_data]}
            for topic in request.body.topic_data
        ],
        "throttle_time": timedelta(0),
    }


def _refused(partition: int) -> dict[str, Any]:
    return {
        "index": partition,
        "error_code": ErrorCode.policy_violation,
        "base_offset": -1,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": NO_PRODUCE,
    }


async def grant_producer_id(request: Request, session: Session) -> Values:
    """Return a producer id that was not given before: random, because all processes give some.

    A transactional producer gets POLICY_VIOLATION, and one that names an id without an epoch INVALID_REQUEST as from a
    broker.
    """
    del session
    body = request.body
    has_id, has_epoch = getattr(body, "producer_id", -1) != -1, getattr(body, "producer_epoch", -1) != -1
    error = ErrorCode.invalid_request if has_id != has_epoch else ErrorCode.none
    if body.transactional_id is not None:
        error = ErrorCode.policy_violation
    if error is not ErrorCode.none:
        return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": error, "producer_id": secrets.randbits(_ID_BITS), "producer_epoch": 0}


async def refuse_delete_records(request: Request, session: Session) -> Values:
    """Return POLICY_VIOLATION for each partition."""
    del session
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "low_watermark": -1,
                        "error_code": ErrorCode.policy_violation,
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
    }


async def refuse_create_topics(request: Request, session: Session) -> Values:
    """Return POLICY_VIOLATION for each topic."""
    del session
    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": NO_TOPIC_ID,
                "error_code": ErrorCode.policy_violation,
                "error_message": NO_TOPICS + (MIRROR_MAKER if topic.name.startswith(_MIRROR_MAKERS_TOPICS) else ""),
                "configs": None,
            }
            for topic in request.body.topics
        ]
    }


async def refuse_describe_acls(request: Request, session: Session) -> Values:
    """Return SECURITY_DISABLED, as a broker without an authorizer does; MirrorMaker 2 then copies no ACLs."""
    del request, session
    return {"error_code": ErrorCode.security_disabled, "error_message": NO_ACLS, "resources": []}


async def refuse_handshake(request: Request, session: Session) -> Values:
    """Return ILLEGAL_SASL_STATE: the client has authenticated, or the listener has no SASL."""
    del request, session
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}


async def refuse_authenticate(request: Request, session: Session) -> Values:
    """Return ILLEGAL_SASL_STATE, as `refuse_handshake`."""
    del request, session
    return {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }


REFUSALS: Final[Handlers] = {
    Api.PRODUCE: refuse_produce,
    Api.DELETE_RECORDS: refuse_delete_records,
    Api.INIT_PRODUCER_ID: grant_producer_id,
    Api.CREATE_TOPICS: refuse_create_topics,
    Api.DESCRIBE_ACLS: refuse_describe_acls,
    Api.SASL_HANDSHAKE: refuse_handshake,
    Api.SASL_AUTHENTICATE: refuse_authenticate,
}
