"""What a table has claimed of the archive, and what it claims next. It imports no engine and no table format."""
