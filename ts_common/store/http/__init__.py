"""Requests, bodies, retries and proxies, for the drivers of Google, Azure and HDFS."""
