"""The offset of a stream: JSON values that it continues from. Spark writes them into the checkpoint.

::

    {"clicks":{"0":23,"1":345},
     "~topicIds":{"clicks":"pQ1r..."},"~epochs":{"clicks":{"0":[[4,0],[6,20]],"1":[[4,0]]}},
     "~lineages":{"clicks":{"0":[6,20,31]}},"~began":{"clicks":{"1":0}}}

It has the next offset of each partition, as Spark's own Kafka source writes it. A topic's name cannot contain `~`, so
these keys are not topics:

- `~topicIds`: the topic id of each topic that has one. If a topic is deleted and created again, the stream starts at
  its beginning, and offsets of the two incarnations are never confused.
- `~epochs` and `~lineages`: the log below each position, by the commit: the leader epochs with their first offsets, and
  the lineage if the commit went back. An election can remove records that were read, and the log may be longer at the
  next look. Earlier releases wrote a number in place of the list: the leader epoch of the offset before the position.
- `~began`: the start of each partition that the offset before did not have. Spark stores the ends of batches only. It
  calls a restarted source again for the start of its first batch, and `latest` has moved meanwhile. So the first offset
  of a query contains its start, and a batch that runs again reads the same rows.

Equal offsets have equal text: Spark compares their text to find new data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ts_common.archive.commit import Lineage
from ts_common.archive.epoch_history import NO_EPOCH, EpochHistory
from ts_common.archive.read_log import ReadLog
from ts_common.archive.stored_object import partition_number, topic_name
from ts_common.json_objects import MAX_INT32, epoch_pair, rows, whole_number
from ts_common.model import TopicPartition

_TOPIC_IDS: Final = "~topicIds"
_EPOCHS: Final = "~epochs"
_LINEAGES: Final = "~lineages"
_BEGAN: Final = "~began"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of a stream.

    Attributes:
        positions: the next offset of each partition.
        topic_ids: of the topics whose id is known.
        logs: the log below each position, if known.
        began: the start of each partition that the offset before this one did not have.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    logs: Mapping[TopicPartition, ReadLog] = field(default_factory=dict)
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
        if self.logs:
            encoded[_EPOCHS] = _by_topic({at: _encoded_epochs(log) for at, log in self.logs.items()})
        if lineages := {at: log.lineage.encode() for at, log in self.logs.items() if log.lineage is not None}:
            encoded[_LINEAGES] = _by_topic(lineages)
        if self.began:
            encoded[_BEGAN] = _by_topic(self.began)
        return encoded


def decode_offset(encoded: Mapping[str, Any]) -> StreamOffset:
    """Return an offset from JSON values; positions are enough.

    Raises:
        ValueError: the values are not an offset of a stream.
    """
    try:
        others = {_TOPIC_IDS, _EPOCHS, _LINEAGES, _BEGAN}
        topics = {name: value for name, value in encoded.items() if name not in others}
        positions = _each(topics, whole_number)
        lineages = _each(encoded.get(_LINEAGES, {}), Lineage.decode)
        epochs = _each(encoded.get(_EPOCHS, {}), _epochs)
        return StreamOffset(
            positions,
            {topic_name(name): str(topic_id) for name, topic_id in encoded.get(_TOPIC_IDS, {}).items()},
            {
                partition: _log(known, positions[partition], lineages.get(partition))
                for partition, known in epochs.items()
                if known != NO_EPOCH and positions.get(partition)
            },
            _each(encoded.get(_BEGAN, {}), whole_number),
        )
    except (TypeError, AttributeError) as error:
        raise ValueError(error) from error


def _each(by_topic: Mapping[str, Mapping[str, Any]], parse: Callable[[Any], _Value]) -> dict[TopicPartition, _Value]:
    return {
        TopicPartition(topic_name(topic), partition_number(number)): parse(value)
        for topic, values in by_topic.items()
        for number, value in values.items()
    }


def _epochs(value: object) -> EpochHistory | int:
    """Return the list of leader epochs, or the one that earlier releases wrote."""
    if isinstance(value, list):
        return EpochHistory(tuple(epoch_pair(each) for each in rows(value)))
    return whole_number(value, NO_EPOCH, MAX_INT32)


def _log(known: EpochHistory | int, position: int, lineage: Lineage | None) -> ReadLog:
    if isinstance(known, EpochHistory):
        return ReadLog(known, lineage)
    return ReadLog(EpochHistory(((known, position - 1),)), is_lineage_known=False)


def _encoded_epochs(log: ReadLog) -> list[list[int]] | int:
    """Return the list; of a position of an earlier release its one epoch, so that the lineage stays unknown."""
    if log.is_lineage_known:
        return [list(each) for each in log.epochs]
    return log.epochs.pairs[-1][0] if log.epochs.pairs else NO_EPOCH


def _by_topic(values: Mapping[TopicPartition, _Value]) -> dict[str, dict[str, _Value]]:
    by_topic: dict[str, dict[str, _Value]] = {}
    for partition, value in sorted(values.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = value
    return by_topic
