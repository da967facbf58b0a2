"""Hides records of a person from all readers (`tsctl erase`)."""
