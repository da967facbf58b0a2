"""What a table's next commit adds: the archive's commits, the steps of its partitions, and the splits to read."""
