"""From a segment's bytes to columns, compiled. Loads numba, numpy and pyarrow; the agent does not import it."""
