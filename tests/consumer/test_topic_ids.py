"""Topic ids as brokers have them, in the form of the archive."""

import base64

import pytest
from confluent_kafka import Uuid

from ts_consumer.brokers import id_of


@pytest.mark.parametrize("text", ["bO_FSezpQfGuk0ddoMQWEw", "-_-_-_-_-_-_-_-_-_-_-w", "AAAAAAAAAAAAAAAAAAAAAQ"])
def test_an_id_has_the_form_of_kafkas_tools(text: str) -> None:
    """librdkafka writes other characters, so half of all topics would have been those of another life."""
    data = base64.urlsafe_b64decode(f"{text}==")
    most, least = (int.from_bytes(half, signed=True) for half in (data[:8], data[8:]))
    assert id_of(Uuid(most, least)) == text


def test_a_broker_without_ids_has_none() -> None:
    """Kafka before 2.8 returns zero."""
    assert id_of(Uuid(0, 0)) is None
