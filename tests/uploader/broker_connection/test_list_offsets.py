"""ListOffsets requests that are sent again and again."""

import struct
from typing import cast

from ts_common.broker_connection.connection import Api, BrokerConnection
from ts_common.broker_connection.encoding import Reader, string
from ts_common.broker_connection.failures import TOPIC_DENIED
from ts_common.broker_connection.list_offsets import LATEST, OffsetRequests
from ts_common.model import TopicPartition

Row = tuple[int, int, int, int, int]


class Answering:
    """A connection with one answer: rows of topic `t`, after a throttle time."""

    name = "broker"

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.throttle = 0

    def request(self, api: Api, version: int, body: bytes) -> Reader:
        del version, body
        rows = b"".join(struct.pack(">ihqqi", *row) for row in self.rows)
        head = struct.pack(">ii", self.throttle, 1) + string("t") + struct.pack(">i", len(self.rows))
        return Reader(head + rows, api.name)


def test_an_answer_is_yielded_again_only_if_it_differs_or_has_an_error() -> None:
    """Most partitions are not written to; a topic that is denied stays known as that."""
    broker = Answering()
    requests = OffsetRequests({TopicPartition("t", 0): 7, TopicPartition("t", 1): 7}, LATEST)

    def sent() -> list[tuple[str, list[Row]]]:
        return list(requests.send(cast("BrokerConnection", broker)))

    broker.rows = [(0, 0, -1, 10, 7), (1, 0, -1, 20, 7)]
    assert sent() == [("t", broker.rows)]
    broker.throttle = 3
    assert sent() == []
    broker.rows = [(0, 0, -1, 11, 7), (1, 0, -1, 20, 7)]
    assert sent() == [("t", broker.rows)]
    broker.rows = [(0, 0, -1, 11, 7), (1, TOPIC_DENIED, -1, -1, -1)]
    assert sent() == sent() == [("t", broker.rows)]
