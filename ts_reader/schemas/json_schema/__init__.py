"""JSON Schema: the Arrow type of a schema, and JSON texts as its values."""
