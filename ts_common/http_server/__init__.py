"""Health, metrics and pages over HTTP, for programs that run until a signal."""
