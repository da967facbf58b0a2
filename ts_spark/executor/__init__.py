"""On the executors: from a split to Arrow batches."""
