"""Requests that an archive refuses: Produce and DeleteRecords change a topic, and SASL has no place after a login.

What a user sees, tried with the clients:

- Java's producer reports `PolicyViolationException` with the text below, at once. Its default is an idempotent
  producer, which fails before: "The node does not support INIT_PRODUCER_ID".
- librdkafka's producer reports POLICY_VIOLATION for each message, without a further attempt.
- A producer with `acks=0` expects no reply, so its connection ends, as on a broker.
- `kafka-delete-records` prints `PolicyViolationException` for each partition.
"""

from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ts_endpoint.contract import Handlers, Session
from ts_endpoint.network.ends import ConnectionEnds
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api

READ_ONLY: Final = "this endpoint serves an archive, which is read-only: produce to the Kafka cluster itself"


async def refuse_produce(request: Request, session: Session) -> Values:
    """Return POLICY_VIOLATION for each partition.

    Raises:
        ConnectionEnds: the producer expects no reply (`acks=0`), so only the end of its connection reports the refusal.
    """
    del session
    if request.body.acks == 0:
        raise ConnectionEnds(f"Produce with acks=0 was refused: {READ_ONLY}")
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
        "error_message": READ_ONLY,
    }


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
    Api.SASL_HANDSHAKE: refuse_handshake,
    Api.SASL_AUTHENTICATE: refuse_authenticate,
}
