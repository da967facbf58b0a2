"""Iceberg tables: catalogs, data files, and commits that land once. No other room imports pyiceberg."""
