"""The topics and partitions of an archive, as a cluster that clients ask for."""
