"""Query planning without Spark: topics, offsets, ranges, splits, and the rows of a split."""
