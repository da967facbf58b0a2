"""Tests of ts_reader: an archive read without Spark."""
