"""The lineage of a partition in the archive: the last time that its commit went back (protocol rule 5).

An election can lose committed records. The commit then goes back, and offsets get other records. From then on the
commit and `log.start` both have a lineage, so that no reader combines objects from before and after the loss. If a
commit never went back, both objects have no lineage and the bytes of format version 1.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from ts_common.archive.stored_object import Kind
from ts_common.json_objects import MAX_INT32, shown, whole_number

# Format version of a commit and of a `log.start` with a lineage.
LINEAGE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Lineage:
    """One lineage.

    Attributes:
        epoch: leader epoch of the agent whose commit went back.
        begin: the next offset that the commit went back to; from this offset on, records belong to this lineage.
        highest: no `log.start` of an earlier lineage is greater. Below it, a deletion of the earlier lineage can still
            be in progress, so agents use no plain segment names there.
    """

    epoch: int
    begin: int
    highest: int

    def encode(self) -> list[int]:
        """Return the lineage as JSON has it: `[epoch, begin, highest]`."""
        return [self.epoch, self.begin, self.highest]

    @classmethod
    def decode(cls, fields: object) -> "Lineage":
        """Parse the JSON of a lineage.

        Raises:
            ValueError: it is not a list of three whole numbers of at least 0.
        """
        match fields:
            case [epoch, begin, highest]:
                return cls(whole_number(epoch, 0, MAX_INT32), whole_number(begin), whole_number(highest))
        raise ValueError(f"lineage {shown(fields)} is not a list of three numbers")


LINEAGE: Final = Kind(Lineage.decode, Lineage.encode)
StoredLineage = Annotated[Lineage, LINEAGE]


def epoch_of(lineage: Lineage | None) -> int:
    """Return the leader epoch that orders lineages: a lineage of a lower epoch is older. -1 for no lineage."""
    return -1 if lineage is None else lineage.epoch
