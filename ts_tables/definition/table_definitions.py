"""The definition of a table, and of each of its generations."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError, model_validator

from ts_tables.definition.table_checks import check_table
from ts_tables.definition.table_fields import TableFields

_OF_GENERATION: Final = (
    "parser",
    "mode",
    "key",
    "include",
    "buckets",
    "partition_by",
    "sort_by",
    "target_size",
    "compression",
    "rate",
)


class TableDefinition(TableFields):
    """One table."""

    @model_validator(mode="after")
    def _is_whole(self) -> "TableDefinition":
        check_table(self)
        for number in self.generations:
            self.of_generation(number)
        return self

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations that it names or has: of plain files also that of the refused records, of each generation."""
        if self.location is None:
            return ()
        if self.format == "iceberg":
            return (self.location,)
        own = self.location.rstrip("/")
        refused = () if self.parser is None else (self.quarantine or f"{own}_quarantine",)
        others = (each for number in self.generations for each in self.of_generation(number).locations)
        return (own, *refused, *others)

    def of_generation(self, number: int) -> "TableDefinition":
        """Return the definition of a generation.

        Raises:
            ValueError: the table has no such generation, or it is wrong.
        """
        if number == self.generation:
            return self
        given = self.generations.get(number)
        if given is None:
            numbers = sorted({self.generation, *self.generations})
            raise ValueError(f"generation {number}: the table has {', '.join(map(str, numbers))}")
        label = f"generations.{number}"
        if number < 1 or (unknown := next((key for key in given if key not in _OF_GENERATION), None)) is not None:
            problem = "a number from 1 on is expected" if number < 1 else f"{unknown}: it is not of a generation"
            raise ValueError(f"{label}: {problem}; {', '.join(_OF_GENERATION)} are")
        try:
            return TableDefinition.model_validate({**self._shared_with(number, given), **given, "generation": number})
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": ") for each in error.errors()]
            raise ValueError(f"{label}: {'; '.join(problems)}") from error

    def _shared_with(self, number: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a generation has of this definition; plain files have other locations."""
        own = {name: getattr(self, name) for name in self.model_fields_set - {"generations", "generation", "location"}}
        if self.format != "iceberg":
            own["location"] = f"{(self.location or '').rstrip('/')}_g{number}"
            if self.quarantine is not None:
                own["quarantine"] = f"{self.quarantine.rstrip('/')}_g{number}"
        includes_key = "key" in given.get("include", self.include)
        if given.get("mode") not in {None, self.mode} and "key" not in given and not includes_key:
            own.pop("key", None)
        return own
