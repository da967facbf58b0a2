"""Error codes of brokers, and the error of a request that a broker answered with another one.

The codes are those of Kafka's protocol guide, "Error Codes".
"""

from typing import Final

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.errors import CorruptData

UNKNOWN_TOPIC: Final = 3
TOPIC_DENIED: Final = 29
GROUP_DENIED: Final = 30
CLUSTER_DENIED: Final = 31
OFFSET_NOT_AVAILABLE: Final = 78


class RequestFailed(CorruptData):
    """The broker answered with an error code that is no denial."""


def request_failed(connection: BrokerConnection, request: str, code: int, message: str | None = None) -> RequestFailed:
    """Return the error of a request that the broker answered with an error code."""
    reason = "" if message is None else f": {message}"
    return RequestFailed(f"{connection.name}: {request} failed with error code {code}{reason}")
