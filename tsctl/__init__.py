"""`tsctl`, the command line for an archive: lists its content, reports missing offsets and reads records."""
