"""Object stores: one contract, a driver for S3 and one for a directory; the only place that knows boto3."""
