"""The names of plain files: from the number of the commit, or by a template of the tables' file.

A template names directories and the file, without its suffix::

    {topic}/{partition}/{generation}_{kafka_partition}_{first_offset}

`{partition}` is the partition key, a directory for each term, as `timestamp_day=2026-11-25`. The offset has 20 digits,
as in the names that Secor gives its files. A file with such a name has rows of one Kafka partition only.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ts_tables.files.partitioning import Key, Term

MOST_BYTES: Final = 900  # of a path; S3 accepts 1,024 with the prefix of the location
_MOST_OF_VALUE: Final = 180  # characters of a partition value in a path; directories accept 255 bytes of a name
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_.=+-]*")
_OF_KEY: Final = "partition"
_OF_TOPIC: Final = ("topic", "generation")  # what a directory can have too
_OF_FILE: Final = ("kafka_partition", "first_offset")
_FIELDS: Final = (*_OF_TOPIC, _OF_KEY, *_OF_FILE)


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names files.

    Attributes:
        terms: of the partition key.
        template: of the names; None for those of a commit.
    """

    terms: tuple[Term, ...]
    suffix: str
    template: str | None = None
    generation: int = 1

    def path(
        self, key: Key, topic: str, partition: int, first: int, commit: str, used: Collection[str] = frozenset()
    ) -> str:
        """Return the path of a file.

        Args:
            key: partition key of its rows.
            partition: Kafka partition of the rows.
            first: the least offset of the rows.
            commit: the name without a template: unique in the table.
            used: paths of others.
        """
        if self.template is None:
            return f"{self._key_directories(key)}{commit}{self.suffix}"
        of_file = {"kafka_partition": str(partition), "first_offset": f"{first:020d}"}
        name = self._directories(key, topic) + self._filled(self.template.rpartition("/")[2], topic, of_file)
        number, path = 1, f"{name}{self.suffix}"
        while path in used:  # an election, or a record that has rows in two files
            number += 1
            path = f"{name}_{number}{self.suffix}"
        return path

    def _directories(self, key: Key, topic: str) -> str:
        directories, sign, _ = (self.template or "").rpartition("/")
        of_key = {_OF_KEY: self._key_directories(key).rstrip("/")}
        return self._filled(directories + sign, topic, of_key)

    def _key_directories(self, key: Key) -> str:
        return "".join(
            f"{term.name}={_in_path(term.shown(value))}/" for term, value in zip(self.terms, key, strict=True)
        )

    def _filled(self, text: str, topic: str, further: dict[str, str]) -> str:
        # No part of a path may begin with _ or a dot: those are hidden, or the table's own.
        visible = f"%{ord(topic[0]):X}{topic[1:]}" if topic[:1] in {"_", "."} else topic
        values = {"topic": visible, "generation": str(self.generation), **further}
        return _FIELD.sub(lambda match: values[match[1]], text)


def without_key(template: str) -> str:
    """Return a template for a table without a partition key.

    Args:
        template: as `check_template` accepts it.
    """
    return "/".join(part for part in template.split("/") if part != f"{{{_OF_KEY}}}")


def _in_path(value: str) -> str:
    """Return a partition value as a part of a path; a long one ends in a digest of the whole."""
    quoted = quote(value, safe="")
    if len(quoted) <= _MOST_OF_VALUE:
        return quoted
    begin = re.sub(r"%[0-9A-F]?$", "", quoted[:_MOST_OF_VALUE])
    return f"{begin}~{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def check_template(template: str, has_key: bool) -> None:
    """Check a template.

    Args:
        has_key: whether the table has a partition key.

    Raises:
        ValueError: it has another form; with what is accepted.
    """
    fields = _FIELD.findall(template)
    if unknown := next((each for each in fields if each not in _FIELDS), None):
        raise ValueError(f"{{{unknown}}} is unknown; accepted are {', '.join(f'{{{each}}}' for each in _FIELDS)}")
    *directories, name = template.split("/")
    if not all(map(_is_part, (*directories, name))):
        raise ValueError("a part is of letters, digits, _ . = + - and fields, and does not begin with _ or a dot")
    if fields.count(_OF_KEY) != int(has_key) or (has_key and f"{{{_OF_KEY}}}" not in directories):
        raise ValueError("{partition} is one of the directories if the table has partition_by, and else absent")
    if not all(fields.count(each) == 1 and f"{{{each}}}" in name for each in _OF_FILE):
        raise ValueError("the last part has {kafka_partition} and {first_offset}, and no other part has them")
    if "}{" in template:
        raise ValueError("two fields adjoin: put _ between them")


def _is_part(part: str) -> bool:
    """Return whether a part of a path is accepted: no name that readers or this program treat as hidden."""
    return bool(part) and not part.startswith(("_", ".")) and _LITERAL.fullmatch(_FIELD.sub("", part)) is not None
