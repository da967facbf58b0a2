"""Topic ids: Kafka prints 16 bytes as base64 without padding, and sends them as a UUID."""

from base64 import urlsafe_b64decode
from binascii import Error
from typing import Final
from uuid import UUID

NO_TOPIC_ID: Final = UUID(int=0)


def uuid_of(topic_id: str | None) -> UUID:
    """Return a topic id as a UUID; the zero UUID without one, as Kafka sends it."""
    if topic_id is None:
        return NO_TOPIC_ID
    try:
        return UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))
    except (Error, ValueError):
        return NO_TOPIC_ID
