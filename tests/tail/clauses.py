"""The clauses of the tail rules and of reading rule 11 that the model can drop."""

from typing import Final

from tests.lineage.clauses import Described


class TailClause(Described):
    """A clause; its docstring begins with the rule, and its value is a word for `python -m tests.tail --without`."""

    OWN = (
        "own",
        """Tail rule 1: an agent ships entries only after this leadership's own commit.
        Without it readers never see them, because no commit names the leadership.""",
    )
    BOUND = (
        "bound",
        """Tail rule 1: each batch of an entry ends at or below the high watermark.
        Without it readers return a batch that an election can lose.""",
    )
    EPOCHS = (
        "epochs",
        """Tail rule 1: no batch of an entry has an epoch above the leadership's.
        Without it, together with FILE and ENDED, readers return what the next leader has not acknowledged.""",
    )
    FILE = (
        "file",
        """Tail rule 1: after reading, the log's epoch file still ends with the leadership's epoch.
        Without it, together with EPOCHS and ENDED, a log that was truncated and replaced meanwhile is shown.""",
    )
    STABLE = (
        "stable",
        """Tail rule 1: the last stable offset comes from what was read, never from a second answer.
        Without it `read_committed` returns the records of an open transaction.""",
    )
    CONTINUES = (
        "continues",
        """Tail rule 2: an agent continues where the chain of its own commit ends.
        Without it an entry begins where the leadership does, and a hole hides it.""",
    )
    REREAD = (
        "reread",
        """Tail rule 2: after an unknown answer the agent reads the store again.
        Without it the agent continues after an entry that was never stored.""",
    )
    FREE = (
        "free",
        """Tail rule 3: a pack is put only where no pack is.
        Without it two processes of one agent replace each other's packs.""",
    )
    ORDER = (
        "order",
        """Tail rule 3: pack n+1 is put after pack n.
        Without it the newest pack can lead to one that is never stored.""",
    )
    FRESH = (
        "fresh",
        """Tail rule 3: a put counts only if its answer came within half a grace of the last look at the log.
        Without it a suspended process puts a pack under a number that deletion freed, and no reader finds it.""",
    )
    NAMED = (
        "named",
        """Tail rule 4: entries count only if the commit names their leadership.
        Without it the late entry of a former leader is shown, and then no longer.""",
    )
    AHEAD = (
        "ahead",
        """Tail rule 4: the commit has the leader's epochs from the next offset on.
        Without it readers return a dead tail.""",
    )
    CARRY = (
        "carry",
        """Tail rule 4: a new leadership carries on the former leaderships that it finds named.
        Without it the view goes back although nothing was lost.""",
    )
    LISTED = (
        "listed",
        """Tail rule 4: if the list begins above the next offset, only former leaderships of the list are named.
        Without it, together with KNOWN, readers return records that an election lost.""",
    )
    REACH = (
        "reach",
        """Tail rule 4: a former leadership is dropped once own entries reach to where this leadership begins.
        Dropped earlier, the late pack of a former leader is shown, and then no longer.""",
    )
    GRACE = (
        "grace",
        """Tail rule 5: a merge drops an entry only by a commit that was read a grace ago.
        Without it a reader that holds an older commit finds the end below what it has returned.""",
    )
    NOT_LED = (
        "notled",
        """Tail rule 5: a merge keeps the entries of partitions that its broker no longer leads.
        Without it the view goes back: the new leader's commit names them.""",
    )
    KEPT = (
        "kept",
        """Tail rule 5: an object is deleted only when the newest pack no longer leads to it.
        Without it the newest pack leads to an object that does not exist.""",
    )
    DELETED_LATER = (
        "later",
        """Tail rule 5: and a grace later.
        Without it a process that is late puts a pack under a number that was freed just now: readers of the index that
        led to the former object read other batches.""",
    )
    COMMIT_FIRST = (
        "first-commit",
        """Reading rule 11, 1: the commit is read before the packs.
        Without it a reader joins earlier packs to a later commit, and the end goes back.""",
    )
    CHAIN = (
        "chain",
        """Reading rule 11, 2: the view ends at the first offset that no live part of an entry has.
        Without it readers leave out records.""",
    )
    LIVE = (
        "live",
        """Reading rule 11, 2: the epochs end the live part of an entry (reading rule 2).
        Without it readers return records that an election lost.""",
    )
    ENDED = (
        "ended",
        """Reading rule 11, 2: an entry ends where an epoch above that of its leadership begins.
        Without it, together with EPOCHS and FILE, readers return what the next leader has not acknowledged.""",
    )
    KNOWN = (
        "known",
        """Reading rule 11, 2: below the first epoch of the list only entries of the commit's own leadership count.
        Without it, together with LISTED, readers return records that an election lost.""",
    )
    FROM_NEXT = (
        "next",
        """Reading rule 11, 3: below the next offset only segments count, above it only entries.
        Without it readers return segments of another log above the next offset.""",
    )
    WHOLE = (
        "whole",
        """Reading rule 11, 4: an entry of which only a part is live gives no last stable offset.
        Without it `read_committed` returns the records of a transaction that only a dead marker ends.""",
    )
    ABORTED = (
        "aborted",
        """Reading rule 11, 4: the transactions that entries name are hidden.
        Without it `read_committed` returns aborted records.""",
    )
    BEGINNING = (
        "beginning",
        """Reading rule 11, 4: if an entry does not name where a transaction began, readers search the view.
        Without it `read_committed` returns aborted records that compaction removed from the leader's log.""",
    )
    POSITION = (
        "position",
        """Table rule 1: a position has the epochs of what was read, not only the last one.
        Without it a stream goes back too far, or not far enough.""",
    )
    SETTLED = (
        "settled",
        """Reading rule 1: a reader combines commit and `log.start` of lineages that fit.
        Without it readers find a hole below the next offset.""",
    )


ALL_OF_TAIL: Final = frozenset(TailClause)
