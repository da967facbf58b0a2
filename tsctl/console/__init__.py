"""`tsctl consume`: settings, values, lines and printers of `kafka-console-consumer`."""
