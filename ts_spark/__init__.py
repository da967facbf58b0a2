"""The Spark data source over shipped segments; the only package that imports pyspark."""
