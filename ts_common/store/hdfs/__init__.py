"""HDFS, by WebHDFS (experimental)."""
