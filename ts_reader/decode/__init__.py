"""From a segment's bytes to columns, compiled. Loads numpy, pyarrow and llvmlite; the agent does not import it."""
