"""How the users of a reader write its options: the arguments of the Python reader, or another side's aliases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_ARGUMENTS: Final = {
    "pattern": "topic",
    "starting_timestamps": "starting_timestamp",
    "ending_timestamps": "ending_timestamp",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """How a user writes what a message names. The defaults are those of the Python reader.

    Attributes:
        names: the aliases of options, by the argument of the Python reader; other options have the argument's name.
        has_texts: whether values are texts, as of an option of Spark, and not Python values.
        earliest: how a partition's first offset is written.
        latest: how a partition's end is written.
        by_partition: how values of partitions are written, a format of two of them.
        without_match: what returns no rows of a partition without a record at or after the starting timestamp.
        as_pattern: how a pattern of topics is written.
        stream: what follows a topic.
        instead_of_stream: what reads a topic to an end.
        despite_loss: a sentence: how to read what is left, although offsets are lost.
        despite_corruption: a sentence: how to read what is intact.
        schema_source: how to name the schemas of a codec.
        despite_undecoded: a sentence: how to read the rows whose key or value does not decode.
        exact_times: how to get the time as stored, where a column cannot hold it.
        despite_unproven: a sentence: how to read what is shipped, although a cut is not proven to be complete.
    """

    names: Mapping[str, str] = field(default_factory=_ARGUMENTS.copy, hash=False)
    has_texts: bool = False
    earliest: str = '"earliest"'
    latest: str = '"latest"'
    by_partition: str = '{{0: {0}, 1: {1}}}, with several topics {{"orders": {{0: {0}}}}}'
    without_match: str = 'starting_without_match="latest"'
    as_pattern: str = "re.compile(...)"
    stream: str = "follow()"
    instead_of_stream: str = "read the scan itself"
    despite_loss: str = "To read what is left, pass fail_on_data_loss=False"
    despite_corruption: str = 'To read what is intact, pass mode="DROPMALFORMED"'
    schema_source: str = "pass registry=... to Archive, or schema.file=... here"
    despite_undecoded: str = 'To have null and the reason instead, pass undecoded="null"'
    exact_times: str = "include_timestamp_ms=True adds the time as stored"
    despite_unproven: str = 'To read what is shipped, pass unproven="warn" to at()'

    def name(self, argument: str) -> str:
        """Return the name of an option."""
        return self.names.get(argument, argument)

    def sign(self, argument: str) -> str:
        """Return the name of an option, with the sign before its value."""
        return f"{self.name(argument)}="


PYTHON: Final = Wording()
