"""Iceberg tables: catalogs, data files, and commits that land once. Only this room imports pyiceberg."""
