"""Real object stores on loopback: SeaweedFS and moto for S3, Azurite, a server of Google Cloud Storage, HDFS."""
