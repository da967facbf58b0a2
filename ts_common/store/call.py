"""What is asked of a store: the words that every driver's errors are told with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ts_common.errors import OutcomeUnknown, StoreUnavailable, TieredStorageError


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

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around the reading of an answer: what lacks what the store always says comes from something in between.

        Raises:
            OutcomeUnknown, StoreUnavailable: as `no_answer`.
        """
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self.no_answer(
                f"{self.operation} {self.target}: no answer that the store gives: {error!r}"
            ) from error
