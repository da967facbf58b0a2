"""Benchmarks: ratios of things that are measured in one run."""

from ts_local.environment import isolate

isolate()
