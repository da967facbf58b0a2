"""The Spark data source over shipped segments; only this package and the engine of tables import pyspark."""
