r"""The file that describes the tables of a cluster, `tables.yaml`.

::

    archive:
      config: /etc/ts-uploader/prod.properties      # the agents' file; or url and cluster
    catalog:                                        # pyiceberg's own configuration
      type: sql
      uri: sqlite:////var/lib/ts-uploader/tables.db
      warehouse: s3://lake/warehouse
    tables:
      backup.orders:
        topics: [orders]
        partition_by: [day(timestamp)]
      backup.clicks:
        pattern: clicks\..*
        partition_by: [hour(timestamp), topic]
        sort_by: [offset]
        on_hole: pass
      export.orders:
        topics: [orders]
        format: json                                # plain files: no catalog
        location: s3://lake/export/orders
        max_age: 1h
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ts_common.config.yaml_files import parse_yaml, read_yaml, validate
from ts_common.errors import ConfigurationError
from ts_tables.definition.file_definition import TablesFile


def read_tables_file(path: Path) -> TablesFile:
    """Return the tables of a file.

    Raises:
        ConfigurationError: it is missing, is no YAML, or is wrong; with every problem.
    """
    return parse_tables(read_yaml(path), str(path))


def with_settings(content: Any, settings: Sequence[str], table: str | None, source: str) -> Any:
    """Return the values of a file with further ones.

    Args:
        settings: each `archive.KEY=VALUE`, `catalog.KEY=VALUE`, `spark.KEY=VALUE` or, of a table, `KEY=VALUE`; a value
            is YAML.
        table: the one that is named; None if no table is named, or several are.
        source: for messages.

    Raises:
        ConfigurationError: a setting has another form, or is of a table and no table is named.
    """
    found = {name: dict(part) if isinstance(part, Mapping) else part for name, part in dict(content).items()}
    problems = []
    for setting in settings:
        try:
            _set(found, setting, table)
        except ValueError as error:
            problems.append(f"{setting}: {error}")
    if problems:
        raise ConfigurationError(source, problems)
    return found


def _set(found: dict[str, Any], setting: str, table: str | None) -> None:
    """Set one value of a file.

    Raises:
        ValueError: the setting has another form, or is of a table and no table is named.
    """
    key, equals, text = setting.partition("=")
    part, _, inner = key.partition(".")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"the value is no YAML: {error}") from error
    if not equals:
        raise ValueError("KEY=VALUE is expected")
    if part in {"archive", "catalog", "spark"} and inner:
        name = key if part == "spark" else inner  # each name of Spark's begins so
        found[part] = {**(found.get(part) or {}), name: value}
        return
    if table is None:
        raise ValueError("name one table, or begin the key with archive., catalog. or spark.")
    tables = found.get("tables") or {}
    found["tables"] = {**tables, table: {**(tables.get(table) or {}), key: value}}


def parse_tables(content: Any, source: str) -> TablesFile:
    """Return tables by the values of a file.

    Args:
        source: its name for messages.

    Raises:
        ConfigurationError: with every problem.
    """
    if not isinstance(content, Mapping):
        raise ConfigurationError(source, ["archive, catalog and tables are expected"])
    lacking = ["catalog: it is missing, and there are Iceberg tables"] if _lacks_catalog(content) else []
    return validate(TablesFile, content, source, lacking)


def _lacks_catalog(content: Mapping[str, Any]) -> bool:
    """Return whether a file has no catalog, and an Iceberg table."""
    tables = content.get("tables")
    if content.get("catalog") or not isinstance(tables, Mapping):
        return False
    return any(table.get("format", "iceberg") == "iceberg" for table in tables.values() if isinstance(table, Mapping))


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the file, for editors."""
    return TablesFile.model_json_schema()
