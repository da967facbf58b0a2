"""The driver for S3; the only package that imports botocore."""
