"""Tests of tables of plain files."""
