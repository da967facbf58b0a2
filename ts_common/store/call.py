"""What is asked of a store: the words that every driver's errors are told with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ts_common.errors import OutcomeUnknown, StoreUnavailable, TieredStorageError

# What reading an answer raises that is not what it should be.
UNFORESEEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_SHOWN = 500


def strong(etag: str) -> str:
    """An ETag without the mark of a weak one, `W/`.

    A gateway that could compress (nginx with gzip) marks the ETag of a GET as weak, and leaves that of a PUT alone. The
    store then refuses each condition on what was read. The drivers ask for bytes as they are, and S3's and Azure's
    ETags change with each content, so the mark carries nothing.
    """
    return etag.removeprefix("W/")


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked of the store, for the translator and its messages.

    Attributes:
        operation: its name in the store's API.
        target: the object's URL, as in `s3://bucket/key`.
        writes: it changes something that a repetition could change again, so that a lost answer matters.
    """

    operation: str
    target: str
    writes: bool = False

    @property
    def no_answer(self) -> type[TieredStorageError]:
        """What it is when the request may have arrived and its answer did not."""
        return OutcomeUnknown if self.writes else StoreUnavailable

    def refuse_page(self, content_type: str | None) -> None:
        """Refuse an answer that says success and carries a web page: a balancer's or a proxy's, not the store's.

        A page that a web server serves from a file has an ETag, a date and a length, as an object has. No object of
        ours is HTML, so this is for answers whose content type is the object's, or whose service never says HTML. (An
        answer to S3's PutObject has no content: what servers say of its type means nothing, and a page has no ETag.)

        Raises:
            OutcomeUnknown, StoreUnavailable: as `no_answer`.
        """
        if content_type is not None and content_type.partition(";")[0].strip().lower() == "text/html":
            raise self.no_answer(
                f"{self.operation} {self.target}: the answer is a web page ({content_type}), not the store's"
            )

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around the reading of an answer: what lacks what the store always says comes from something in between.

        Raises:
            OutcomeUnknown, StoreUnavailable: as `no_answer`.
        """
        try:
            yield
        except UNFORESEEN as error:
            raise self.no_answer(
                f"{self.operation} {self.target}: no answer that the store gives: {_shown(error)}"
            ) from error


def _shown(error: Exception) -> str:
    """An error with what it says of the answer, which may be long."""
    said = repr(error)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
