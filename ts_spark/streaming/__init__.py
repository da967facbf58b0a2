"""`spark.readStream.format("kafka_segments")`: a query that goes on as the commits move."""
