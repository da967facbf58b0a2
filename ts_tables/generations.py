"""The generations of a file's tables: the definition of each, and which one has the name of its table."""

from functools import cached_property
from typing import Final

from ts_common.errors import ConfigurationError, OperatorError
from ts_common.suggestions import nearest
from ts_tables.definition.file_definition import TablesFile
from ts_tables.definition.table_definitions import TableDefinition
from ts_tables.iceberg.names import TableNames

_DIGITS: Final = 10  # of the number of a generation
CATALOG: Final = "ts-uploader"  # name of the catalog for pyiceberg; of an SQL catalog, part of each row


class Generations:
    """Finds the generations of tables.

    Args:
        file: of the tables.
        source: of the file, for messages.
    """

    def __init__(self, file: TablesFile, source: str) -> None:
        self._file = file
        self._source = source

    def definition(self, name: str) -> TableDefinition:
        """Return the definition of a table: that of its generation in use, or of another one.

        Args:
            name: of the table; with `@` and a number, of a generation.

        Raises:
            ConfigurationError: the file has no such table or generation.
            AccessDenied, OperatorError, StoreUnavailable: from the catalog.
        """
        return self.found(name)[1]

    def in_use(self, name: str) -> int:
        """Return the number of the generation that has a table's name; raise as `definition`.

        Args:
            name: of the table, without a number.
        """
        definition = self._definition(name)
        if definition.format != "iceberg" or not definition.generations:
            return definition.generation
        return self._names.generation(name) or definition.generation

    def check_switched(self, name: str) -> None:
        """Check that no switch of a table's generations ended between its renames; raise as `definition`.

        Args:
            name: of the table; a number is ignored.

        Raises:
            OperatorError: one did.
        """
        base = name.partition("@")[0]
        definition = self._definition(base)
        if definition.format != "iceberg" or not definition.generations:
            return
        current = self.in_use(base)
        for each in self.names_of(base):
            found = self._names.generation(each)
            is_moved = found is None and self._names.generation(f"{each}_g{current}") is not None
            if is_moved or (found is not None and found != current):
                raise OperatorError(
                    f"a switch of table {base} did not end: `tsctl tables switch {base}` completes it, or undoes it "
                    "with the number of the former generation"
                )

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return the names of an Iceberg table, that of its refused records first.

        Args:
            name: of the table, without a number.
        """
        definition = self._definition(name)
        numbers = (definition.generation, *definition.generations)
        has_parser = any(definition.of_generation(number).parser is not None for number in numbers)
        return (*([definition.quarantine or f"{name}_quarantine"] if has_parser else []), name)

    @cached_property
    def _names(self) -> TableNames:
        return TableNames(CATALOG, self._file.catalog)

    def found(self, name: str) -> tuple[str, TableDefinition, bool]:
        """Return a table's name without a number, the definition of the generation, and whether that is in use."""
        base, sign, number = name.partition("@")
        definition, current = self._definition(base), self.in_use(base)
        wanted = current
        if sign:
            if not (number.isascii() and number.isdigit() and len(number) < _DIGITS):
                raise ConfigurationError(self._source, [f"{name}: a generation is a number, as in {base}@2"])
            wanted = int(number)
        try:
            return base, definition.of_generation(wanted), wanted == current
        except ValueError as error:
            raise ConfigurationError(self._source, [f"{name}: {error}"]) from error

    def _definition(self, name: str) -> TableDefinition:
        found = self._file.tables.get(name)
        if found is None:
            names = [*self._file.tables]
            raise ConfigurationError(
                self._source,
                [f"{name}: the file has no such table{nearest(name, names)}; it has {', '.join(names)}"],
            )
        return found

    def is_at(self, name: str, number: int) -> bool:
        """Return whether a generation has the names of an Iceberg table, also that of the refused records.

        Args:
            name: of the table, without a number.
            number: of the generation.
        """
        return all(self._names.generation(each) == number for each in self.names_of(name))

    def switch(self, name: str, number: int) -> None:
        """Give a generation the names of an Iceberg table.

        Args:
            name: of the table, without a number.
            number: of the generation.
        """
        self._names.switch(self.names_of(name), number)
