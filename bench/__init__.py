"""Ratios between things measured in one run."""
