"""The client of librdkafka: answers that it rejects, and a file that is away."""

from pathlib import Path

import pytest

from dev.local.certificates import Certificates
from tests.fuzz.answers.broker import FakeBroker
from ts_uploader.leadership.kraft.broker import BrokerAway
from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient


@pytest.mark.parametrize("length", [(16 << 20) + 5, (1 << 31) - 1, -1])
def test_a_frame_that_declares_a_larger_size_than_any_answer_is_rejected(length: int) -> None:
    """The client stops reading at its limit; librdkafka's default would buffer a hundred megabytes."""
    broker = FakeBroker()
    broker.follow({3: (length, None, b"")})
    client = LibrdkafkaClient(1, {"bootstrap.servers": f"127.0.0.1:{broker.port}"}, 5.0)
    try:
        with pytest.raises(BrokerAway, match=r"Bad message format|Invalid response size"):
            client.leaders("t")
    finally:
        client.close(5.0)


def test_a_certificate_that_is_away_for_a_while_leaves_the_client_as_it_is(tmp_path: Path) -> None:
    """A broker restarts with new certificates, and their file follows later: the next attempt reads it."""
    authority = tmp_path / "own-ca.pem"
    Certificates(tmp_path).authority.rename(authority)
    settings = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SSL", "ssl.ca.location": str(authority)}
    client = LibrdkafkaClient(1, settings, 0.1)
    authority.rename(tmp_path / "away")
    with pytest.raises(BrokerAway, match=r"ssl\.ca\.location failed"):
        client.restart()
    with pytest.raises(BrokerAway):
        client.leaders("t")
    (tmp_path / "away").rename(authority)
    client.restart()
    client.close(10.0)
