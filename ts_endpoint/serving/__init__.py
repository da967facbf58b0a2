"""The composition of the endpoint: from options of the command line to a process that serves."""
