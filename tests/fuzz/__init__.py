"""Inputs that somebody made up: bytes of a bucket, answers of servers, files of a broker. `make fuzz` draws them.

A target runs one input; whatever else comes of it than the project's own errors is a failure, and so is a hang, a
process that ends, and more memory than the target allows. `tests/fuzz/corpus/<target>/` holds inputs that failed once.
"""
