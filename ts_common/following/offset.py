"""The offset of a stream: JSON values that it continues from. Spark writes them into the checkpoint.

::

    {"clicks":{"0":23,"1":345},
     "~topicIds":{"clicks":"pQ1r..."},"~epochs":{"clicks":{"0":4,"1":4}},"~began":{"clicks":{"1":0}}}

It has the next offset of each partition, as Spark's own Kafka source writes it. A topic's name cannot contain `~`, so
these keys are not topics:

- `~topicIds`: the topic id of each topic that has one. If a topic is deleted and created again, the stream starts at
  its beginning, and offsets of the two incarnations are never confused.
- `~epochs`: the leader epoch that wrote the offset before each position, if the commit has it. An election can remove
  records that were read, and the log may be longer at the next look. Then another epoch wrote that offset.
- `~began`: the start of each partition that the offset before did not have. Spark stores the ends of batches only. It
  calls a restarted source again for the start of its first batch, and `latest` has moved meanwhile. So the first offset
  of a query contains its start, and a batch that runs again reads the same rows.

Equal offsets have equal text: Spark compares their text to find new data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ts_common.json_objects import MAX_INT32, shown, whole_number
from ts_common.model import TopicPartition, is_topic_name

_TOPIC_IDS: Final = "~topicIds"
_EPOCHS: Final = "~epochs"
_BEGAN: Final = "~began"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of a stream.

    Attributes:
        positions: the next offset of each partition.
        topic_ids: of the topics whose id is known.
        epochs: the leader epoch of the offset before each position, if known.
        began: the start of each partition that the offset before this one did not have.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    began: Mapping[TopicPartition, int] = field(default_factory=dict)

    def equals_in_position(self, other: "StreamOffset") -> bool:
        """Return whether no record is between the two."""
        return self.positions == other.positions and self.topic_ids == other.topic_ids

    def of_topic(self, topic: str) -> dict[TopicPartition, int]:
        """Return the positions of one topic's partitions."""
        return {partition: at for partition, at in self.positions.items() if partition.topic == topic}

    def encode(self) -> dict[str, Any]:
        """Return JSON values in a fixed order."""
        encoded: dict[str, Any] = _by_topic(self.positions)
        if self.topic_ids:
            encoded[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.epochs:
            encoded[_EPOCHS] = _by_topic(self.epochs)
        if self.began:
            encoded[_BEGAN] = _by_topic(self.began)
        return encoded


def decode_offset(encoded: Mapping[str, Any]) -> StreamOffset:
    """Return an offset from JSON values; positions are enough.

    Raises:
        ValueError: the values are not an offset of a stream.
    """
    try:
        topics = {name: value for name, value in encoded.items() if name not in {_TOPIC_IDS, _EPOCHS, _BEGAN}}
        return StreamOffset(
            _positions(topics, 0),
            {_topic(name): str(topic_id) for name, topic_id in encoded.get(_TOPIC_IDS, {}).items()},
            _positions(encoded.get(_EPOCHS, {}), -1),
            _positions(encoded.get(_BEGAN, {}), 0),
        )
    except (TypeError, AttributeError) as error:
        raise ValueError(error) from error


def _positions(by_topic: Mapping[str, Mapping[str, int]], least: int) -> dict[TopicPartition, int]:
    return {
        TopicPartition(_topic(topic), _partition(number)): whole_number(offset, least)
        for topic, offsets in by_topic.items()
        for number, offset in offsets.items()
    }


def _partition(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or str(int(text[:11])) != text:
        raise ValueError(f"{shown(text)} is not the number of a partition")
    return whole_number(int(text), 0, MAX_INT32)


def _topic(name: str) -> str:
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no legal name of a topic")
    return name


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(positions.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return by_topic
