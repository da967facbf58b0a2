"""The topics and partitions of an archive, as the cluster that clients see."""
