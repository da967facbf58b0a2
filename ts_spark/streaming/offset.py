"""How far a stream has come: what Spark writes into the checkpoint.

::

    {"clicks":{"0":23,"1":345},
     "~topicIds":{"clicks":"pQ1r..."},"~epochs":{"clicks":{"0":4,"1":4}},"~began":{"clicks":{"1":0}}}

The next offset of each partition, as Spark's own Kafka source writes it. `~` is no legal character of a topic's name,
so these are none:

- `~topicIds`: whose offsets these are, for topics that have an id. A topic that was deleted and created again begins
  anew, and nothing of one life is taken for the other's.
- `~epochs`: the leader epoch that wrote the offset before, where the commit says it. An election can take back what was
  read, and by the next look the log may be longer than ever; that another epoch wrote this offset tells.
- `~began`: where partitions begin that the offset before did not have. Spark keeps the ends of batches only, and asks a
  restarted source anew where its first batch began; meanwhile `latest` has moved. So the first offset of a query holds
  its beginning, and a batch that is run again reads the same rows.

Equal offsets have equal text: Spark compares them as text to see whether there is anything new.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ts_common.errors import QueryError
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
        epochs: the leader epoch of the offset before each position, where it is known.
        began: where partitions begin that the offset before this one did not have.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    began: Mapping[TopicPartition, int] = field(default_factory=dict)

    def stands_where(self, other: "StreamOffset") -> bool:
        """Whether nothing lies between the two."""
        return self.positions == other.positions and self.topic_ids == other.topic_ids

    def of_topic(self, topic: str) -> dict[TopicPartition, int]:
        """The positions of one topic's partitions."""
        return {partition: at for partition, at in self.positions.items() if partition.topic == topic}

    def encode(self) -> dict[str, Any]:
        """As values that JSON has, in a fixed order."""
        encoded: dict[str, Any] = _by_topic(self.positions)
        if self.topic_ids:
            encoded[_TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.epochs:
            encoded[_EPOCHS] = _by_topic(self.epochs)
        if self.began:
            encoded[_BEGAN] = _by_topic(self.began)
        return encoded


def decode_offset(encoded: Mapping[str, Any]) -> StreamOffset:
    """Read an offset; one that holds positions only is one, too.

    Raises:
        QueryError: it is no offset of this source.
    """
    try:
        topics = {name: value for name, value in encoded.items() if name not in {_TOPIC_IDS, _EPOCHS, _BEGAN}}
        return StreamOffset(
            _positions(topics),
            {_topic(name): str(topic_id) for name, topic_id in encoded.get(_TOPIC_IDS, {}).items()},
            _positions(encoded.get(_EPOCHS, {})),
            _positions(encoded.get(_BEGAN, {})),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise QueryError(
            f"the checkpoint holds no offset of kafka_segments ({error}): {encoded}; begin with another checkpoint"
        ) from error


def _positions(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(_topic(topic), int(number)): int(offset)
        for topic, offsets in by_topic.items()
        for number, offset in offsets.items()
    }


def _topic(name: str) -> str:
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no legal name of a topic")
    return name


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(positions.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return by_topic
