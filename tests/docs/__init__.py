"""Tests of the pages: their commands, links, numbers and rules."""
