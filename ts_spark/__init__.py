"""The Spark data source over shipped segments; the only place that knows pyspark."""
