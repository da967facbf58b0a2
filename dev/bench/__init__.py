"""Benchmarks: ratios of things that are measured in one run."""

import os
from typing import Final

from dev.local.environment import isolate

_ISOLATED: Final = "BENCH_ISOLATED"

if _ISOLATED not in os.environ:  # a process that a benchmark starts keeps the credentials that it was given
    isolate()
    os.environ[_ISOLATED] = "yes"
