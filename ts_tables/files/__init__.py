"""Rows to files: the columns of raw tables, partition keys, and Parquet writers. It imports no catalog."""
