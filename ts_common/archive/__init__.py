"""What lies in the bucket, and what it means: keys, objects, catalog, view and plan. Knows no driver and no numba."""
