"""SQL over an archive: DuckDB with the topics as tables."""
