"""Avro: schemas, their Arrow types, and values resolved from the writer's schema to the reader's."""
