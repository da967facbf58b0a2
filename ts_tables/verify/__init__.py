"""Comparison of a table with the archive: by sums of digests first, then row by row where they differ."""
