"""Parsers: records of a topic in, rows of named columns and refused records out."""
