"""The lineage of an archive's partition: the last time that its commit went back (protocol rule 5).

An election can lose records that were committed. The commit then goes back, and offsets get other records. From then on
the commit and `log.start` both bear a lineage, which tells the two lives of those offsets apart: whoever holds one
object of a lineage never joins it to the other object of another lineage. An archive whose commit never went back has
no lineage, and its objects have the bytes of format version 1.
"""

from dataclasses import dataclass

from ts_common.json_objects import MAX_INT32, shown, whole_number

# Of the commit and of `log.start`, where they bear a lineage.
LINEAGE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Lineage:
    """One lineage.

    Attributes:
        epoch: leader epoch of the agent that took the commit back.
        begin: the next offset that the commit went back to; from here on offsets have the records of this lineage.
        highest: no `log.start` of an earlier lineage is greater. Below it a deletion of the earlier lineage may still
            be under way, so agents use no plain segment names there.
    """

    epoch: int
    begin: int
    highest: int

    def encode(self) -> list[int]:
        """The lineage as it stands in JSON: `[epoch, begin, highest]`."""
        return [self.epoch, self.begin, self.highest]

    @classmethod
    def decode(cls, fields: object) -> "Lineage":
        """Read the JSON of a lineage.

        Raises:
            ValueError: it is not a list of three whole numbers from 0 on.
        """
        match fields:
            case [epoch, begin, highest]:
                return cls(whole_number(epoch, 0, MAX_INT32), whole_number(begin), whole_number(highest))
        raise ValueError(f"lineage {shown(fields)} is not a list of three numbers")


def epoch_of(lineage: Lineage | None) -> int:
    """The leader epoch that orders lineages: only one of a lower epoch is older. -1 where there is none."""
    return -1 if lineage is None else lineage.epoch
