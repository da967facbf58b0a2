"""What `tsctl find` prints of a look-up: records with a field, and the cost of a read."""
