"""The driver for a directory."""
