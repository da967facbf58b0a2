"""The test suite, organised by behaviour and by named fault."""
