"""`spark.readStream.format("kafka_segments")`: a query that follows the commits."""
