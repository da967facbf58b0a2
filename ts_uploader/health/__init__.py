"""What fails: the stores' answers, and the condition of the agent as a whole."""
