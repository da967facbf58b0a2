"""The threads that run tasks: their queues, and what runs a task."""
