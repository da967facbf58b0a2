"""Answers of a broker that the client rejects."""

import pytest

from tests.fuzz.answers.broker import FakeBroker
from ts_uploader.leadership.kraft.broker import BrokerAway
from ts_uploader.leadership.kraft.broker_client import BrokerClient


@pytest.mark.parametrize("length", [(16 << 20) + 5, (1 << 31) - 1, -1])
def test_a_frame_that_declares_a_larger_size_than_any_answer_is_rejected(length: int) -> None:
    """The client stops reading at its limit; librdkafka's default would buffer a hundred megabytes."""
    broker = FakeBroker()
    broker.follow({3: (length, None, b"")})
    client = BrokerClient(1, {"bootstrap.servers": f"127.0.0.1:{broker.port}"}, 5.0)
    try:
        with pytest.raises(BrokerAway, match=r"Bad message format|Invalid response size"):
            client.leaders("t")
    finally:
        client.close(5.0)
