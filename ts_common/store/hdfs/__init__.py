"""HDFS, by WebHDFS."""
