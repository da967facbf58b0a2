"""Benchmarks: ratios of things that are measured in one run."""
