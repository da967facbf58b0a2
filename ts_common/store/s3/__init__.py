"""The driver for S3, the only room that knows boto3."""
