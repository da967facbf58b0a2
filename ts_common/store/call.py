"""One request to a store, as the messages of errors describe it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ts_common.errors import OutcomeUnknown, StoreUnavailable, TieredStorageError

# Exceptions of code that reads an unexpected response.
UNFORESEEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_SHOWN = 500


def strong(etag: str) -> str:
    """Return an ETag without the prefix of a weak one, `W/`.

    A gateway that could compress (nginx with gzip) marks the ETag of a GET as weak, but not that of a PUT. The store
    would then reject every condition with an ETag that was read. The drivers request uncompressed bytes, and ETags of
    S3 and Azure change with the content, so the prefix has no meaning.
    """
    return etag.removeprefix("W/")


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a store, for the translators of errors and their messages.

    Attributes:
        operation: its name in the store's API.
        target: the object's URL, such as `s3://bucket/key`.
        writes: whether a retry could have another effect than one request, so that a lost response matters.
        copies: whether it writes a copy, so that "not found" means the source.
    """

    operation: str
    target: str
    writes: bool = False
    copies: bool = False

    @property
    def no_answer(self) -> type[TieredStorageError]:
        """The error if the request may have arrived, but its response did not."""
        return OutcomeUnknown if self.writes else StoreUnavailable

    def refuse_page(self, content_type: str | None) -> None:
        """Reject a response with status success whose body is a web page, of a load balancer or a proxy.

        A web page served from a file has an ETag, a date and a length, like an object. The agent stores no HTML. So
        this check is for responses with the content type of an object, and for services that never send HTML. A
        response to S3's PutObject has no content, so its type has a meaning only for a page in its place.

        Raises:
            OutcomeUnknown, StoreUnavailable: as `no_answer`.
        """
        if content_type is not None and content_type.partition(";")[0].strip().lower() == "text/html":
            raise self.no_answer(
                f"{self.operation} {self.target}: the response is a web page ({content_type}), not the store's; check "
                "proxies and load balancers in front of the store"
            )

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Translate the errors of code that reads a response: another server may have sent it.

        Raises:
            OutcomeUnknown, StoreUnavailable: as `no_answer`.
        """
        try:
            yield
        except UNFORESEEN as error:
            raise self.no_answer(
                f"{self.operation} {self.target}: not a response of the store: {_shown(error)}"
            ) from error


def _shown(error: Exception) -> str:
    """Return an error's text, shortened: it may contain a long response."""
    text = repr(error)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
