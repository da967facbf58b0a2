"""Benchmarks: ratios of things that are measured in one run."""

from dev.local.environment import isolate

isolate()
