"""Codecs: keys and values of records as typed Arrow columns, by schemas of a registry or of its archived topic."""
