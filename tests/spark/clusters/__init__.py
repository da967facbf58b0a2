"""docs/spark-clusters.md: the ways to a cluster that run on one host."""
