"""Iceberg's Java catalog by pyiceberg's properties: the one place that translates them. No import of pyspark.

Both programs use the same catalog: pyiceberg's SQL catalog has the tables of Iceberg's `JdbcCatalog`, and the name of
the catalog is a part of each row. Most properties of a REST catalog and of S3 have one name in both.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

ICEBERG: Final = "1.11.0"  # the version that is tested here
_SQLITE: Final = "org.xerial:sqlite-jdbc:3.50.3.0"
_POSTGRESQL: Final = "org.postgresql:postgresql:42.7.8"
# The key for Java, and the keys of pyiceberg that have its value, the first one first.
_STORES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3.endpoint": ("s3.endpoint",),
    "s3.access-key-id": ("s3.access-key-id", "client.access-key-id"),
    "s3.secret-access-key": ("s3.secret-access-key", "client.secret-access-key"),
    "s3.session-token": ("s3.session-token", "client.session-token"),
    "client.region": ("s3.region", "client.region"),
}
_REST: Final = (
    *("uri", "warehouse", "prefix", "token", "credential", "oauth2-server-uri", "scope", "audience", "resource"),
    *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
)
_HEADER: Final = "header."
_DELEGATION: Final = "header.X-Iceberg-Access-Delegation"


def spark_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a catalog; empty for one that is not translated, as DynamoDB.

    Args:
        name: of the catalog, in Spark too.
        properties: as pyiceberg's configuration has them.
    """
    found = dict(_catalog(properties))
    if not found:
        return {}
    prefix = f"spark.sql.catalog.{name}"
    # A cache in Spark would show the table of a moment ago: others commit too.
    settings = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"}
    return settings | {f"{prefix}.{key}": value for key, value in found.items() if value}


def artifacts(properties: Mapping[str, str], spark: str) -> list[str]:
    """Return the Maven coordinates of the jars that a Spark session needs for a catalog.

    Args:
        properties: as pyiceberg's configuration has them.
        spark: version of Spark.
    """
    line = ".".join(spark.split(".")[:2])
    found = [f"org.apache.iceberg:iceberg-spark-runtime-{line}_2.13:{ICEBERG}"]
    places = [properties.get("warehouse", ""), *(key for key in properties if key.startswith("s3."))]
    if kind_of(properties) in {"rest", "glue"} or any(each.startswith("s3") for each in places):
        found.append(f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}")
    uri = properties.get("uri", "")
    return found + [jar for start, jar in (("sqlite", _SQLITE), ("postgresql", _POSTGRESQL)) if uri.startswith(start)]


def kind_of(properties: Mapping[str, str]) -> str:
    """Return the type of a catalog; without one, pyiceberg finds it by the URI."""
    given = properties.get("type", "").lower()
    starts = {"http": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql"}
    uri = properties.get("uri", "")
    return given or next((kind for start, kind in starts.items() if uri.startswith(start)), "")


def _catalog(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    kind = kind_of(properties)
    if kind == "rest":
        yield "type", "rest"
        yield _DELEGATION, properties.get(_DELEGATION, "vended-credentials")  # as pyiceberg sends it
        for key, value in properties.items():
            if key in _REST or key.startswith(_HEADER):
                yield key, value
    elif kind == "sql":
        yield "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog"
        yield "jdbc.schema-version", "V1"
        yield from _jdbc(properties.get("uri", ""))
    elif kind == "hive":
        yield "type", "hive"
        yield "uri", properties.get("uri", "")
    elif kind == "glue":
        yield "type", "glue"
        yield from ((key, value) for key, value in properties.items() if key.startswith("glue."))
    else:
        return
    if kind != "rest":
        yield "warehouse", properties.get("warehouse", "")
        yield "io-impl", "org.apache.iceberg.io.ResolvingFileIO"  # by the scheme of each path; REST has it by default
    for key, names in _STORES.items():
        yield key, next((properties[each] for each in names if properties.get(each)), "")
    if "s3.endpoint" in properties:  # pyarrow's default with an endpoint: the bucket is in the path
        is_virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
        yield "s3.path-style-access", str(not is_virtual).lower()


def _jdbc(uri: str) -> Iterator[tuple[str, str]]:
    """Yield URI and login by a URL of SQLAlchemy: `dialect+driver://user:password@host/database`."""
    dialect, _, rest = uri.partition("://")
    dialect = dialect.partition("+")[0]
    if dialect == "sqlite":
        yield "uri", f"jdbc:sqlite:{rest.removeprefix('/')}"
        return
    parts = urlsplit(f"//{rest}")
    yield "uri", f"jdbc:{dialect}://{parts.netloc.rpartition('@')[2]}{parts.path}" + (parts.query and f"?{parts.query}")
    yield "jdbc.user", unquote(parts.username or "")
    yield "jdbc.password", unquote(parts.password or "")
