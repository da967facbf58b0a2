"""What several benchmarks measure with: processes, topics, archives, Java programs, pairs of runs."""
