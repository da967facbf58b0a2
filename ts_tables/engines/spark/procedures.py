"""Iceberg's own procedures on Spark: `rewrite_data_files`, `rewrite_manifests`, `expire_snapshots`.

Spark runs them since version 4.0 without Iceberg's extensions, and by Spark Connect too.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from ts_common.errors import OperatorError, StoreUnavailable
from ts_tables.compaction import Expired, Rewritten
from ts_tables.engines.spark.catalogs import artifacts, spark_settings
from ts_tables.engines.spark.session import answering, isolated

_AGAIN: Final = "nothing is lost; run it again"


class SparkProcedures:
    """Maintains one table by a Spark session.

    Args:
        spark: a session; its own settings stay as they are.
        catalog: name of the catalog.
        properties: of the catalog, as pyiceberg's configuration has them.
        settings: of Spark; those of the catalog override what is found by its properties.
        table: namespace and name.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        properties: Mapping[str, str],
        settings: Mapping[str, str],
        table: Sequence[str],
    ) -> None:
        self._spark = isolated(spark)
        self._catalog = catalog
        self._properties = properties
        self._table = table
        self._label = f"table {'.'.join(table)}"
        prefix = f"spark.sql.catalog.{catalog}"
        given = {key: value for key, value in settings.items() if key == prefix or key.startswith(f"{prefix}.")}
        for key, value in (spark_settings(catalog, properties) | given).items():
            self._spark.conf.set(key, value)

    def snapshot_of(self, ref: str) -> int | None:
        """Return the snapshot of a branch or a tag, as Spark sees the table; None if it does not exist.

        Raises:
            OperatorError: Spark cannot read the table.
        """
        name = ".".join(_quoted(part) for part in (self._catalog, *self._table, "refs"))
        try:
            with answering(self._label, ""):
                rows = self._spark.sql(f"SELECT snapshot_id FROM {name} WHERE name = '{ref}'").collect()  # noqa: S608
        except StoreUnavailable as error:
            needed = ",".join(artifacts(self._properties, pyspark.__version__))
            raise OperatorError(
                f"{str(error).removesuffix('; ')}. The session needs the jars {needed}, as `spark.jars.packages` below "
                f"`spark` of the file; `spark.sql.catalog.{self._catalog}.*` there changes the catalog's settings"
            ) from error
        return None if not rows else int(rows[0]["snapshot_id"])

    def rewrite(self, *, is_sorted: bool) -> Rewritten:
        """Rewrite small files, then manifests; return what was done.

        Args:
            is_sorted: whether the rows of new files are sorted in the table's order.

        Raises:
            StoreUnavailable: Spark could not do it; the table is as it was, or as after an earlier step.
        """
        data = self._call("rewrite_data_files", f"strategy => '{'sort' if is_sorted else 'binpack'}'")
        manifests = self._call("rewrite_manifests")
        return Rewritten(
            data["rewritten_data_files_count"],
            data["added_data_files_count"],
            data["rewritten_bytes_count"],
            manifests["rewritten_manifests_count"],
        )

    def expire(self, before: float, retain_last: int) -> Expired:
        """Expire snapshots, and delete files that no snapshot has.

        Args:
            before: Unix time in seconds; later snapshots stay.
            retain_last: so many snapshots stay, however old they are.

        Raises:
            StoreUnavailable: Spark could not do it; some snapshots or files may be left.
        """
        time = datetime.fromtimestamp(before, UTC).isoformat(sep=" ", timespec="milliseconds")
        found = self._call("expire_snapshots", f"older_than => TIMESTAMP '{time}'", f"retain_last => {retain_last:d}")
        return Expired(found["deleted_data_files_count"], sum(found.asDict().values()))

    def _call(self, procedure: str, *arguments: str) -> Any:
        name = ".".join(_quoted(part).replace("'", "''") for part in self._table)
        given = ", ".join((f"table => '{name}'", *arguments))
        with answering(f"{self._label}: {procedure}", _AGAIN):
            (row,) = self._spark.sql(f"CALL {_quoted(self._catalog)}.system.{procedure}({given})").collect()
        return row


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
