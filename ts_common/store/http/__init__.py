"""What the drivers of Google, Azure and HDFS share: requests, bodies, retries, proxies."""
