"""Runs a plan: splits on worker processes, threads or the caller's thread; batches in order, memory bounded."""
