"""The names of the generations of an Iceberg table, and the renames that switch between them.

The generation in use has the table's name, each other one `<name>_g<number>`. A table's state has its number. Two
renames switch, and a reader between them finds no table of this name. A run that began before commits to nothing:
each commit requires the table's UUID and our tag.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from ts_common.errors import OperatorError
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.iceberg.head import last_known
from ts_tables.iceberg.translated_errors import calling


class TableNames:
    """The tables of a catalog by name.

    Args:
        properties: of it, as pyiceberg's configuration has them.

    All methods raise AccessDenied, OperatorError, StoreUnavailable from the catalog.
    """

    def __init__(self, catalog: str, properties: Mapping[str, str]) -> None:
        self._catalog: Catalog = open_catalog(catalog, properties)

    def generation(self, name: str) -> int | None:
        """Return the generation of a table; None if there is no table of this name.

        Raises:
            OperatorError: it is no table of this program.
        """
        with calling(f"table {name}"):
            try:
                table = self._catalog.load_table(tuple(name.split(".")))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            found = last_known(table)
        if found is None:
            raise OperatorError(f"table {name} has no commit of this program")
        return found.state.generation

    def rename(self, name: str, other: str) -> None:
        """Give a table another name."""
        with calling(f"table {name}"):
            self._catalog.rename_table(tuple(name.split(".")), tuple(other.split(".")))

    def switch(self, names: Sequence[str], number: int) -> None:
        """Give tables the names of their generation; a switch that ended in between is completed.

        Args:
            names: of the table and of that of its refused records, in the order of the switch.
            number: of the generation that gets the names.

        Raises:
            OperatorError: there is no table of this generation.
        """
        for name in names:
            current = self.generation(name)
            if current == number:
                continue
            is_there = self.generation(other := f"{name}_g{number}") == number
            if not is_there and name == names[-1]:
                raise OperatorError(f"table {other} of generation {number} does not exist: create and run it first")
            if current is not None:
                self.rename(name, f"{name}_g{current}")
            if is_there:  # a raw table has no refused records
                self.rename(other, name)
