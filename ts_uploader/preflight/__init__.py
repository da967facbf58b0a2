"""`ts-uploader check`."""
