"""Files of offsets: a line for each record, as `orders-0 4711`, or the JSON lines of `tsctl find --offsets`.

::

    orders-0 4711
    orders-0 4712 5
    {"topic":"orders","partition":0,"offset":4713}
    {"topic":"orders","partition":0,"offset":4714,"epoch":5}

The number after an offset is a leader epoch: records of batches with a higher one stay.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from ts_common.errors import CorruptData
from ts_common.json_objects import MAX_INT32, MAX_INT64, parse_json
from ts_common.model import TopicPartition
from tsctl.key_files import read_lines

_OPTION: Final = "--offsets"
_FORM: Final = "TOPIC-PARTITION OFFSET [EPOCH], or a JSON line of tsctl find --offsets, is expected"
_SHOWN: Final = 5  # of wrong lines
_MOST_LINE_BYTES: Final = 4096


def read_offsets(path: Path, topic: str, problems: list[str]) -> Mapping[int, Mapping[int, int | None]]:
    """Return the offsets of a file by partition, each with its epoch; None without one.

    Args:
        topic: of all lines.
        problems: receives what is wrong.
    """
    found: dict[int, dict[int, int | None]] = {}
    wrong = list[str]()
    lines = read_lines(_OPTION, path, problems)
    for number, line in enumerate(lines, 1):
        try:
            partition, offset, epoch = _parse(line, topic)
        except ValueError as error:
            wrong.append(f"{_OPTION}={path}: line {number}: {error}")
            continue
        offsets = found.setdefault(partition, {})
        former = offsets.get(offset, -1)
        offsets[offset] = None if epoch is None or former is None else max(former, epoch)  # the one that hides more
    problems += wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        problems.append(f"{_OPTION}={path}: {len(wrong) - _SHOWN:,} more lines are wrong")
    if not lines and not problems:
        problems.append(f"{_OPTION}={path}: it has no line")
    return found


def _parse(line: str, topic: str) -> tuple[int, int, int | None]:
    """Return partition, offset and epoch of a line.

    Raises:
        ValueError: it has another form, or another topic.
    """
    numbers: list[Any]
    if line.startswith("{"):
        try:
            fields = parse_json(line.encode(), _OPTION, _MOST_LINE_BYTES)
        except CorruptData as error:
            raise ValueError(_FORM) from error
        if not isinstance(fields, dict):
            raise ValueError(_FORM)
        name, numbers = fields.get("topic"), [fields.get("partition"), fields.get("offset"), fields.get("epoch")]
        if not isinstance(name, str):
            raise ValueError(_FORM)
    else:
        place, *texts = line.split() or [""]
        parsed = TopicPartition.parse(place)
        if parsed is None or not 1 <= len(texts) <= 2 or not all(map(_is_digits, texts)):
            raise ValueError(_FORM)
        name, numbers = parsed.topic, [parsed.partition, *map(int, texts), None][:3]
    if name != topic:
        raise ValueError(f"topic {name[:249]}; {topic} is expected")
    partition, offset, epoch = numbers
    if not _is_in(partition, MAX_INT32) or not _is_in(offset, MAX_INT64 - 1):
        raise ValueError(_FORM)
    if epoch is not None and not _is_in(epoch, MAX_INT32):
        raise ValueError(_FORM)
    return partition, offset, epoch


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def _is_in(number: object, most: int) -> TypeGuard[int]:
    return type(number) is int and 0 <= number <= most
