"""Several processes as one cluster: who serves which partition and which group, and who is up."""
