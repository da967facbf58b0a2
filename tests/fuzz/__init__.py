"""Hostile inputs: bytes of a bucket, responses of servers, files of a broker. `make fuzz` draws them.

A target runs one input. Any other error than the project's own is a failure, and so is a hang, a process that ends, and
more memory than the target allows. `tests/fuzz/corpus/<target>/` has inputs that failed once.
"""
