"""The clauses of the erase rules that the model can drop, each with the property that then breaks."""

from typing import Final

from tests.lineage.clauses import Described


class EraseRule(Described):
    """A clause of the erase rules; each member's docstring names what breaks without it."""

    BATCH_EPOCH = (
        "erase-batch-epoch",
        """Erase rule 1: an entry has the epoch of the record's batch, and hides unless the batch has a higher one.
        Without it (E1): the entry has the commit's epoch. Two copies have a record of the person at one offset, and a
        later commit gives that offset the other one's epoch.""",
    )
    HIGHER_SHOWS = (
        "erase-higher",
        """Erase rule 1: a batch of a higher epoch than the entry's shows.
        Without it (E4): after an election that lost the record, another one at its offset is hidden.""",
    )
    DEAD_TAILS = (
        "erase-dead-tails",
        """Erase rule 1: the search reads dead tails too.
        Without it (E1): the broker of the discarded log leads again, and shows the record.""",
    )
    BELOW_START = (
        "erase-below-start",
        """Erase rule 1: the search reads what is below the start too.
        Without it (E1): a hold shows the record again.""",
    )
    EPOCH_STAYS = (
        "erase-greatest",
        """Erase rule 1: of two epochs of one offset the greater stays.
        Without it (E2): a second request lists a dead record at the same offset, and the first one shows.""",
    )
    CONTAINS = (
        "erase-contains",
        """Erase rule 1: list n+1 contains list n.
        Without it (E2): the next request shows the records of the one before.""",
    )
    STOPS = (
        "erase-stops",
        """Erase rule 2: an eraser stops if `log.start` names a greater list than the greatest that it finds.
        Without it (E1): after a list was lost, the next one gets its number, and readers use it.""",
    )
    LOG_START_READ_FIRST = (
        "erase-read-first",
        """Erase rule 2: an eraser reads `log.start` before it lists `erased/`.
        Without it (E3): another eraser writes both in between, and the eraser stops at a list that seems lost.""",
    )
    WHERE_NONE = (
        "erase-where-none",
        """Erase rule 2: a list is put where none exists.
        Without it (E2): an eraser that is late replaces the list of another request.""",
    )
    LISTS_AGAIN = (
        "erase-lists-again",
        """Erase rule 2: after the put an eraser lists again.
        Without it (E2): it is late, and puts a number that was used, and removed, while it waited.""",
    )
    TAKES_IF_THERE = (
        "erase-takes",
        """Erase rule 2: an eraser takes the number of a greater list only if its offsets are there.
        Without it (E2): the same late put, and the greater list lacks its offsets.""",
    )
    LIST_FIRST = (
        "erase-list-first",
        """Erase rule 2: the list is put before `log.start` names it.
        Without it (E3): a killed eraser leaves a `log.start` that names no list, and every reader fails.""",
    )
    ON_ETAG = (
        "erase-etag",
        """Erase rule 2: `log.start` is written on the ETag that was read.
        Without it (S5): a late eraser undoes the lineage of a leader.""",
    )
    NAMES_THE_LIST = (
        "erase-names",
        """Erase rule 2: a request ends only once `log.start` names its list.
        Without it (E1): the list is lost, and readers show the record.""",
    )
    ERASER_CARRIES = (
        "erase-carries",
        """Erase rule 3: the eraser carries lineage, floor and `since`.
        Without it (S5): the lineage of `log.start` falls.""",
    )
    AGENT_CARRIES = (
        "erase-agent",
        """Erase rule 3: an agent that begins a lineage carries `erased`.
        Without it (E1): an older release reads `log.start`, and shows the record.""",
    )
    COLLECTOR_CARRIES = (
        "erase-collector",
        """Erase rule 3: the collector carries `erased`.
        Without it (E1): an older release reads `log.start`, and shows the record.""",
    )
    LISTING_COUNTS = (
        "erase-listing",
        """Erase rule 3: a lost `log.start` gets the number of the greatest list.
        Without it (E1): its copy is older than the list, and an older release shows the record.""",
    )
    COPY_COUNTS = (
        "erase-copy",
        """Erase rule 3: a lost `log.start` gets the number in its copy, if that is greater.
        Without it (E1): the list is lost too, and readers show the record.""",
    )
    COPY_CARRIES = (
        "erase-copy-carries",
        """Erase rule 3: the collector writes `erased` to the copy.
        Without it (E1): `log.start` and the list are lost, and readers show the record.""",
    )
    VERSION_3 = (
        "erase-version",
        """Erase rule 4: a `log.start` with `erased` has a version that older releases refuse.
        Without it (E1): they show the record.""",
    )
    GREATEST = (
        "erase-greatest-list",
        """Erase rule 4: a reader uses the greatest list of its listing, not the one that `log.start` names.
        Without it (E3): later erasers were killed before they wrote `log.start`, the list that it names was removed,
        and every reader fails.""",
    )
    NAMED_EXISTS = (
        "erase-named",
        """Erase rule 4: a reader fails if `log.start` names a greater list than it finds.
        Without it (E1): the list is lost, and readers show the record.""",
    )
    READS_AGAIN = (
        "erase-again",
        """Erase rule 4: a reader lists again if `log.start` names a greater list than it found.
        Without it (E3): an eraser writes both between listing and `log.start`, and the reader fails.""",
    )
    LISTED_ETAG = (
        "erase-listed-etag",
        """Erase rule 4: a reader gets the list with the ETag of its listing.
        Without it (E1): the list was removed since, and a late eraser has put another one under its number.""",
    )


ALL_OF_ERASE: Final = frozenset(EraseRule)
