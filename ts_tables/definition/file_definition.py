"""A tables' file as a whole: the archive, the catalog and the tables, whose places and names are apart."""

from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ts_common.config.file_values import check_store
from ts_tables.definition.places import check_catalog, is_within, overlaps
from ts_tables.definition.table_definitions import TableDefinition
from ts_tables.definition.values import PROPERTIES, check_table_name, spark_settings, texts

_STRICT: Final = ConfigDict(frozen=True, extra="forbid")


class ArchiveDefinition(BaseModel):
    """Where the archive is."""

    model_config = _STRICT

    config: Path | None = Field(None, description="The agents' <clusterId>.properties.")
    url: Annotated[str, AfterValidator(check_store)] | None = Field(
        None, description="Location of the store, as in s3://bucket/base/prefix; with cluster."
    )
    cluster: str | None = Field(None, description="The cluster's id, with url.")
    prefix_entropy_bits: int | None = Field(
        None, ge=0, description="Number of entropy bits of the keys, with url. Default: as the archive has it."
    )
    registry: str | None = Field(
        None, description="Schemas of parsers: the URL of a registry, or its archived topic, as in topic:_schemas."
    )
    storage_options: dict[str, Any] | None = Field(
        None, description="The connection to S3, with url, as in docs/reader.md. Default: the environment."
    )

    @model_validator(mode="after")
    def _is_one(self) -> "ArchiveDefinition":
        named = [name for name in ("url", "cluster", "prefix_entropy_bits", "storage_options") if getattr(self, name)]
        if self.config is not None and named:
            raise ValueError(f"config sets {', '.join(named)} too: give one of the two")
        if self.config is None and (self.url is None or self.cluster is None):
            raise ValueError("config is needed, or url and cluster")
        return self


class TablesFile(BaseModel):
    """The tables of a cluster."""

    model_config = _STRICT

    archive: ArchiveDefinition = Field(description="Where the archive is.")
    catalog: Annotated[dict[str, str], BeforeValidator(texts), AfterValidator(check_catalog), PROPERTIES] = Field(
        {}, description="The Iceberg catalog: pyiceberg's own properties, as type, uri and warehouse."
    )
    spark: Annotated[dict[str, str], BeforeValidator(spark_settings), PROPERTIES] = Field(
        {}, description="Settings of the Spark session that compacts tables, as spark.master and spark.jars.packages."
    )
    tables: dict[Annotated[str, AfterValidator(check_table_name)], TableDefinition] = Field(
        description="By namespace and name.", min_length=1
    )

    @model_validator(mode="after")
    def _is_apart(self) -> "TablesFile":
        locations = [each.rstrip("/") for table in self.tables.values() for each in table.locations]
        if twice := next((each for each in locations if locations.count(each) > 1), None):
            raise ValueError(f"two tables have the location {twice}")
        for outer, inner in permutations(locations, 2):
            if is_within(inner, outer):
                raise ValueError(f"{inner} is below {outer}, and readers of that table would find its files")
        names = [each for name, table in self.tables.items() for each in table.names_of(name)]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise ValueError(f"two tables have the name {twice}; one is of refused records, or of a generation")
        if self.archive.url is not None and (found := self.misplaced([self.archive.url])):
            raise ValueError("; ".join(found))
        return self

    def misplaced(self, archive: Iterable[str]) -> list[str]:
        """Return a sentence for each place of tables that is in an archive, or contains it.

        Args:
            archive: the URLs of its stores.
        """
        locations = [each for table in self.tables.values() for each in table.locations]
        return overlaps(archive, self.catalog.get("warehouse"), locations)
