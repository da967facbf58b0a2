"""The suite, after behaviours and named faults."""
