"""Iceberg's Java catalog by pyiceberg's properties."""

from pathlib import Path

import pyspark
import pytest

from tests.docs.commands import CHECKOUT, blocks
from ts_common.config.yaml_files import read_yaml
from ts_tables.definition.tables_file import parse_tables
from ts_tables.engines.spark.catalogs import artifacts, spark_settings

SPARK = "org.apache.iceberg.spark.SparkCatalog"
S3 = {"s3.endpoint": "http://store:9000", "s3.access-key-id": "AK", "s3.secret-access-key": "SK", "s3.region": "eu-1"}
JAVA_S3 = {
    "s3.endpoint": "http://store:9000",
    "s3.access-key-id": "AK",
    "s3.secret-access-key": "SK",
    "client.region": "eu-1",
    "s3.path-style-access": "true",
}
JDBC = {
    "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
    "jdbc.schema-version": "V1",
    "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"type": "sql", "uri": "sqlite:////var/lib/tables.db", "warehouse": "file:///lake"},
            {**JDBC, "uri": "jdbc:sqlite:/var/lib/tables.db", "warehouse": "file:///lake"},
        ),
        (
            {
                "uri": "postgresql+psycopg2://me:p%40ss@host:5432/db?sslmode=require",
                "warehouse": "s3://lake/w",
                **S3,
                "s3.force-virtual-addressing": "true",
            },
            {
                **JDBC,
                "uri": "jdbc:postgresql://host:5432/db?sslmode=require",
                "jdbc.user": "me",
                "jdbc.password": "p@ss",
                "warehouse": "s3://lake/w",
                **JAVA_S3,
                "s3.path-style-access": "false",
            },
        ),
        (
            {"type": "rest", "uri": "http://catalog", "credential": "a:b", "scope": "", "header.X-Tenant": "t", **S3},
            {
                "type": "rest",
                "uri": "http://catalog",
                "credential": "a:b",
                "header.X-Tenant": "t",
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
                **JAVA_S3,
            },
        ),
        (
            {"type": "glue", "glue.id": "1234", "warehouse": "s3://lake", "client.region": "eu-1"},
            {
                "type": "glue",
                "glue.id": "1234",
                "warehouse": "s3://lake",
                "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
                "client.region": "eu-1",
            },
        ),
    ],
)
def test_the_java_catalog_has_the_same_place_and_login(properties: dict[str, str], expected: dict[str, str]) -> None:
    """And Spark keeps no copy of its tables."""
    prefix = "spark.sql.catalog.ts-uploader"
    settings = {f"{prefix}.{key}": value for key, value in expected.items()}
    assert spark_settings("ts-uploader", properties) == {prefix: SPARK, f"{prefix}.cache-enabled": "false", **settings}


def test_an_unknown_type_has_no_settings() -> None:
    """The operator gives them as settings of Spark."""
    assert spark_settings("ts-uploader", {"type": "dynamodb"}) == {}


def test_the_jars_are_those_of_the_catalog_and_the_store() -> None:
    """For the version of Spark."""
    local = {"uri": "sqlite:///tables.db", "warehouse": "file:///lake"}
    names = [coordinates.split(":")[1] for coordinates in artifacts(local, "4.0.3")]
    assert names == ["iceberg-spark-runtime-4.0_2.13", "sqlite-jdbc"]
    on_s3 = {"uri": "postgresql://host/db", "warehouse": "s3://lake/w"}
    names = [coordinates.split(":")[1] for coordinates in artifacts(on_s3, "4.1.4")]
    assert names == ["iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle", "postgresql"]


def test_the_page_names_the_jars_of_its_own_catalog(tmp_path: Path) -> None:
    """For the version of Spark that is tested."""
    path = tmp_path / "tables.yaml"
    file, spark, *_ = blocks(CHECKOUT / "docs/tables.md", language="yaml")
    path.write_text(file.text + spark.text)
    parsed = parse_tables(read_yaml(path), "the page")
    assert parsed.spark["spark.jars.packages"].split(",") == artifacts(parsed.catalog, pyspark.__version__)
