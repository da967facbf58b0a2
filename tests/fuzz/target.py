"""What a target is: it draws inputs, and runs one."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fuzz.mutate import mutate_bytes

CORPUS = Path(__file__).parent / "corpus"
_MUTATED_SHARE = 0.3
_LARGEST_SEED = 20_000


class Mismatch(AssertionError):
    """A result that its contract does not allow."""


class Target(ABC):
    """One thing that reads bytes of others.

    Args:
        name: of the target, and of its directory in the corpus.

    Attributes:
        at_once: how many inputs are drawn before they are run.
    """

    at_once = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self._seeds: list[bytes] = []

    def open(self) -> None:  # noqa: B027 - not every target needs anything
        """Start what inputs need; called once in a process, before the memory is measured."""

    @abstractmethod
    def draw(self, chance: random.Random) -> bytes:
        """An input."""

    def run_ahead(self, inputs: Sequence[bytes]) -> None:  # noqa: B027 - not every target needs it
        """Do for all of them what is cheaper at once than for each."""

    def counts(self) -> Mapping[str, int]:
        """What the target counted so far, by its description."""
        return {}

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Run one input. The same bytes do the same each time. Any exception is a failure."""

    def drawn(self, chance: random.Random) -> bytes:
        """An input of `draw`, or one of the corpus with other bytes."""
        if not self._seeds:
            self._seeds = [data for path in corpus_of(self.name) if len(data := path.read_bytes()) <= _LARGEST_SEED]
        if self._seeds and chance.random() < _MUTATED_SHARE:
            return mutate_bytes(chance, chance.choice(self._seeds))
        return self.draw(chance)


def corpus_of(name: str) -> list[Path]:
    """The corpus of a target, by name."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())


def split_input(data: bytes) -> tuple[list[str], bytes]:
    """The words of an input's first line, and what follows it."""
    line, _, rest = data.partition(b"\n")
    return line.decode("latin-1").split(" "), rest
