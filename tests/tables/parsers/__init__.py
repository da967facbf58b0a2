"""Parsers of tables, without files and stores."""
