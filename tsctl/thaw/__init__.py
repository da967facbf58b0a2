"""Thawing frozen objects."""
